// The rows of the lanes, made from the loaded entries: which entries are shown, and which are folded into a turn. Pure.
import { foldsOf } from "./folds.js";

const days = new Intl.DateTimeFormat(undefined, { dateStyle: "full" });

/** When a message was written, in seconds: imported ones have their own time. */
export function timeOf(entry) {
  const own = entry.message?.timestamp;
  return entry.isImported && Number.isFinite(own) ? own / 1000 : entry.time;
}

const dayOf = (entry) => Math.floor((timeOf(entry) - new Date(timeOf(entry) * 1000).getTimezoneOffset() * 60) / 86_400);

function dayName(entry) {
  try {
    return days.format(new Date(timeOf(entry) * 1000));
  } catch {
    return null; // no such day
  }
}

/** Whether a message is what a framework stores in the session: people seldom read it. */
export const isStoredState = (message) => message?.role === "extension" && typeof message.kind === "string" && message.kind.startsWith("store.");

/**
 * Return `{rows, folds}`: the rows of each loaded page, and the folds by position.
 *
 * `choice` has `lane` ("both", "llm" or "extension"), `isAll` (nothing is folded or left out) and `open` (keys of the folds
 * whose events are shown, and positions of stored state that is shown). At a `past` position, the row of a turn says only
 * what was known there.
 */
export function rowsOf(pages, floor, choice, past = null) {
  const numbers = pages.numbers();
  const folds = choice.isAll ? new Map() : foldsOf(numbers.flatMap((page) => pages.entries(page)), past);
  const rows = new Map();
  let last = null; // the newest entry above, if nothing between is missing
  for (const page of numbers) {
    const list = [];
    if (page > 0 && !rows.has(page - 1)) last = null;
    for (const entry of pages.entries(page)) {
      const { position, lane } = entry;
      if (position <= floor) continue;
      const day = last === null ? (position === floor + 1 ? dayName(entry) : null) : dayOf(last) === dayOf(entry) ? null : dayName(entry);
      if (choice.lane !== "both" && lane !== choice.lane) continue;
      if (!choice.isAll && isStoredState(entry.message) && !choice.open.has(position)) continue;
      const fold = folds.get(position);
      const isOpen = fold === undefined || choice.open.has(fold.key);
      if (!isOpen && fold.at !== position) continue;
      last = entry;
      list.push({
        position,
        entry,
        day,
        fold: fold?.at === position ? fold : null,
        digest: fold?.at === position ? fold.digest : "",
        isOpen,
        kind: fold && !isOpen ? "fold" : lane === "llm" ? "llm" : "extension",
      });
    }
    rows.set(page, list);
  }
  return { rows, folds };
}
