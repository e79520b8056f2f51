// Draws the content blocks of a message.
import { useContext, useLayoutEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { Code, languageOfFile } from "./code.js";
import { Diff } from "./diff.js";
import { placeOf } from "./find.js";
import { cut, visible } from "./format.js";
import { JsonTree } from "./json_tree.js";
import { Markdown } from "./markdown.js";
import { Media } from "./media.js";
import { Exact, OfEntry, TextShare, useExact } from "./of_entry.js";

const MOST_LINES = 24;
const MOST_CHARACTERS = 2400;
const STEP = 100_000; // characters that are shown at once of a longer text
const MOST_MEMBERS = 50; // blocks, arguments or references that are shown at once

function shortened(text) {
  const lines = text.split("\n", MOST_LINES + 1);
  const short = cut(lines.slice(0, MOST_LINES).join("\n"), MOST_CHARACTERS);
  return short.length < text.length ? short : null;
}

function Body({ text, kind, lang }) {
  const content = kind === "prose" ? html`<${Markdown} text=${text} />` : html`<${Code} text=${text} lang=${lang} />`;
  return html`<div class=${`text ${kind}`}>${content}</div>`;
}

/** Draws a text. A long text is folded, and a very long one is shown in steps. */
export function Text({ text: given, kind = "prose", lang = null }) {
  const { sought } = useContext(OfEntry);
  const text = useExact()(given);
  const [shown, setShown] = useState(0); // characters; 0 while it is folded
  const short = shortened(text);
  useLayoutEffect(() => {
    if (!sought || short === null) return;
    const at = text.toLowerCase().indexOf(sought.toLowerCase());
    if (at >= 0 && at + sought.length > shown) setShown(STEP * Math.ceil((at + sought.length) / STEP));
  }, [sought]);
  if (short === null) return html`<${Body} text=${text} kind=${kind} lang=${lang} />`;
  const lines = text.split("\n").length;
  const isOpen = shown > 0;
  const rest = text.length - shown;
  return html`<div class="folded">
    <div class=${isOpen ? "" : "faded"}><${Body} text=${isOpen ? text.slice(0, shown) : short} kind=${kind} lang=${lang} /></div>
    ${isOpen && rest > 0 ? html`<button class="quiet" type="button" onClick=${() => setShown(shown + STEP)}>Show more (${rest} characters)</button>` : null}
    <button class="quiet" type="button" aria-expanded=${isOpen} onClick=${() => setShown(isOpen ? 0 : STEP)}>
      ${isOpen ? "Show less" : `Show all (${lines > MOST_LINES ? `${lines} lines` : `${text.length} characters`})`}
    </button>
  </div>`;
}

const PRECISE = /\d{16}/; // such numbers change when they are read as JSON

/** Return the object or list that a text is, as a tool may return it; undefined for other texts. */
function jsonOf(text) {
  const isLikely = text.length > 40 && text.length < 1_000_000 && /^\s*[[{]/.test(text) && /[\]}]\s*$/.test(text);
  if (!isLikely || PRECISE.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Draws what a tool returned: JSON as a tree, other texts as they are. */
export function ResultText({ text }) {
  const { isPlain } = useContext(OfEntry);
  const value = isPlain ? undefined : jsonOf(text);
  return value === undefined ? html`<${Text} text=${text} kind="code" />` : html`<${JsonTree} value=${value} />`;
}

/** Draws a title that unfolds to what `children`, a function, draws of `value`. */
function Folded({ className, title, value, children }) {
  const { sought } = useContext(OfEntry);
  const [isOpen, setOpen] = useState(false);
  useLayoutEffect(() => {
    if (sought && placeOf(value, sought.toLowerCase(), true) !== null) setOpen(true);
  }, [sought]);
  const toggle = (event) => {
    event.preventDefault(); // the state says whether it is open
    setOpen(!isOpen);
  };
  const draw = Array.isArray(children) ? children.find((one) => typeof one === "function") : children;
  return html`<details class=${className} open=${isOpen}><summary onClick=${toggle}>${title}</summary>${isOpen ? draw() : null}</details>`;
}

function Thinking({ block }) {
  const text = block.thinking ?? "";
  if (!text.trim()) return html`<div class="note">thinking, hidden by the provider</div>`;
  return html`<${Folded} className="thinking" value=${text} title=${html`<span class="label">thinking</span><span class="hint">${cut(text.trim().split("\n", 1)[0], 200)}</span>`}>
    ${() => html`<${Text} text=${text} />`}
  </${Folded}>`;
}

export function ToolCall({ name, id, remote, children }) {
  return html`<div class="call">
    <div class="callhead">
      <span class="label">calls</span><code class="tool">${visible(name)}</code>${remote ? html`<span class="note">runs in the client</span>` : null}
      ${id ? html`<code class="id" title=${visible(id)}>${visible(id)}</code>` : null}
    </div>
    ${children}
  </div>`;
}

const PATHS = ["path", "file_path", "filePath", "filename", "file"];
const PAIRS = [["old_str", "new_str"], ["old_string", "new_string"], ["oldText", "newText"], ["before", "after"]];
const LANGS = { command: "bash", cmd: "bash", script: "bash", sql: "sql", python: "py" };

/** Draws the arguments of a tool call: an edit as a difference, and JSON as a tree. */
export const Arguments = ({ block }) => html`<${Exact.Provider} value><${ExactArguments} block=${block} /></${Exact.Provider}>`;

function ExactArguments({ block }) {
  const exact = useExact();
  const value = block.arguments;
  if (block.argumentsRaw) return html`<${Text} text=${block.argumentsRaw} kind="code" />`;
  if (value === null || typeof value !== "object" || Array.isArray(value)) return html`<${JsonTree} value=${value ?? null} />`;
  const pairs = Object.entries(value);
  if (pairs.length === 0) return html`<div class="note">no arguments</div>`;
  const path = PATHS.map((name) => value[name]).find((one) => typeof one === "string");
  const lang = path === undefined ? null : languageOfFile(path);
  const change = PAIRS.find((names) => names.every((name) => Object.hasOwn(value, name) && typeof value[name] === "string" && value[name].length < STEP));
  const others = change ? pairs.filter(([key]) => !change.includes(key)) : pairs;
  const [shown, rest] = [others.slice(0, MOST_MEMBERS), others.slice(MOST_MEMBERS)];
  return html`<dl class="arguments">
    ${shown.map(
      ([key, item]) => html`<div key=${`a${key}`}>
        <dt>${visible(key)}</dt>
        <dd>${typeof item === "string" ? html`<${Text} text=${item} kind="code" lang=${Object.hasOwn(LANGS, key) ? LANGS[key] : PATHS.includes(key) ? null : lang} />` : html`<${JsonTree} value=${item} />`}</dd>
      </div>`,
    )}
    ${rest.length ? html`<div><dt>more</dt><dd><${JsonTree} value=${Object.fromEntries(rest)} /></dd></div>` : null}
    ${change ? html`<div class="change"><dt>${change.join(" → ")}</dt><dd><${Diff} before=${exact(value[change[0]])} after=${exact(value[change[1]])} /></dd></div>` : null}
  </dl>`;
}

function Annotation({ block }) {
  const refs = block.refs ?? [];
  return html`<ul class="refs">
    ${refs.slice(0, MOST_MEMBERS).map((ref) => html`<li>${[ref.title, ref.url, ref.fileId, ref.page && `page ${ref.page}`].filter(Boolean).join(" · ")}</li>`)}
    ${refs.length > MOST_MEMBERS ? html`<li><${JsonTree} value=${refs.slice(MOST_MEMBERS)} /></li>` : null}
  </ul>`;
}

function Block({ block }) {
  switch (block.type) {
    case "text":
      return html`<${Text} text=${block.text} />`;
    case "thinking":
      return html`<${Thinking} block=${block} />`;
    case "redacted_thinking":
      return html`<div class="note">thinking, encrypted by the provider</div>`;
    case "toolCall":
      return html`<${ToolCall} name=${block.name} id=${block.id} remote=${block.remote}><${Arguments} block=${block} /></${ToolCall}>`;
    case "toolResult":
      return html`<div class=${`result ${block.isError ? "bad" : ""}`}>
        <div class="callhead"><span class="label">result</span><code class="id">${visible(block.toolCallId)}</code></div>
        <${Blocks} blocks=${block.content ?? []} />
        ${block.structured === undefined ? null : html`<${JsonTree} value=${block.structured} />`}
      </div>`;
    case "image":
    case "audio":
    case "video":
    case "document":
    case "data":
      return html`<${Media} block=${block} />`;
    case "annotation":
      return html`<${Annotation} block=${block} />`;
    case "error":
      return html`<div class="failure"><${Text} text=${block.code ? `${block.code}: ${block.message}` : block.message} /></div>`;
    default:
      return html`<${Folded} className="raw" value=${block.raw ?? block} title="block of an unknown type">${() => html`<${JsonTree} value=${block.raw ?? block} isOpen />`}</${Folded}>`;
  }
}

const isText = (block) => block?.type === "text" || block?.type === "toolResult";

/** Draws blocks, many of them in steps. */
export function Blocks({ blocks, kind }) {
  const { sought } = useContext(OfEntry);
  const whole = useContext(TextShare);
  const [shown, setShown] = useState(MOST_MEMBERS);
  useLayoutEffect(() => {
    if (!sought || blocks.length <= shown) return;
    const at = blocks.findIndex((block) => JSON.stringify(block).toLowerCase().includes(JSON.stringify(sought).slice(1, -1).toLowerCase()));
    if (at >= shown) setShown(at + 1);
  }, [sought]);
  const texts = Math.min(blocks.filter(isText).length, MOST_MEMBERS);
  return html`<${TextShare.Provider} value=${whole / Math.max(texts, 1)}>
    ${blocks.slice(0, shown).map((block, index) =>
      kind === "code" && block.type === "text"
        ? html`<${ResultText} key=${index} text=${block.text} />`
        : html`<${Block} key=${index} block=${block} />`,
    )}
    ${blocks.length > shown ? html`<button class="quiet" type="button" onClick=${() => setShown(shown + MOST_MEMBERS)}>Show more (${blocks.length - shown} blocks)</button>` : null}
  </${TextShare.Provider}>`;
}
