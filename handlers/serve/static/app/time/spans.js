// Turns a timeline, as the server answers it, into the rows of a waterfall. Pure.
//
// A row is `{key, parent, kind, level, name, note, status, start, end, from, to, cost, usage, turn, hasChildren}`. Times are
// Unix seconds; `end` is null while it runs. `from` and `to` are positions. A row that `isUntimed` has a place, but no length.

export const KINDS = {
  loop: "loop",
  turn: "turn",
  model: "model call",
  tool: "tool",
  wait: "waits for a person",
  session: "sub-agent",
  compaction: "compaction",
};

const BAD = new Set(["failed", "aborted", "rejected", "denied", "timedOut", "error", "unknown"]);

const isOpenWait = (wait) => wait !== undefined && wait.until === null;

/** Whether a tool call waits for a person. */
export const isWaiting = (tool) => !tool.isLater && tool.ended === null && isOpenWait(tool.waits?.findLast((wait) => !wait.isLater));

const waitsFor = (tools) => (tools.every((tool) => tool.waits.at(-1).decision !== null) ? "queued" : "waiting");

/** The status of a turn; "waiting" while one of its calls waits for a person, "queued" while a worker has to apply decisions. */
export const statusOf = (turn) => {
  const waiting = turn.tools.filter(isWaiting);
  return turn.status === "running" && waiting.length ? waitsFor(waiting) : turn.status;
};

export const isBad = (row) => BAD.has(row.status);

export const turnKey = (turn) => `turn ${turn.index}`;

/** Return the rows of all loops and turns, in the order of their begin, each below the row that it belongs to. */
export function allRows({ loops, turns, compactions }) {
  const known = new Map(loops.map((loop) => [loop.loopId, loop]));
  const turnsOf = Map.groupBy(turns, (turn) => turn.loopId);
  const rows = [];
  const done = new Set();
  const rest = [...compactions].sort((one, other) => one.startedPosition - other.startedPosition);
  const addCompactions = (before) => {
    while (rest.length && rest[0].startedPosition < before) rows.push(ofCompaction(rest.shift()));
  };
  for (const turn of turns) {
    addCompactions(turn.startedPosition);
    if (turn.loopId !== null && !done.has(turn.loopId)) {
      done.add(turn.loopId);
      const own = turnsOf.get(turn.loopId);
      rows.push(ofLoop(known.get(turn.loopId), turn.loopId, own));
      // The turns of one loop stay together, also if a parallel loop runs between them.
      own.forEach((one) => rows.push(...ofTurn(one, 1)));
    } else if (turn.loopId === null) rows.push(...ofTurn(turn, 0));
  }
  addCompactions(Infinity);
  for (const loop of loops) if (!done.has(loop.loopId)) rows.push(ofLoop(loop, loop.loopId, []));
  return rows;
}

function ofLoop(loop, loopId, turns) {
  const counted = (loop ?? turns[0]).isLater ? turns : turns.filter((turn) => !turn.isLater);
  const last = counted.at(-1);
  const costs = counted.map((turn) => dollars(turn.usage)).filter((cost) => cost !== null);
  return {
    key: `loop ${loopId}`,
    parent: null,
    kind: "loop",
    level: 0,
    name: loop?.agent ?? "loop",
    note: loopId,
    status: last && ["waiting", "queued"].includes(statusOf(last)) ? statusOf(last) : (loop?.status ?? "running"),
    start: loop?.started ?? turns[0].started,
    end: loop ? loop.ended : (last?.ended ?? null),
    from: loop?.startedPosition ?? turns[0].startedPosition,
    to: loop?.endedPosition ?? last?.lastPosition ?? null,
    cost: costs.length ? costs.reduce((sum, cost) => sum + cost, 0) : null,
    usage: null,
    turn: null,
    count: counted.length,
    hasChildren: turns.length > 0,
  };
}

function ofCompaction(one) {
  const saved = one.tokensBefore && one.tokensAfter ? `${one.tokensBefore} → ${one.tokensAfter} tokens` : "";
  return { ...bare(`compaction ${one.startedPosition}`, null, "compaction", 0), name: "compaction", note: saved, status: one.status, start: one.started, end: one.ended, from: one.startedPosition, to: one.endedPosition };
}

const bare = (key, parent, kind, level) => ({ key, parent, kind, level, note: "", status: null, cost: null, usage: null, turn: null, to: null, hasChildren: false });

function ofTurn(turn, level) {
  const key = turnKey(turn);
  const parent = turn.loopId === null ? null : `loop ${turn.loopId}`;
  const rows = [
    {
      ...bare(key, parent, "turn", level),
      name: `turn ${turn.turnIndex ?? turn.index}`,
      note: [turn.model, turn.isRetry ? "retry" : null].filter(Boolean).join(" · "),
      status: statusOf(turn),
      start: turn.started,
      end: turn.ended,
      from: turn.startedPosition,
      to: turn.endedPosition ?? turn.lastPosition,
      cost: dollars(turn.usage),
      usage: turn.usage,
      turn,
      hasChildren: turn.calls.length + turn.tools.length > 0,
    },
  ];
  turn.calls.forEach((call, index) => {
    rows.push({
      ...bare(`${key} call ${index}`, key, "model", level + 1),
      name: turn.model ?? "model",
      note: index > 0 ? `call ${index + 1}` : "",
      status: call.message === null && call.ended !== null ? "lost" : (call.stopReason ?? "running"),
      start: call.started ?? call.ended ?? turn.started,
      end: call.ended,
      from: call.position,
      to: call.message,
      turn,
      isUntimed: call.started === null, // nobody measured it, as in imported history
    });
  });
  for (const [index, tool] of turn.tools.entries()) {
    const of = `${key} tool ${index}`;
    const waits = tool.waits ?? [];
    const begin = waits[0]?.since ?? tool.started;
    const isUntimed = begin === null || begin === undefined;
    if (isUntimed && tool.result === null) continue; // it has not begun
    if (isUntimed) {
      // Imported history does not say when its tools ran.
      const at = turn.ended ?? turn.started;
      rows.push({ ...bare(of, key, "tool", level + 1), name: tool.name, status: tool.isError ? "failed" : "completed", start: at, end: at, from: tool.result, to: tool.result, turn, isUntimed });
      continue;
    }
    rows.push({
      ...bare(of, key, "tool", level + 1),
      name: tool.name,
      note: tool.attempts > 1 ? `attempt ${tool.attempts}` : "",
      status: tool.outcome ?? (tool.isError ? "failed" : tool.isError === false ? "completed" : isWaiting(tool) ? waitsFor([tool]) : "running"),
      start: tool.started ?? begin,
      end: tool.ended,
      from: tool.startedPosition ?? waits[0]?.position ?? turn.startedPosition,
      to: tool.result ?? tool.endedPosition,
      turn,
      hasChildren: waits.length > 0 || Boolean(tool.childSession),
    });
    waits.forEach((wait, nth) =>
      rows.push({
        ...bare(`${of} wait ${nth}`, of, "wait", level + 2),
        name: wait.why === "unknown" ? "outcome unknown: asks a person" : "waits for approval",
        note: wait.by ? `by ${wait.by}` : "",
        status: wait.decision === "approve" ? "approved" : wait.decision === "deny" ? "denied" : wait.until === null ? "waiting" : "ended",
        start: wait.since,
        end: wait.until,
        from: wait.position,
        to: wait.command,
        turn,
      }),
    );
    if (tool.childSession) {
      rows.push({ ...bare(`${of} session`, of, "session", level + 2), name: tool.childAgent ?? "sub-agent", note: tool.childSession, status: null, start: tool.started ?? begin, end: tool.ended, from: tool.startedPosition ?? turn.startedPosition, to: tool.result, turn, child: tool.childSession });
    }
  }
  return rows;
}

/** Return the cost in US dollars, or null if it is unknown. */
export function dollars(usage) {
  const total = usage?.cost?.total;
  return total === undefined || total === null ? null : Number(total);
}

/** Leave out the rows below closed rows. */
export function openRows(rows, closed) {
  const hidden = new Set();
  return rows.filter((row) => {
    const isHidden = row.parent !== null && (closed.has(row.parent) || hidden.has(row.parent));
    if (isHidden) hidden.add(row.key);
    return !isHidden;
  });
}

/** The intervals in which something happened. `now` ends what still runs. */
export const busy = (rows, now) => rows.map((row) => [row.start, Math.max(row.start, row.end ?? now)]);

/** Return the deepest row that contains a position; null if none does. Rows are in order, so the last one counts. */
export function rowAt(rows, position) {
  let found = null;
  for (const row of rows) {
    if (row.from <= position && (row.to === null || position <= row.to) && (found === null || row.level >= found.level || row.from > found.from)) found = row;
  }
  return found;
}
