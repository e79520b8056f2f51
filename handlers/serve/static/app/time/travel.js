// Time travel: `?past=1&at=N` in the URL shows every panel at position N. Pure.

/**
 * The position that the page is taken back to; null while it follows the newest entries. What the model saw is always of
 * the position that a link names.
 */
export const pastOf = (route) => (route.query.past === "1" || route.view === "context" ? route.at : null);

/** Return a query with the past set, or left out for null. */
export const withPast = (query, position) => ({ ...query, past: position === null ? null : "1" });

const MOST_MARKS = 120;

/** Return at most some places of turns on the track of a scrub bar, as `{position, isBad}`; near ones are one. */
export function marks(turns, last) {
  const found = [];
  const step = last / MOST_MARKS;
  for (const turn of turns) {
    const isBad = turn.status === "failed" || turn.status === "aborted";
    const before = found.at(-1);
    if (before && turn.startedPosition - before.position < step) before.isBad ||= isBad;
    else found.push({ position: turn.startedPosition, isBad });
  }
  return found;
}

/** Return the start of the next turn (`step` 1) or of the previous one (-1); the end or the begin if there is none. */
export function turnBeside(turns, position, step, last) {
  const starts = turns.map((turn) => turn.startedPosition);
  const found = step > 0 ? starts.find((one) => one > position) : starts.findLast((one) => one < position);
  return found ?? (step > 0 ? last : Math.min(1, last));
}
