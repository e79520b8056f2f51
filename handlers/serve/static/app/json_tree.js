// Draws JSON as a tree. Only what is unfolded is in the document, so deep and large values cost nothing.
import { useContext, useLayoutEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { DiffText, isDiff } from "./diff.js";
import { placeOf } from "./find.js";
import { cut } from "./format.js";
import { OfEntry, useExact } from "./of_entry.js";

const STEP = 50; // members shown at once
const SHORT = 120; // characters of a text before it is folded
const MOST = 20_000; // characters of one text that are shown
const SMALL = 12; // a value with at most this many members is unfolded at first
const MOST_SOUGHT = 1000; // members shown at once because a text is found in the last of them

function TextValue({ value: text, isSought }) {
  const value = useExact()(text);
  const { sought } = useContext(OfEntry);
  const [isOpen, setOpen] = useState(false);
  useLayoutEffect(() => {
    if (isSought) setOpen(true);
  }, [sought]);
  if (value.length <= MOST && isDiff(value)) return html`<${DiffText} text=${value} />`;
  if (value.length <= SHORT) return html`<span class="j-str">"${value}"</span>`;
  return html`<span class="j-str">"${isOpen ? cut(value, MOST) : cut(value, SHORT)}${isOpen && value.length <= MOST ? '"' : "…"}</span>
    <button class="quiet" type="button" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? "less" : `${value.length} characters`}</button>`;
}

function Scalar({ value, isSought }) {
  if (typeof value === "string") return html`<${TextValue} value=${value} isSought=${isSought} />`;
  const type = value === null ? "null" : typeof value === "number" ? "num" : "bool";
  return html`<span class=${`j-${type}`}>${String(value)}</span>`;
}

const isTree = (value) => value !== null && typeof value === "object";

/** A few words about a folded value. */
function summary(value, size) {
  if (Array.isArray(value)) return `[ ${size} ${size === 1 ? "item" : "items"} ]`;
  const names = Object.keys(value).slice(0, 4).join(", ");
  return `{ ${names.slice(0, 80)}${size > 4 || names.length > 80 ? ", …" : ""} }`;
}

/** `path` has the names that lead to the text that the user looks for; null if it is not in this value. */
function Member({ name, value, isOpen: isOpenAtFirst, path }) {
  const { sought } = useContext(OfEntry);
  const [isOpen, setOpen] = useState(isOpenAtFirst);
  const exact = useExact();
  useLayoutEffect(() => {
    if (path?.length) setOpen(true);
  }, [sought]);
  const label = name === null ? null : html`<span class="j-key">${exact(name)}</span><span class="j-colon">: </span>`;
  if (!isTree(value)) return html`<div class="j-line">${label}<${Scalar} value=${value} isSought=${path !== null} /></div>`;
  const size = Array.isArray(value) ? value.length : Object.keys(value).length;
  if (size === 0) return html`<div class="j-line">${label}<span class="j-sum">${Array.isArray(value) ? "[ ]" : "{ }"}</span></div>`;
  return html`<div class="j-tree">
    <button class="j-fold" type="button" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
      <span class="j-mark" aria-hidden="true"></span>${label}<span class="j-sum">${isOpen ? (Array.isArray(value) ? "[" : "{") : exact(summary(value, size))}</span>
    </button>
    ${isOpen ? html`<${Members} value=${value} path=${path} />` : null}
  </div>`;
}

function Members({ value, path }) {
  const { sought } = useContext(OfEntry);
  const [shown, setShown] = useState(STEP);
  const isList = Array.isArray(value);
  const names = isList ? null : Object.keys(value);
  const size = isList ? value.length : names.length;
  useLayoutEffect(() => {
    const at = !path?.length ? -1 : isList ? Number(path[0]) : names.indexOf(path[0]);
    if (at >= shown && at < MOST_SOUGHT) setShown(at + 1);
  }, [sought]);
  const found = [];
  for (let index = 0; index < Math.min(shown, size); index += 1) {
    const name = isList ? String(index) : names[index];
    found.push(html`<${Member} key=${`m${name}`} name=${name} value=${value[isList ? index : name]} isOpen=${false} path=${path?.[0] === name ? path.slice(1) : null} />`);
  }
  return html`<div class="j-members">
    ${found}
    ${size > shown ? html`<button class="quiet" type="button" onClick=${() => setShown(shown + 4 * STEP)}>${size - shown} more</button>` : null}
  </div>`;
}

/** Draws a value. It is unfolded at first if `isOpen` is set or it has few members. */
export function JsonTree({ value, isOpen = false }) {
  const size = isTree(value) ? (Array.isArray(value) ? value.length : Object.keys(value).length) : 0;
  const { sought } = useContext(OfEntry);
  const path = sought ? (placeOf(value, sought.toLowerCase(), true)?.path ?? null) : null;
  return html`<div class="json"><${Member} name=${null} value=${value} isOpen=${isOpen || size <= SMALL} path=${path} /></div>`;
}
