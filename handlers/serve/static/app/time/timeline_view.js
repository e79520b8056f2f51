// The view "Timeline": loops, turns, model calls, tools and waits as a waterfall.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { count, dateTime, money, tokens, visible } from "../format.js";
import { sessionLink } from "../route.js";
import { useStates } from "../states.js";
import { Axis, Bar, Idle } from "./bars.js";
import { Charts } from "./charts.js";
import { duration } from "./duration.js";
import { timelineAt } from "./moment.js";
import { makeAxis, panned, zoomed } from "./scale.js";
import { KINDS, allRows, busy, isBad, openRows, rowAt } from "./spans.js";

const ROW = 30; // pixels, as in timeline.css
const SPARE = 8; // rows drawn above and below those in view
const ZOOM = 1.5;
const ZOOMED_ALL = null; // follow the rows in view

export function TimelineView({ session, feed, timeline, position, route, setPosition, showEntry }) {
  const turns = timeline?.turns ?? [];
  const [closed, setClosed] = useState(null); // keys of closed rows; null until chosen
  const [isWhole, setWhole] = useState(false);
  const [hasCharts, setCharts] = useState(false);
  const rows = useMemo(() => (timeline ? allRows(timeline) : []), [timeline?.turns, timeline?.loops, timeline?.compactions]);
  const shut = useMemo(() => closed ?? closedAtFirst(rows), [closed, rows]);
  const then = useMemo(() => (position === null || !timeline ? rows : allRows(timelineAt(timeline, position))), [rows, position]);
  const shown = useMemo(() => openRows(then, shut), [then, shut]);
  const whole = useMemo(() => (then === rows ? shown : openRows(rows, shut)), [rows, shown, shut]); // the same rows, as they are now
  const now = useNow(rows.some((row) => row.end === null), feed);
  const axis = useMemo(() => makeAxis(busy(rows, now), isWhole), [rows, isWhole, now]);
  const moment = useMemo(() => (position === null ? now : momentOf(then, position)), [then, position, now]); // ends what ran
  const [chosen, choose] = useState(null);

  useEffect(() => {
    if (route.at === null || rows.length === 0) return;
    const at = rowAt(rows, route.at);
    if (timeline.first > 0 && timeline.turns[0].startedPosition > route.at) timeline.reach(route.at);
    if (at === null) return;
    choose(at.key);
    openTo(at, rows, shut, setClosed);
  }, [route, rows.length === 0, timeline?.first]);

  if (timeline?.fault && turns.length === 0) return html`<p class="trouble" role="alert">${timeline.fault.message}</p>`;
  if (!timeline) return html`<p class="waiting" role="status">Loading…</p>`;
  if (rows.length === 0) {
    return html`<div class="empty"><h2>No turns yet</h2><p>Each loop of the agent appears here with its model calls, tools and waits, and how long they took.</p></div>`;
  }
  const toggle = (row) => setClosed(changed(shut, row.key));
  const all = (isOpen) => setClosed(new Set(isOpen ? [] : rows.filter((row) => row.hasChildren && row.kind !== "loop").map((row) => row.key)));
  const row = shown.find((one) => one.key === chosen) ?? null;
  return html`<div class="timeline">
    <${Head} timeline=${timeline} axis=${axis} rows=${rows} now=${now} shut=${shut} onAll=${all} isWhole=${isWhole} setWhole=${setWhole} hasCharts=${hasCharts} setCharts=${setCharts} />
    ${hasCharts ? html`<${Charts} turns=${turns} timeline=${timeline} position=${position} onTurn=${(turn) => showEntry(turn.message ?? turn.startedPosition)} />` : null}
    <${Waterfall} rows=${shown} whole=${whole} axis=${axis} now=${now} moment=${moment} shut=${shut} chosen=${chosen} choose=${choose} toggle=${toggle} position=${position} showEntry=${showEntry} timeline=${timeline} />
    ${row ? html`<${Details} row=${row} position=${position} session=${session} showEntry=${showEntry} setPosition=${setPosition} onClose=${() => choose(null)} />` : null}
  </div>`;
}

/** Unix seconds, twice a second while something runs, by the clock of the newest entry. */
function useNow(isRunning, feed) {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    if (!isRunning) return undefined;
    const timer = setInterval(() => document.hidden || setNow(Date.now() / 1000), 500);
    return () => clearInterval(timer);
  }, [isRunning]);
  return isRunning ? now : (feed?.entries.at(-1)?.time ?? 0);
}

/** Many turns begin closed; tools and waits of a few turns are open. */
const closedAtFirst = (rows) => {
  const turns = rows.filter((row) => row.kind === "turn");
  return new Set(turns.length > 40 ? turns.slice(0, -10).map((row) => row.key) : []);
};

function changed(keys, key) {
  const next = new Set(keys);
  if (!next.delete(key)) next.add(key);
  return next;
}

function openTo(row, rows, shut, setClosed) {
  const parents = new Map(rows.map((one) => [one.key, one.parent]));
  const next = new Set(shut);
  for (let key = row.parent; key; key = parents.get(key)) next.delete(key);
  if (next.size < shut.size) setClosed(next);
}

function Head({ timeline, axis, rows, now, shut, onAll, isWhole, setWhole, hasCharts, setCharts }) {
  const { usage } = timeline;
  const whole = usage ? usage.input + usage.cache_read + usage.cache_write : 0;
  const timed = rows.filter((row) => row.kind === "model" && !row.isUntimed);
  const worked = timed.length ? busy(timed, now).reduce((sum, [start, end]) => sum + end - start, 0) : null;
  const bad = rows.filter((row) => (row.kind === "turn" || row.kind === "tool") && isBad(row)).length;
  const isOpen = !rows.some((row) => row.kind !== "loop" && shut.has(row.key));
  return html`<div class="tl-head">
    <ul class="tl-facts" aria-label="The whole session">
      <li><b>${count(timeline.count)}</b> ${timeline.count === 1 ? "turn" : "turns"}</li>
      <li title=${worked === null ? "no shown model call was timed" : "time of all shown model calls together"}><b>${duration(worked)}</b> model</li>
      <li><b>${money(usage?.cost)}</b> cost</li>
      ${whole ? html`<li title="part of the input that the provider's cache held"><b>${Math.round((100 * usage.cache_read) / whole)} %</b> cached</li>` : null}
      ${bad ? html`<li class="bad"><b>${count(bad)}</b> failed</li>` : null}
    </ul>
    <div class="tl-tools">
      ${timeline.first > 0 ? html`<button type="button" disabled=${timeline.isLoading} onClick=${() => timeline.reach(0)}>${timeline.isLoading ? "Loading…" : `Load earlier (${count(timeline.first)} more)`}</button>` : null}
      ${axis.idle.length || isWhole ? html`<label title="Time in which nothing ran takes its true length"><input type="checkbox" checked=${isWhole} onChange=${() => setWhole(!isWhole)} /> Idle time</label>` : null}
      <button type="button" onClick=${() => onAll(!isOpen)}>${isOpen ? "Fold turns" : "Unfold turns"}</button>
      <button type="button" aria-expanded=${hasCharts} onClick=${() => setCharts(!hasCharts)}>Charts</button>
    </div>
  </div>`;
}

function Waterfall({ rows, whole, axis, now, moment, shut, chosen, choose, toggle, position, showEntry, timeline }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600, width: 800 });
  const [span, setSpan] = useState(ZOOMED_ALL);
  const first = Math.max(0, Math.floor(view.top / ROW) - SPARE);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW) + SPARE);
  const drawn = rows.slice(first, last);
  const window = span ?? fitted(whole.slice(Math.floor(view.top / ROW), Math.ceil((view.top + view.height) / ROW)), axis, now);
  const chosenAt = rows.findIndex((row) => row.key === chosen);

  useLayoutEffect(() => {
    const measure = () => box.current && setView({ top: box.current.scrollTop, height: box.current.clientHeight - ROW, width: box.current.clientWidth });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  // The view keeps its rows when rows above it come and go. The browser's own anchoring is off: it races with `Home`.
  const kept = useRef(null); // the keys of the row at the top and of those that it is below, and its distance from there
  const keep = () => {
    const { scrollTop } = box.current;
    const at = Math.min(Math.max(0, Math.floor(scrollTop / ROW)), rows.length - 1);
    if (at >= 0) kept.current = { keys: withParents(rows, at), offset: at * ROW - scrollTop };
  };
  const [moves, setMoves] = useState(0); // counts keys that chose a row, also the chosen one

  useLayoutEffect(() => {
    if (rows.length === 0) return;
    if (kept.current === null) box.current.scrollTop = box.current.scrollHeight; // the newest turns first
    else {
      const at = kept.current.keys.map((key) => rows.findIndex((row) => row.key === key)).find((found) => found >= 0);
      if (at !== undefined) box.current.scrollTop = at * ROW - kept.current.offset;
    }
    keep();
  }, [rows]);

  useLayoutEffect(() => {
    if (chosenAt < 0) return;
    const top = chosenAt * ROW;
    const { scrollTop, clientHeight } = box.current;
    const isFar = top < scrollTop - 2 * ROW || top > scrollTop + clientHeight + ROW;
    if (isFar) box.current.scrollTop = top - clientHeight / 3;
    else if (top < scrollTop) box.current.scrollTop = top;
    else if (top + 2 * ROW > scrollTop + clientHeight) box.current.scrollTop = top + 2 * ROW - clientHeight;
    keep();
  }, [chosen, chosenAt, moves]);

  const isLater = (row) => position !== null && row.from > position;
  const endOf = (row) => row.end ?? (isLater(row) ? now : moment);
  const zoom = (factor, around = (window[0] + window[1]) / 2) => setSpan(zoomed(window, around, factor, axis.length));
  const pan = (share) => setSpan(panned(window, share * (window[1] - window[0]), axis.length));
  const fit = (row) => setSpan(padded([axis.place(row.start), axis.place(endOf(row))], axis.length));

  const onKeyDown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = rows[chosenAt];
    const page = Math.max(1, Math.floor(view.height / ROW) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length }[event.key];
    if (event.shiftKey && ["ArrowLeft", "ArrowRight"].includes(event.key)) pan(event.key === "ArrowLeft" ? -0.2 : 0.2);
    else if (step !== undefined) {
      choose(rows[Math.min(Math.max((chosenAt < 0 ? first : chosenAt) + step, 0), rows.length - 1)].key);
      setMoves((count) => count + 1);
    }
    else if (event.key === "ArrowRight" && row?.hasChildren && shut.has(row.key)) toggle(row);
    else if (event.key === "ArrowLeft" && row?.hasChildren && !shut.has(row.key)) toggle(row);
    else if (event.key === "ArrowLeft" && row?.parent) choose(row.parent);
    else if (event.key === "Enter" && row) showEntry(row.from);
    else if (event.key === "+" || event.key === "=") zoom(1 / ZOOM);
    else if (event.key === "-") zoom(ZOOM);
    else if (event.key === "0") setSpan([0, axis.length]);
    else if (event.key === "f" && row) fit(row);
    else if (event.key === "Escape" && (span || chosen)) {
      setSpan(ZOOMED_ALL);
      choose(null);
    } else return;
    event.preventDefault();
  };

  const onScroll = (event) => {
    const top = event.currentTarget.scrollTop;
    keep();
    setView((old) => ({ ...old, top }));
  };

  // Listeners of the wheel that prevent scrolling must say so.
  const wheel = useRef(null);
  wheel.current = (event) => {
    const lane = event.target.closest?.(".tl-lane");
    if (!lane || !(event.ctrlKey || event.shiftKey)) return;
    event.preventDefault();
    const { left, width } = lane.getBoundingClientRect();
    const around = window[0] + ((event.clientX - left) / width) * (window[1] - window[0]);
    if (event.ctrlKey) zoom(event.deltaY < 0 ? 1 / 1.2 : 1.2, around);
    else pan(Math.sign(event.deltaY || event.deltaX) * 0.1);
  };
  useEffect(() => {
    const onWheel = (event) => wheel.current(event);
    box.current.addEventListener("wheel", onWheel, { passive: false });
    return () => box.current?.removeEventListener("wheel", onWheel);
  }, []);

  return html`<div class="tl-main">
    <div class="tl-zoom" role="group" aria-label="Zoom">
      <button type="button" aria-label="Zoom in" title="Zoom in (+)" onClick=${() => zoom(1 / ZOOM)}>+</button>
      <button type="button" aria-label="Zoom out" title="Zoom out (−)" onClick=${() => zoom(ZOOM)}>−</button>
      <button type="button" aria-label="Earlier" title="Earlier (Shift+←)" onClick=${() => pan(-0.3)}>‹</button>
      <button type="button" aria-label="Later" title="Later (Shift+→)" onClick=${() => pan(0.3)}>›</button>
      <button type="button" title="The whole session (0)" onClick=${() => setSpan([0, axis.length])}>All</button>
      <button type="button" title="Follow the rows in view (Escape)" aria-pressed=${span === ZOOMED_ALL} onClick=${() => setSpan(ZOOMED_ALL)}>Auto</button>
    </div>
    <div class="tl-box" ref=${box} role="treegrid" tabindex="0" aria-label="Waterfall of the session" aria-rowcount=${rows.length + 1} aria-colcount="4" aria-activedescendant=${chosenAt >= first && chosenAt < last ? idOf(chosenAt) : undefined}
      onKeyDown=${onKeyDown} onScroll=${onScroll}>
      <div class="tl-row tl-top" role="row" aria-rowindex="1">
        <span role="columnheader">What</span><span role="columnheader" class="tl-took">Took</span><span role="columnheader" class="tl-cost">Cost</span>
        <span role="columnheader" class="tl-lane"><span class="hidden">When</span><${Axis} window=${window} width=${view.width} axis=${axis} /></span>
      </div>
      <div class="tl-rows" role="rowgroup" style=${{ height: `${rows.length * ROW}px` }}>
        ${drawn.map((row, index) => html`<${Row} key=${row.key} row=${row} at=${first + index} window=${window} axis=${axis} until=${endOf(row)} isClosed=${shut.has(row.key)} isChosen=${row.key === chosen} isLater=${isLater(row)} choose=${choose} toggle=${toggle} showEntry=${showEntry} />`)}
        <div class="tl-over" aria-hidden="true"><div class="tl-lane"><${Idle} window=${window} axis=${axis} />${position === null ? null : html`<i class="tl-moment" style=${placed(Math.max(0, axis.place(moment)), window)}></i>`}</div></div>
      </div>
    </div>
    ${timeline.fault ? html`<p class="trouble" role="alert">${timeline.fault.message}</p>` : null}
  </div>`;
}

/** Return the keys of a row, of its parent, and so on up. */
function withParents(rows, index) {
  const keys = [rows[index].key];
  for (let at = index - 1, wanted = rows[index].parent; at >= 0 && wanted !== null; at -= 1) {
    if (rows[at].key !== wanted) continue;
    keys.push(wanted);
    wanted = rows[at].parent;
  }
  return keys;
}

const idOf = (index) => `tl-row-${index}`;
const placed = (place, [from, to]) => ({ left: `${(100 * (place - from)) / Math.max(to - from, 1e-9)}%` });

/** The window that shows rows whole, with a little room. */
function fitted(rows, axis, now) {
  const deep = rows.filter((row) => row.kind !== "loop");
  const of = deep.length ? deep : rows;
  if (of.length === 0) return [0, Math.max(axis.length, 0.001)];
  return padded([Math.min(...of.map((row) => axis.place(row.start))), Math.max(...of.map((row) => axis.place(row.end ?? now)))], axis.length);
}

function padded([from, to], length) {
  const room = Math.max((to - from) * 0.02, 0.0005);
  return [Math.max(0, from - room), Math.max(Math.min(length, to + room), from + room)];
}

/** The time of a past position, in Unix seconds: the last that is known of the rows at it. 0 if none has begun. */
function momentOf(rows, position) {
  let time = 0;
  for (const row of rows) if (row.from <= position) time = Math.max(time, row.end ?? row.start);
  return time;
}

const statusName = (row, states) => (row.status === "waiting" || row.status === "queued" ? states[row.status] : row.status);

function Row({ row, at, window, axis, until, isClosed, isChosen, isLater, choose, toggle, showEntry }) {
  const states = useStates();
  const took = row.isUntimed ? null : until - row.start;
  const onTwist = (event) => {
    event.stopPropagation();
    toggle(row);
  };
  const onEntry = (event) => {
    event.stopPropagation();
    showEntry(row.from);
  };
  const name = visible(row.name);
  return html`<div class=${`tl-row k-${row.kind} ${isBad(row) ? "bad" : ""} ${isLater ? "later" : ""}`} role="row" id=${idOf(at)} aria-rowindex=${at + 2} aria-level=${row.level + 1} aria-expanded=${row.hasChildren ? !isClosed : undefined} aria-selected=${isChosen}
    style=${{ top: `${at * ROW}px` }} onClick=${() => choose(row.key)} onDblClick=${() => showEntry(row.from)}>
    <span role="gridcell" class="tl-name" style=${{ paddingLeft: `${0.4 + row.level * 0.95}rem` }}>
      ${row.hasChildren ? html`<button type="button" class="tl-twist" tabindex="-1" aria-label=${isClosed ? "Unfold" : "Fold"} onClick=${onTwist}>${isClosed ? "▸" : "▾"}</button>` : html`<i class="tl-twist"></i>`}
      <i class="tl-dot" aria-hidden="true"></i><span class="hidden">${KINDS[row.kind]} </span><b title=${name}>${name}</b>
      ${row.note ? html`<small title=${visible(row.note)}>${visible(row.note)}</small>` : null}
      ${isBad(row) || ((row.status === "waiting" || row.status === "queued") && row.kind !== "wait") ? html`<small class="tl-status">${statusName(row, states)}</small>` : null}
      <button type="button" class="tl-entry" tabindex="-1" title=${`Show entry #${row.from} in the log`} onClick=${onEntry}>#${row.from}</button>
    </span>
    <span role="gridcell" class="tl-took">${row.end === null ? html`<em>${duration(took)}</em>` : duration(took)}</span>
    <span role="gridcell" class="tl-cost">${row.cost === null ? "" : money({ total: row.cost })}</span>
    <span role="gridcell" class="tl-lane"><${Bar} row=${row} window=${window} axis=${axis} until=${until} /></span>
  </div>`;
}

function Details({ row, position, session, showEntry, setPosition, onClose }) {
  const { usage, turn } = row;
  const states = useStates();
  const facts = [
    ["status", statusName(row, states)],
    ["began", dateTime(row.start)],
    ["took", row.isUntimed ? null : row.end === null ? (position === null ? "still runs" : `still ran at #${position}`) : duration(row.end - row.start)],
    ["cost", row.cost === null ? null : money({ total: row.cost })],
    ["input", usage ? tokens(usage.input) : null],
    ["cached", usage?.cache_read ? tokens(usage.cache_read) : null],
    ["output", usage ? tokens(usage.output) : null],
    ["turns", row.kind === "loop" ? count(row.count) : null],
  ].filter(([, value]) => value !== null && value !== undefined);
  const context = turn ? sessionLink(session, "context", turn.message ? turn.message - 1 : turn.startedPosition, turn.turnId ? { turn: turn.turnId } : {}) : null;
  return html`<aside class="tl-details" aria-label="The selected row">
    <header><b>${KINDS[row.kind]}</b> <code title=${visible(row.name)}>${visible(row.name)}</code>${row.note ? html`<small>${visible(row.note)}</small>` : null}
      <span class="spring"></span><button type="button" class="quiet" aria-label="Close the details" onClick=${onClose}>✕</button></header>
    <dl>${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <div class="tl-links">
      <button type="button" onClick=${() => showEntry(row.from)}>Entry #${row.from}</button>
      ${row.to !== null && row.to !== row.from ? html`<button type="button" onClick=${() => showEntry(row.to)}>to #${row.to}</button>` : null}
      <button type="button" onClick=${() => setPosition(row.from)}>Go back to #${row.from}</button>
      ${context ? html`<a href=${context}>What the model saw</a>` : null}
      ${row.child ? html`<a href=${sessionLink(row.child, "timeline")}>Open the sub-agent’s session</a>` : null}
    </div>
  </aside>`;
}
