// Differences between texts, line by line, and how they are drawn.
import { html } from "./html.js";

const MOST_CELLS = 160_000; // of the table of common lines; larger texts count as replaced

const MOST_LINES = 2_000; // that are coloured; further ones are shown as they are

/** Return the lines of two texts as `[kind, line]` pairs, of kind "same", "add" or "del". */
export function diffLines(before, after) {
  const [one, other] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < one.length && start < other.length && one[start] === other[start]) start += 1;
  let tail = 0;
  while (tail < one.length - start && tail < other.length - start && one.at(-1 - tail) === other.at(-1 - tail)) tail += 1;
  const [a, b] = [one.slice(start, one.length - tail), other.slice(start, other.length - tail)];
  return [
    ...one.slice(0, start).map((line) => ["same", line]),
    ...changed(a, b),
    ...one.slice(one.length - tail).map((line) => ["same", line]),
  ];
}

function changed(a, b) {
  const width = b.length + 1;
  if (a.length * b.length > MOST_CELLS) return [...a.map((line) => ["del", line]), ...b.map((line) => ["add", line])];
  // The length of the longest common part of the lines from each pair of places on.
  const common = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      found.push(["same", a[i]]);
      i += 1;
      j += 1;
    } else if (common[(i + 1) * width + j] >= common[i * width + j + 1]) found.push(["del", a[i++]]);
    else found.push(["add", b[j++]]);
  }
  return [...found, ...a.slice(i).map((line) => ["del", line]), ...b.slice(j).map((line) => ["add", line])];
}

const isHunk = /^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@/m;

/** Whether a text is a difference as `diff -u` and `git diff` write it. */
export const isDiff = (text) => isHunk.test(text);

function kindOf(line) {
  if (/^(?:\+\+\+|---|diff |index |@@)/.test(line)) return "at";
  return line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : "same";
}

const SPOKEN = { add: "added: ", del: "removed: " };

function Line({ kind, text }) {
  return html`<span class=${`d-${kind}`}>${SPOKEN[kind] ? html`<span class="hidden">${SPOKEN[kind]}</span>` : null}${text + "\n"}</span>`;
}

function Lines({ lines }) {
  const rest = lines.slice(MOST_LINES).map(([, text]) => text);
  return html`<pre class="diff" tabindex="0" aria-label="difference">
    ${lines.slice(0, MOST_LINES).map(([kind, text], index) => html`<${Line} key=${index} kind=${kind} text=${text} />`)}${rest.join("\n")}</pre>`;
}

/** Draws a text that is a difference already. */
export const DiffText = ({ text }) => html`<${Lines} lines=${text.split("\n").map((line) => [kindOf(line), line])} />`;

/** Draws what changed from one text to another. */
export function Diff({ before, after }) {
  const sign = { same: "  ", add: "+ ", del: "- " };
  const lines = diffLines(before, after);
  if (lines.length > 1 && lines.at(-1).join() === "same,") lines.pop(); // both end with a line break
  return html`<${Lines} lines=${lines.map(([kind, line]) => [kind, sign[kind] + line])} />`;
}
