// The sessions that match a query, kept up to date while the tab is visible.
import { useRef, useState } from "preact/hooks";
import { listSessions } from "./api.js";
import { usePolled } from "./polled.js";

export const ALL_SESSIONS = { search: "", state: "", agent: "", sort: "activity" };

const PAGE = 100; // sessions requested at first, and with each further page
const MOST = 500; // most sessions in one answer

const SETTLING = 10; // seconds after its newest entry in which the work of a session may still fail or be given up

/** Whether the state of a session may change without a new entry, which the server would report. */
const isSettling = ({ state, hasWorker, updated }) =>
  state === "retrying" || (state === "queued" && hasWorker) || (state === "failed" && Date.now() / 1000 - updated < SETTLING);

/**
 * Return an object with:
 * - rows: the loaded sessions; null until the first answer
 * - isCurrent: whether the rows match this query; false while those of the previous query are shown
 * - all: number of sessions that match
 * - states, agents: number of sessions by state and by agent, if only that filter is changed; `states` is null until the
 *   server has read all sessions
 * - progress: `{sessions, read}` until the server has read all sessions; then null
 * - error: the last error
 * - more: function that loads the next page
 * - refresh: function that requests the list again
 */
export function useSessionList(query, changes, isHeld) {
  const [found, setFound] = useState({ key: null, rows: null, all: 0, cursor: null, states: null, agents: {}, progress: null });
  const [error, setError] = useState(null);
  const wanted = useRef(PAGE); // rows to load
  const key = JSON.stringify(query);
  const last = useRef(key);
  if (last.current !== key) {
    last.current = key;
    wanted.current = PAGE;
  }

  const load = async (isOver) => {
    const rows = new Map(); // by id: a session that moves between two requests comes twice
    try {
      let cursor = null;
      let answer;
      do {
        answer = await listSessions({ ...query, cursor, limit: Math.min(MOST, wanted.current - rows.size) });
        if (isOver()) return "stop";
        for (const row of answer.sessions) rows.set(row.id, row);
        cursor = answer.cursor;
      } while (cursor !== null && rows.size < wanted.current);
      const { count: all, states, agents, isComplete, progress } = answer;
      setFound({ key, rows: [...rows.values()], all, cursor, states: isComplete ? states : null, agents, progress: isComplete ? null : progress });
      setError(null);
      if (!isComplete) return "soon"; // the server reads the logs of many sessions in several requests
    } catch (problem) {
      if (isOver()) return "stop";
      setError(problem);
      return problem.status === 401 || problem.status === 403 ? "stop" : undefined; // asking again cannot help, and counts as another wrong token
    }
    return [...rows.values()].some(isSettling) ? "poll" : undefined;
  };
  const refresh = usePolled(load, changes, key, isHeld);

  const more = () => {
    if (found.cursor === null || found.key !== key || wanted.current > found.rows.length) return;
    wanted.current = found.rows.length + PAGE;
    refresh();
  };
  const { rows, all, states, agents, progress } = found;
  return { rows, isCurrent: found.key === key, all, states, agents, progress, error, more, refresh };
}
