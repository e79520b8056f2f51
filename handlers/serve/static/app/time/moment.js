// What was so at a position: the turns, the usage and what the agent did, from the timeline. Pure.
import { dollars, isWaiting } from "./spans.js";

const COUNTS = ["input", "output", "cache_read", "cache_write"];

const isBy = (at, position) => at !== null && at !== undefined && at <= position;

/** Position of the first that is known of a tool call: it may wait for a person before it starts. */
function beganAt(tool, turn) {
  const known = [tool.startedPosition, tool.waits?.[0]?.position].filter(Number.isInteger);
  return known.length ? Math.min(...known) : turn.message;
}

/** Return a tool call as it was at a position. */
function toolAt(tool, position) {
  const isLater = (wait) => Number.isInteger(tool.startedPosition) && tool.startedPosition > wait.position;
  const waits = (tool.waits ?? [])
    .filter((wait) => isBy(wait.position, position))
    .map((wait) => (isBy(wait.command ?? (isLater(wait) ? tool.startedPosition : tool.endedPosition), position) ? wait : { ...wait, until: null, decision: null, command: null, by: null }));
  if (isBy(tool.endedPosition ?? tool.result, position)) return { ...tool, waits };
  const notStarted = isBy(tool.startedPosition, position) ? null : { started: null, startedPosition: null };
  return { ...tool, ...notStarted, waits, isError: null, outcome: null, ended: null, endedPosition: null, result: null };
}

/** Return a call of the model as it was at a position. A call whose answer was lost ends with its turn, or with the next call. */
function callAt(call, index, turn, position) {
  const over = call.message ?? turn.calls[index + 1]?.position ?? turn.endedPosition;
  return isBy(over, position) ? call : { ...call, message: null, stopReason: null, ended: null };
}

/** Return a turn as it was at a position; null if it had not begun. */
export function turnAt(turn, position) {
  if (turn.startedPosition > position) return null;
  const isOver = isBy(turn.endedPosition ?? (turn.status === "running" ? null : turn.lastPosition), position);
  const isAnswered = isBy(turn.message, position);
  const tools = turn.tools.filter((tool) => isBy(beganAt(tool, turn), position)).map((tool) => toolAt(tool, position));
  return {
    ...turn,
    status: isOver ? turn.status : "running",
    model: isAnswered || isOver ? turn.model : null, // its answer names it
    message: isAnswered ? turn.message : null,
    usage: isAnswered ? turn.usage : null,
    ended: isOver ? turn.ended : null,
    endedPosition: isOver ? turn.endedPosition : null,
    lastPosition: isOver ? turn.lastPosition : Math.min(turn.lastPosition, position),
    calls: turn.calls.filter((call) => isBy(call.position ?? turn.startedPosition, position)).map((call, index) => callAt(call, index, turn, position)),
    tools,
  };
}

/** Return the parts of a turn that a waterfall shows: those that had begun as they were then, and later ones whole. */
function partsAt(turn, position) {
  const then = turnAt(turn, position);
  if (then === null) return { ...turn, isLater: true };
  const isTimed = (tool) => Number.isFinite(tool.started) || Boolean(tool.waits?.length); // others are imported
  const waitsAt = (tool) => {
    const known = toolAt(tool, position);
    return { ...known, waits: [...known.waits, ...(tool.waits ?? []).slice(known.waits.length).map((wait) => ({ ...wait, isLater: true }))] };
  };
  return {
    ...then,
    calls: [...then.calls, ...turn.calls.slice(then.calls.length)],
    tools: turn.tools.map((tool) => (!isTimed(tool) ? tool : isBy(beganAt(tool, turn), position) ? waitsAt(tool) : { ...tool, isLater: true })),
  };
}

/**
 * Return loops, turns and compactions for a waterfall at a position. What ran then has no end and no later usage; what
 * began later is whole, and `isLater`.
 */
export function timelineAt({ loops, turns, compactions }, position) {
  const runningAt = (one) => (isBy(one.endedPosition, position) ? one : { ...one, status: "running", ended: null, endedPosition: null });
  const at = (one) => (one.startedPosition > position ? { ...one, isLater: true } : runningAt(one));
  return {
    loops: loops.map(at),
    turns: turns.map((turn) => partsAt(turn, position)),
    compactions: compactions.map(at).map((one) => (one.endedPosition === null ? { ...one, tokensAfter: null } : one)),
  };
}

/** Add the usage of turns: `{input, output, cache_read, cache_write, cost, calls, calls_of_unknown_cost}`. */
export function summed(turns) {
  const sum = { input: 0, output: 0, cache_read: 0, cache_write: 0, calls: 0, calls_of_unknown_cost: 0 };
  let total = null;
  for (const { usage } of turns) {
    if (!usage) continue;
    sum.calls += 1;
    for (const name of COUNTS) sum[name] += usage[name] ?? 0;
    const cost = dollars(usage);
    if (cost === null) sum.calls_of_unknown_cost += 1;
    else total = (total ?? 0) + cost;
  }
  return { ...sum, cost: total === null ? null : { total: total.toFixed(10) } };
}

/** Return what the agent did at a position: `{doing, turn, tools}`; `doing` is "idle", "model", "tools" or "waiting". */
export function doingAt(turns, position) {
  for (let index = turns.length - 1; index >= 0; index -= 1) {
    const turn = turnAt(turns[index], position);
    if (turn === null) continue;
    if (turn.status !== "running") break;
    if (turn.message === null) return { doing: "model", turn, tools: [] };
    const open = turn.tools.filter((tool) => tool.ended === null && !tool.outcome && (tool.isError === null || tool.isError === undefined));
    return { doing: open.some(isWaiting) ? "waiting" : open.length ? "tools" : "model", turn, tools: open.map((tool) => tool.name) };
  }
  return { doing: "idle", turn: null, tools: [] };
}

/** Return the turn that a position belongs to; null before the first. */
export function turnOf(turns, position) {
  for (let index = turns.length - 1; index >= 0; index -= 1) if (turns[index].startedPosition <= position) return turns[index];
  return null;
}

/** The usage up to a position: the sum of its turns, or the total without the later ones if earlier turns are not loaded. */
export function usageAt(timeline, position) {
  const turns = timeline.turns.map((turn) => turnAt(turn, position)).filter((turn) => turn !== null);
  if (timeline.first === 0) return summed(turns);
  const [all, loaded, then] = [timeline.usage, summed(timeline.turns), summed(turns)];
  const less = (name) => Math.max(0, all[name] - loaded[name] + then[name]);
  const cost = all.cost && loaded.cost ? { total: Number(all.cost.total) - Number(loaded.cost.total) + Number(then.cost?.total ?? 0) } : null;
  return { ...then, input: less("input"), output: less("output"), cache_read: less("cache_read"), cache_write: less("cache_write"), cost };
}

const MOST_TURNS = 200; // as many as the server answers for the newest turns

/** Return the turns and the usage as they were at a position: `{count, turns, usage}`, as the server answers them. */
export function turnsAt(timeline, position) {
  const turns = timeline.turns.map((turn) => turnAt(turn, position)).filter((turn) => turn !== null);
  return { count: timeline.first + turns.length, turns: turns.slice(-MOST_TURNS), usage: { ...usageAt(timeline, position), countedFrom: timeline.countedFrom } };
}
