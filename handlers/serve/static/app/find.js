// Finds a text in a whole session, also in entries that are not loaded: reads the log in parts and keeps the matches.
import { getEntriesPart } from "./api.js";
import { visible } from "./format.js";

const PART = 1000; // positions asked for at once
const MOST = 1000; // matches that are kept
const DEPTH = 60;
const UNREAD = new Set(["role", "type", "cursor", "producer", "sha256"]);
const OWN = new Set(["arguments", "data", "metadata", "raw", "structured"]); // below these fields, the names are of a tool or a user

/**
 * Return where a text is in a message, in its texts, numbers and data: `{path, text}`, with the names that lead to the text.
 * Null if it is nowhere. `wanted` is in lower case. Names of the message's own fields do not count; `isOwn` says that all
 * names are of a tool or a user.
 */
export function placeOf(message, wanted, isOwn = false) {
  const open = [{ value: message, name: null, above: null, depth: 0, isOwn }];
  while (open.length) {
    const one = open.pop();
    const { value, name, depth } = one;
    if (name !== null && one.above.isOwn && !Array.isArray(one.above.value) && name.toLowerCase().includes(wanted)) return placeAt(one, name);
    if (typeof value === "string") {
      // Long text without a space is media, unless a person would read it.
      const isMedia = name === "data" && value.length > 400 && !value.slice(0, 400).includes(" ");
      if (!isMedia && value.toLowerCase().includes(wanted)) return placeAt(one, value);
    } else if (typeof value === "number") {
      if (String(value) === wanted) return placeAt(one, wanted);
    } else if (value !== null && typeof value === "object" && depth < DEPTH) {
      const names = Object.keys(value);
      for (let at = names.length - 1; at >= 0; at -= 1) {
        const key = names[at];
        if (!one.isOwn && UNREAD.has(key)) continue;
        open.push({ value: value[key], name: key, above: one, depth: depth + 1, isOwn: one.isOwn || OWN.has(key) });
      }
    }
  }
  return null;
}

function placeAt(found, text) {
  const path = [];
  for (let one = found; one.name !== null; one = one.above) path.unshift(one.name);
  return { path, text };
}

/** One search of one session. `onChange` is called after each part. */
export class Search {
  constructor(session, text, floor, end, onChange) {
    this.text = text;
    this.matches = []; // positions, in order
    this.read = floor; // position up to which the log was searched
    this.end = end;
    this.isOver = false;
    this.isFull = false; // there are more matches than are kept
    this.error = null;
    this.#run(session, onChange);
  }

  #abort = new AbortController();

  stop() {
    this.#abort.abort();
  }

  async #run(session, onChange) {
    const wanted = this.text.toLowerCase();
    const { signal } = this.#abort;
    try {
      for (let cursor = String(this.read); this.read < this.end && !this.isFull; ) {
        const until = Math.min(parseInt(cursor, 10) + PART, this.end);
        const answer = await getEntriesPart(session, cursor, until, signal);
        for (const entry of answer.entries) {
          if (placeOf(entry.message, wanted) === null) continue;
          if (this.matches.length === MOST) this.isFull = true;
          else if (this.matches.at(-1) !== entry.position) this.matches.push(entry.position);
        }
        const reached = answer.more ? parseInt(answer.cursor, 10) : until;
        if (!(reached > this.read)) break; // no progress
        this.read = reached;
        cursor = answer.more ? answer.cursor : String(until);
        onChange();
        await new Promise((go) => setTimeout(go)); // the page stays responsive
        if (signal.aborted) return;
      }
    } catch (error) {
      if (signal.aborted) return;
      this.error = error.message;
    }
    this.isOver = true;
    onChange();
  }
}

const NAME = "lanebus-find";
const MOST_MARKS = 500;
const INLINE = new Set(["a", "b", "bdi", "code", "del", "em", "small", "span", "strong"]);

/** Return the texts below an element; those of one line, such as coloured code, are one: `{text, parts}`. */
function textsOf(root) {
  const found = [];
  let block = null;
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    let around = node.parentElement;
    while (INLINE.has(around.localName)) around = around.parentElement;
    if (around !== block) found.push({ text: "", parts: [] });
    block = around;
    found.at(-1).parts.push({ node, start: found.at(-1).text.length });
    found.at(-1).text += node.data;
  }
  return found;
}

function* rangesOf(root, wanted) {
  for (const { text, parts } of textsOf(root)) {
    const drawn = text.toLowerCase();
    if (drawn.length !== text.length) continue; // the places would not fit
    const partOf = (place) => parts.findLast(({ start }) => start <= place);
    for (const one of wanted) {
      for (let at = drawn.indexOf(one); at >= 0; at = drawn.indexOf(one, at + one.length)) {
        const [first, last] = [partOf(at), partOf(at + one.length - 1)];
        const range = new Range();
        range.setStart(first.node, at - first.start);
        range.setEnd(last.node, at + one.length - last.start);
        yield range;
      }
    }
  }
}

/** Whether a range is drawn, and no element around it, up to `root`, cuts it off. What can be scrolled to is not cut off. */
function isSeen(range, root) {
  const [box] = range.getClientRects();
  if (!box || box.width < 1) return false;
  const from = range.startContainer.parentElement;
  if (getComputedStyle(from).visibility !== "visible") return false;
  for (let one = from; one !== root.parentElement; one = one.parentElement) {
    const { overflowX, overflowY, textOverflow, fontSize } = getComputedStyle(one);
    const around = one.getBoundingClientRect();
    const dots = textOverflow === "ellipsis" && one.scrollWidth > one.clientWidth ? parseFloat(fontSize) : 0;
    if (overflowX === "hidden" && (box.right > around.right + 1 - dots || box.left < around.left - 1)) return false;
    if (overflowY === "hidden" && (box.bottom > around.bottom + 1 || box.top < around.top - 1)) return false;
  }
  return true;
}

/**
 * Mark a text where it is drawn below an element, in `first` before other places. It changes no element: the browser draws
 * the marks. Returns the first range in `first` that a user can see; null if there is none.
 */
export function mark(root, text, first = null) {
  const canMark = typeof Highlight !== "undefined"; // an older browser shows the entry without marks
  if (canMark) CSS.highlights.delete(NAME);
  if (!text) return null;
  const wanted = [...new Set([text, visible(text)])].map((one) => one.toLowerCase());
  const ranges = [];
  let seen = null;
  for (const part of first === null ? [root] : [first, root]) {
    for (const range of rangesOf(part, wanted)) {
      if (ranges.length === MOST_MARKS) break;
      if (part !== first && first?.contains(range.startContainer)) continue;
      ranges.push(range);
      if (part === first && seen === null && isSeen(range, first)) seen = range;
    }
  }
  if (canMark && ranges.length) CSS.highlights.set(NAME, new Highlight(...ranges));
  return seen;
}

/** Scroll what is below `root` sideways so that a range is in view, as in a long line of code. */
export function scrollAside(range, root) {
  for (let one = range.startContainer.parentElement; one !== root; one = one.parentElement) {
    const { overflowX } = getComputedStyle(one);
    if (overflowX !== "auto" && overflowX !== "scroll") continue;
    const [box, around] = [range.getBoundingClientRect(), one.getBoundingClientRect()];
    if (box.left < around.left || box.right > around.right) one.scrollLeft += box.left - around.left - one.clientWidth / 4;
  }
}
