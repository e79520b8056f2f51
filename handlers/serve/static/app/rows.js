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

/** Return a text that names the call of an event or command; null if the data do not fit. */
function callOf(data) {
  const { loopId, turnIndex } = data?.turnId ?? {};
  const isCall = typeof loopId === "string" && Number.isInteger(turnIndex) && typeof data.toolCallId === "string";
  return isCall ? `${loopId}#${turnIndex} ${data.toolCallId}` : null;
}

/** Return the names of the tools that were answered about, by the position of the answer, and of what a worker made of it. */
function toolsOf(entries) {
  const waiting = new Map(); // name by call
  const found = new Map();
  for (const { position, message } of entries) {
    const { kind, data } = message ?? {};
    const call = callOf(data);
    if (kind === "agent.tool.waiting" && call !== null) waiting.set(call, data.toolName);
    const isAnswer = kind === "control.approve" || kind === "control.deny";
    const tool = isAnswer ? waiting.get(call) : kind === "agent.control.answered" ? found.get(data?.control) : null;
    if (typeof tool === "string") found.set(position, tool);
  }
  return found;
}

/**
 * Return `{rows, folds}`: the rows of each loaded page, and the folds by position.
 *
 * `choice` has `lane` ("both", "llm" or "extension"), `isAll` (nothing is folded or left out) and `open` (keys of the folds
 * whose events are shown, and positions of stored state that is shown). At a `past` position, the row of a turn says only
 * what was known there.
 */
export function rowsOf(pages, floor, choice, past = null) {
  const numbers = pages.numbers();
  const all = numbers.flatMap((page) => pages.entries(page));
  const folds = choice.isAll ? new Map() : foldsOf(all, past);
  const tools = toolsOf(all);
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
        tool: tools.get(position) ?? null,
        kind: fold && !isOpen ? "fold" : lane === "llm" ? "llm" : "extension",
      });
    }
    rows.set(page, list);
  }
  return { rows, folds };
}
