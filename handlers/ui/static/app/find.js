// Finds a text in a whole session, also in entries that are not loaded: reads the log in parts and keeps the matches.
import { getEntriesPart } from "./api.js";

const PART = 1000; // positions asked for at once
const MOST = 1000; // matches that are kept
const DEPTH = 60;
const UNREAD = new Set(["role", "type", "cursor", "producer", "sha256"]);

/** Whether a text is in a message: in its texts, names, ids and data. `wanted` is in lower case. */
export function has(message, wanted) {
  const open = [[message, 0, null]];
  while (open.length) {
    const [value, depth, name] = open.pop();
    if (typeof value === "string") {
      // Long text without a space is media, unless a person would read it.
      const isMedia = name === "data" && value.length > 400 && !value.slice(0, 400).includes(" ");
      if (!isMedia && value.toLowerCase().includes(wanted)) return true;
    } else if (typeof value === "number") {
      if (String(value) === wanted) return true;
    } else if (value !== null && typeof value === "object" && depth < DEPTH) {
      for (const [key, inner] of Object.entries(value)) {
        if (UNREAD.has(key)) continue;
        if (depth > 1 && key.toLowerCase().includes(wanted)) return true;
        open.push([inner, depth + 1, key]);
      }
    }
  }
  return false;
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
          if (!has(entry.message, wanted)) continue;
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

/** Mark a text where it is drawn below an element. It changes no element: the browser draws the marks. */
export function mark(root, text) {
  if (typeof Highlight === "undefined") return; // an older browser shows the entry without marks
  CSS.highlights.delete(NAME);
  if (!root || !text) return;
  const wanted = text.toLowerCase();
  const ranges = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && ranges.length < 500; node = walker.nextNode()) {
    const drawn = node.data.toLowerCase();
    if (drawn.length !== node.data.length) continue; // the places would not fit
    for (let at = drawn.indexOf(wanted); at >= 0 && ranges.length < 500; at = drawn.indexOf(wanted, at + wanted.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + wanted.length);
      ranges.push(range);
    }
  }
  if (ranges.length) CSS.highlights.set(NAME, new Highlight(...ranges));
}
