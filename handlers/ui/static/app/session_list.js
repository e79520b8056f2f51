// The sessions that match a query, kept up to date while the tab is visible.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { listSessions } from "./api.js";
import { POLL_MS } from "./hooks.js";

export const ALL_SESSIONS = { search: "", state: "", agent: "", sort: "activity" };

/** Return `{rows, all, agents, fault, refused, more}`. `rows` is null until the first answer. */
export function useSessionList(query) {
  const [found, setFound] = useState(null);
  const [fault, setFault] = useState(null);
  const seen = useRef(new Set());
  useEffect(() => {
    let isOver = false;
    let timer = null;
    const load = async () => {
      clearTimeout(timer);
      if (!document.hidden) {
        try {
          const rows = await listSessions();
          if (isOver) return;
          setFound(rows);
          setFault(null);
        } catch (error) {
          if (isOver) return;
          setFault(error);
          if (error.status === 401) return; // asking again cannot help, and counts as another wrong token
        }
      }
      if (!isOver) timer = setTimeout(load, POLL_MS);
    };
    const onVisible = () => document.hidden || load();
    document.addEventListener("visibilitychange", onVisible);
    load();
    return () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, []);
  const rows = useMemo(() => {
    if (found === null) return null;
    const text = query.search.trim().toLowerCase();
    return found.filter((row) => (row.id.toLowerCase().includes(text)) && (!query.agent || row.agent === query.agent));
  }, [found, query]);
  for (const row of found ?? []) if (row.agent) seen.current.add(row.agent);
  return { rows, heads: found, all: rows?.length ?? 0, agents: [...seen.current].sort(), fault: null, error: fault, more: () => {} };
}
