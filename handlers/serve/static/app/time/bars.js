// The drawn parts of a waterfall: bars, the axis with its labels, and marks of idle time.
import { html } from "../html.js";
import { duration, onAxis } from "./duration.js";
import { KINDS, isBad } from "./spans.js";
import { ticks } from "./scale.js";

const percent = (place, [from, to]) => (100 * (place - from)) / Math.max(to - from, 1e-9);

/** The bar of one row, up to the time `until`. It has a text for screen readers. */
export function Bar({ row, window, axis, until }) {
  const left = percent(axis.place(row.start), window);
  const right = percent(axis.place(until), window);
  const label = row.isUntimed ? "without times" : `begins at ${onAxis(axis.place(row.start), 0.01)}, takes ${duration(until - row.start)}`;
  const isOut = right < 0 || left > 100 || row.isUntimed;
  return html`<span class="hidden">${KINDS[row.kind]} ${label}</span>${isOut
    ? html`<i class=${`tl-out ${right < 0 ? "before" : "after"}`} aria-hidden="true">${row.isUntimed ? "" : right < 0 ? "‹" : "›"}</i>`
    : html`<i class=${`tl-bar k-${row.kind} ${isBad(row) ? "bad" : ""} ${row.end === null ? "open" : ""}`} title=${label} aria-hidden="true"
        style=${{ left: `${Math.max(left, -1)}%`, width: `${Math.min(right, 101) - Math.max(left, -1)}%` }}></i>`}`;
}

/** Round places with their labels: seconds since the start, without most of the idle time. */
export function Axis({ window: [from, to], width }) {
  const places = ticks(from, to, Math.max(2, Math.min(8, Math.floor(width / 180))));
  const step = places.length > 1 ? places[1] - places[0] : to - from;
  return html`<span class="tl-axis" aria-hidden="true">${places.map(
    (place) => html`<i key=${place} style=${{ left: `${percent(place, [from, to])}%` }}>${onAxis(place, step)}</i>`,
  )}</span>`;
}

const MOST_IDLE = 60;

/** Stripes where idle time is drawn shorter than it was. */
export function Idle({ window, axis }) {
  const seen = axis.idle.filter((one) => one.to >= window[0] && one.from <= window[1]);
  if (seen.length > MOST_IDLE) return null;
  return seen.map((one) => {
    const [left, right] = [percent(one.from, window), percent(one.to, window)];
    return html`<i key=${one.from} class="tl-idle" title=${`${duration(one.seconds)} idle`} style=${{ left: `${left}%`, width: `${right - left}%` }}></i>`;
  });
}
