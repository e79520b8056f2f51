// Draws the two lanes side by side, one row per position. Follows the end until the user scrolls up.
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { PreviewRow, Row } from "./entries.js";
import { count } from "./format.js";

const NEAR_END = 48; // pixels

export function Lanes({ feed, version }) {
  const box = useRef(null);
  const list = useRef(null);
  const view = useRef({ top: 0, distance: 0, anchor: null });
  const [seen, setSeen] = useState(null); // the newest position at the time when the user scrolled away from the end; null while the end is shown

  const [, redraw] = useReducer((number) => number + 1, 0);

  const toEnd = () => {
    feed.isFollowing = true;
    setSeen(null);
    redraw();
    box.current.scrollTop = box.current.scrollHeight;
  };

  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    const distance = scrollHeight - scrollTop - clientHeight;
    const isUp = scrollTop < view.current.top - 1;
    const wasAway = view.current.distance >= NEAR_END;
    view.current.top = scrollTop;
    view.current.distance = distance;
    if (distance < NEAR_END) {
      // Follow again when the user scrolls to the end, but not when rows inserted above move the view there.
      if (wasAway && !feed.isFollowing) toEnd();
    } else if (isUp || !feed.isFollowing) {
      // Only the user scrolls up; rows that change their height do not.
      feed.isFollowing = false;
      setSeen((old) => old ?? feed.position);
    }
  };

  const loadEarlier = () => {
    const row = list.current.querySelector("[data-position]");
    if (row) view.current.anchor = { position: row.dataset.position, top: row.getBoundingClientRect().top };
    setSeen((old) => old ?? feed.position);
    feed.loadEarlier();
  };

  useLayoutEffect(() => {
    if (feed.isFollowing) {
      box.current.scrollTop = box.current.scrollHeight;
      return;
    }
    const anchor = view.current.anchor;
    if (anchor && !feed.isLoadingEarlier) {
      // Keep the row that the user reads in its place while earlier rows appear above it.
      const hold = () => {
        const row = list.current?.querySelector(`[data-position="${anchor.position}"]`);
        if (row) box.current.scrollTop += row.getBoundingClientRect().top - anchor.top;
      };
      hold();
      requestAnimationFrame(hold);
      view.current.anchor = null;
    }
  }, [version]);

  useEffect(() => {
    // Rows get their true height when they come into view, which moves the end.
    const observer = new ResizeObserver(() => {
      if (feed.isFollowing && box.current) box.current.scrollTop = box.current.scrollHeight;
    });
    observer.observe(list.current);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  const previews = feed.previews.list();
  const fresh = seen === null ? 0 : feed.position - seen;
  return html`<div class="lanes">
    <div class="laneheads" aria-hidden="true">
      <div class="llm"><b>LLM lane</b><span>what the model sees</span></div>
      <div class="spine">#</div>
      <div class="extension"><b>Extension lane</b><span>never reaches the model</span></div>
    </div>
    <div class="scroll" ref=${box} onScroll=${onScroll} tabindex="0" role="region" aria-label="Both lanes, by position">
      ${feed.first > feed.floor
        ? html`<div class="earlier"><button type="button" disabled=${feed.isLoadingEarlier} onClick=${loadEarlier}>
            ${feed.isLoadingEarlier ? "Loading…" : `Load earlier (${count(feed.first - feed.floor)} more)`}
          </button></div>`
        : null}
      ${feed.floor > 0 && feed.first === feed.floor ? html`<p class="floor">Entries up to #${feed.floor} were trimmed.</p>` : null}
      <ol class="rows" ref=${list}>
        ${feed.entries.map((entry) => html`<${Row} key=${entry.gap ? `gap${entry.position}` : entry.position} entry=${entry} />`)}
        ${previews.map((preview) => html`<${PreviewRow} key=${`live-${preview.id}`} preview=${preview} />`)}
      </ol>
      ${feed.entries.length === 0 && previews.length === 0 ? html`<${Nothing} feed=${feed} />` : null}
    </div>
    ${feed.isFollowing
      ? null
      : html`<button class="toend" type="button" onClick=${toEnd}>${fresh > 0 ? `${count(fresh)} new ↓` : "Go to newest ↓"}</button>`}
  </div>`;
}

function Nothing({ feed }) {
  if (feed.state === "connecting" || (feed.state === "live" && !feed.hasCaughtUp)) return html`<div class="empty"><p>Loading…</p></div>`;
  if (feed.state !== "live") return null;
  return html`<div class="empty">
    <h2>No entries yet</h2>
    <p>Write to the agent below: the first message creates the session. Messages for the model appear on the left, events of the agent on the right, each at its position.</p>
  </div>`;
}
