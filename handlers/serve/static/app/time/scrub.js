// The scrub bar: takes the whole page to a position of the session, and back to its newest entries.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { count, dateTime, money, time, tokens } from "../format.js";
import { useShortcut } from "../keys.js";
import { may } from "../rights.js";
import { sessionLink } from "../route.js";
import { timeOf } from "../rows.js";
import { ForkHere } from "./fork.js";
import { doingAt, turnOf, usageAt } from "./moment.js";
import { marks, turnBeside } from "./travel.js";

const SETTLE_MS = 120; // browsers refuse more than some changes of the URL a second

const DOING = { idle: "the agent was idle", model: "the agent called the model", tools: "the agent ran tools", waiting: "the agent waited for a person" };

export function Scrub({ session, feed, timeline, access, view, past, setPast }) {
  const last = feed?.position ?? 0;
  const [dragged, setDragged] = useState(null);
  const timer = useRef(null);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => setDragged(null), [past, view]);
  const turns = timeline?.turns ?? [];
  const at = dragged ?? past ?? last;
  const to = (position) => {
    const next = Math.min(Math.max(position, 1), last);
    setDragged(next);
    clearTimeout(timer.current);
    const place = location.hash;
    timer.current = setTimeout(() => location.hash === place && setPast(next), SETTLE_MS); // a link that was followed meanwhile wins
  };
  const live = () => {
    clearTimeout(timer.current);
    setDragged(null);
    setPast(null);
  };
  useShortcut("[", "Session", "Back to the turn before", () => last > 0 && to(turnBeside(turns, at, -1, last)));
  useShortcut("]", "Session", "On to the next turn", () => last > 0 && to(turnBeside(turns, at, 1, last)));
  useShortcut("g n", "Session", "Back to now", live);
  if (last === 0) return null;
  const onKeyDown = (event) => {
    const step = { PageUp: 1, PageDown: -1 }[event.key];
    if (event.key === "Escape" && past !== null) live();
    else if (step) to(turnBeside(turns, at, step, last));
    else return;
    event.preventDefault();
  };
  const turn = turnOf(turns, at);
  const name = turn ? `turn ${turn.turnIndex ?? turn.index}` : "before the first turn";
  const button = (label, sign, position, isOff) =>
    html`<button type="button" aria-label=${label} title=${label} disabled=${isOff} onClick=${() => to(position)}>${sign}</button>`;
  return html`<section class=${`tm-bar ${past === null ? "" : "past"}`} aria-label="Time travel">
    <div class="tm-line">
      ${button("Previous turn", "«", turnBeside(turns, at, -1, last), at <= 1)}
      ${button("Previous entry", "‹", at - 1, at <= 1)}
      <div class="tm-track">
        <div class="tm-marks" aria-hidden="true">${marks(turns, last).map((mark) => html`<i key=${mark.position} class=${mark.isBad ? "bad" : ""} style=${{ left: `${(100 * (mark.position - 1)) / Math.max(last - 1, 1)}%` }}></i>`)}</div>
        <input type="range" min="1" max=${last} value=${at} aria-label="Position" aria-valuetext=${`position ${count(at)} of ${count(last)}, ${name}`} onInput=${(event) => to(Number(event.currentTarget.value))} onKeyDown=${onKeyDown} />
      </div>
      ${button("Next entry", "›", at + 1, at >= last)}
      ${button("Next turn", "»", turnBeside(turns, at, 1, last), at >= last)}
      <output class="tm-at"><b>#${count(at)}</b> / ${count(last)}</output>
      <button type="button" class="tm-live" aria-pressed=${past === null && dragged === null} onClick=${live}>Live</button>
    </div>
    ${past === null && dragged === null ? null : html`<${Then} session=${session} feed=${feed} timeline=${timeline} access=${access} at=${at} last=${last} name=${name} view=${view} />`}
  </section>`;
}

/** What was so at the position. */
function Then({ session, feed, timeline, access, at, last, name, view }) {
  const entry = feed.pages.at(at);
  const { doing, tools } = timeline ? doingAt(timeline.turns, at) : { doing: "idle", tools: [] };
  const isKnown = timeline !== null && (timeline.first === 0 || (timeline.turns[0]?.startedPosition ?? 0) <= at);
  const usage = isKnown ? usageAt(timeline, at) : null;
  return html`<div class="tm-then">
    <p role="status"><b>The past.</b> At #${count(at)}${entry ? html`, <time title=${dateTime(timeOf(entry))}>${time(timeOf(entry))}</time>` : null}: ${isKnown ? html`${name}, ${DOING[doing]}${tools.length ? html` (<code>${tools.slice(0, 3).join(", ")}</code>)` : null}.` : "earlier turns are not loaded."}</p>
    ${usage ? html`<p class="tm-sum">${money(usage.cost)} · ${tokens(usage.input + usage.cache_read + usage.cache_write)} in · ${tokens(usage.output)} out</p>` : null}
    <span class="spring"></span>
    ${view === "context" ? null : html`<a href=${sessionLink(session, "context", at, { past: "1" })}>What the model saw</a>`}
    <a href=${sessionLink(session, "compare", null, { a: at, b: last })}>Compare with now</a>
    ${may(access, "fork") ? html`<${ForkHere} session=${session} position=${at} />` : null}
  </div>`;
}
