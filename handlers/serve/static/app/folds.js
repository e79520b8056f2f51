// Groups the lifecycle events of each turn, so that the page can show them as one row. Pure.

const OF_TURN = new Set([
  "agent.turn.started",
  "agent.turn.ended",
  "agent.message.started",
  "agent.message.ended",
  "agent.tool.started",
  "agent.tool.updated",
  "agent.tool.ended",
  "agent.usage.settled",
]);
const OF_NEXT_TURN = "agent.request.defined"; // names no turn: what the requests from the next turn on contain

const MOST_TOOLS = 50; // tools named in one row

const turnKey = ({ loopId, turnIndex }) => `${loopId}#${turnIndex}`;
const isTurn = (turn) => typeof turn?.loopId === "string" && Number.isInteger(turn.turnIndex);

class Fold {
  constructor(loop, entry) {
    this.loop = loop;
    this.at = entry.position; // where its row is
    this.turn = null; // index of the turn; null before the turn started
    this.events = 0;
    this.calls = new Set(); // ids of the calls that started
    this.tools = []; // their names, in their order
    this.failed = 0; // tools that failed
    this.waiting = new Set(); // ids of calls that wait for a person
    this.decided = new Map(); // id of a waiting call → position of the command that approved or denied it
    this.started = null; // seconds
    this.ended = null;
    this.stopReason = null;
    this.message = null; // position of the assistant's message
    this.cost = null;
    this.loopStarted = false;
    this.loopEnded = null; // the reason
  }

  get key() {
    return `${this.loop}#${this.turn ?? "start"}`;
  }

  /** A text that changes when the row has to be drawn again. */
  get digest() {
    return [this.key, this.at, this.events, this.ended, this.loopEnded, this.waiting.size, this.decided.size].join(" ");
  }

  /** Note a call that begins to wait. The event is no lifecycle event: it keeps a row of its own. */
  wait(data) {
    this.waiting.add(data.toolCallId);
    this.decided.delete(data.toolCallId);
  }

  /** Note the first approval or denial of a waiting call, which a worker has yet to apply. */
  decide(call, position) {
    if (this.waiting.has(call) && !this.decided.has(call)) this.decided.set(call, position);
  }

  /** Note that a worker has not applied a command: the call waits for a person again. */
  refuse(position) {
    for (const [call, command] of this.decided) if (command === position) this.decided.delete(call);
  }

  add(entry) {
    const { kind, data } = entry.message;
    this.events += 1;
    this.waiting.delete(data?.toolCallId);
    switch (kind) {
      case "agent.started":
        this.loopStarted = true;
        break;
      case "agent.ended":
        this.loopEnded = String(data.stopReason ?? "ended");
        break;
      case "agent.turn.started":
        this.started = entry.time;
        break;
      case "agent.turn.ended":
        this.ended = entry.time;
        this.stopReason = typeof data.stopReason === "string" ? data.stopReason : null;
        this.cost = data.usage?.cost ?? null;
        if (Number.isInteger(data.message)) this.message = data.message;
        break;
      case "agent.message.ended":
        if (Number.isInteger(data.position)) this.message ??= data.position;
        break;
      case "agent.tool.started":
        if (this.calls.has(data.toolCallId) || this.tools.length === MOST_TOOLS) break; // another attempt is no other call
        this.calls.add(data.toolCallId);
        this.tools.push(String(data.toolName));
        break;
      case "agent.tool.ended":
        if (data.isError === true) this.failed += 1;
        break;
      default:
    }
  }
}

/**
 * Return the folds by position: every lifecycle event of a turn maps to the fold of its turn, whose row is at the
 * fold's first event. The start of a loop belongs to its first turn, and its end to its last one. Events that do not
 * fit their kind belong to none.
 *
 * A fold that began by the position `until` says only what was known there; null means the newest position.
 */
export function foldsOf(entries, until = null) {
  const folds = new Map();
  const isKnown = (fold, entry) => until === null || entry.position <= until || fold.at > until;
  let defined = null; // the definition of the next turn's request
  const turns = new Map(); // by key
  const loops = new Map(); // the newest fold of each loop
  for (const entry of entries) {
    const message = entry.message;
    if (message?.role !== "extension" || typeof message.kind !== "string") continue;
    const { kind, data } = message;
    let fold = null;
    if (kind === OF_NEXT_TURN) {
      defined = entry;
      continue;
    }
    if (kind === "agent.tool.waiting" && isTurn(data?.turnId)) {
      fold = turns.get(turnKey(data.turnId));
      if (fold && isKnown(fold, entry)) fold.wait(data);
      continue;
    }
    if ((kind === "control.approve" || kind === "control.deny") && isTurn(data?.turnId)) {
      const asked = turns.get(turnKey(data.turnId));
      if (asked && isKnown(asked, entry)) asked.decide(data.toolCallId, entry.position);
      continue;
    }
    if (kind === "agent.control.answered" && data?.outcome !== "applied") {
      for (const one of loops.values()) if (isKnown(one, entry)) one.refuse(data?.control);
      continue;
    }
    if (kind === "agent.started" && typeof data?.loopId === "string") {
      fold = new Fold(data.loopId, entry);
      loops.set(fold.loop, fold);
    } else if (kind === "agent.ended" && typeof data?.loopId === "string") {
      fold = loops.get(data.loopId) ?? null;
    } else if (OF_TURN.has(kind) && isTurn(data?.turnId)) {
      const { loopId, turnIndex } = data.turnId;
      const key = turnKey(data.turnId);
      const first = kind === "agent.turn.started" ? (defined ?? entry) : entry;
      fold = turns.get(key) ?? null;
      if (fold === null) {
        const newest = loops.get(loopId);
        fold = newest && newest.turn === null ? newest : new Fold(loopId, first);
        fold.turn = turnIndex;
        turns.set(key, fold);
        loops.set(loopId, fold);
      }
      if (first !== entry) {
        if (isKnown(fold, first)) fold.add(first);
        folds.set(first.position, fold);
        defined = null;
      }
    }
    if (fold === null) continue;
    if (isKnown(fold, entry)) fold.add(entry);
    folds.set(entry.position, fold);
  }
  return folds;
}
