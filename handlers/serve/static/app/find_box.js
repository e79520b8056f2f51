// The box that finds a text in the session. "/" goes to it, Enter to the next match, Shift+Enter to the previous one.
import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { Search } from "./find.js";
import { count } from "./format.js";
import { useShortcut } from "./keys.js";

const DELAY_MS = 250;

function words(search, at) {
  if (search === null) return "";
  if (search.error) return search.error;
  const found = search.matches.length;
  const all = `${count(found)}${search.isFull ? "+" : ""}`;
  if (!search.isOver && !search.isFull) return `${found ? `${at === null ? "" : `${at + 1} of `}${all} · ` : ""}searched ${count(search.read)} of ${count(search.end)}`;
  if (found === 0) return "not found";
  return at === null ? `${all} found` : `${count(at + 1)} of ${all}`;
}

/** `onShow` shows the entry at a position, and `onFind` gets the text that is looked for, or "". */
export function FindBox({ session, feed, onShow, onFind }) {
  const box = useRef(null);
  const [text, setText] = useState("");
  const [search, setSearch] = useState(null);
  const [at, setAt] = useState(null); // index of the match that is shown
  const [, draw] = useReducer((number) => number + 1, 0);

  useShortcut("/", "Log", "Find in the session", () => {
    box.current.focus();
    box.current.select();
  });

  useEffect(() => {
    setSearch(null);
    setAt(null);
    const wanted = text.trim();
    onFind(wanted);
    if (wanted === "") return undefined;
    let running = null;
    const timer = setTimeout(() => setSearch((running = new Search(session, wanted, feed.floor, feed.end, draw))), DELAY_MS);
    return () => {
      clearTimeout(timer);
      running?.stop();
    };
  }, [text, session]);

  const go = (step) => {
    if (!search?.matches.length) return;
    const { matches } = search;
    let next;
    if (at === null) {
      // Begin at what the user sees.
      const here = matches.findIndex((position) => position >= feed.inView);
      next = here < 0 ? matches.length - 1 : here;
    } else next = (at + step + matches.length) % matches.length;
    setAt(next);
    onShow(matches[next]);
  };

  const onKeyDown = (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter") {
      event.preventDefault();
      go(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape" && text) {
      event.preventDefault();
      setText("");
    }
  };

  return html`<div class="findlog" role="search">
    <input ref=${box} type="search" value=${text} onInput=${(event) => setText(event.currentTarget.value)} onKeyDown=${onKeyDown} placeholder="Find…  /" aria-label="Find in the session" autocomplete="off" spellcheck=${false} />
    ${text.trim() ? html`<span class="findwords" role="status">${words(search, at)}</span>` : null}
    ${search?.matches.length
      ? html`<button type="button" title="Previous match (Shift+Enter)" aria-label="Previous match" onClick=${() => go(-1)}>↑</button>
          <button type="button" title="Next match (Enter)" aria-label="Next match" onClick=${() => go(1)}>↓</button>`
      : null}
  </div>`;
}
