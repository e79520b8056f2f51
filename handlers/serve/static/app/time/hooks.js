// What the views of time share.
import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { TimelineStore } from "./timeline_store.js";

const REFRESH_MS = 350;
const RETRY_MS = 2500;
const FINAL = new Set([400, 401, 403, 404]); // asking again cannot help

/** The timeline of a session; null until its newest turns are loaded. Follows the session. */
export function useTimeline(session, position) {
  const [, draw] = useReducer((number) => number + 1, 0);
  const store = useRef(null);
  const timer = useRef(null);
  useEffect(() => {
    if (session === null) return undefined;
    store.current = new TimelineStore(session, draw);
    store.current.refresh();
    return () => {
      clearTimeout(timer.current);
      timer.current = null;
      store.current.close();
      store.current = null;
    };
  }, [session]);
  useEffect(() => {
    const of = store.current;
    if (of === null || (of.fault && FINAL.has(of.fault.status))) return;
    if (of.position >= position && !of.fault) return;
    timer.current ??= setTimeout(() => {
      timer.current = null;
      store.current?.refresh();
    }, of.fault ? RETRY_MS : REFRESH_MS);
  });
  const found = store.current;
  return found?.session === session && (found.first !== null || found.fault) ? found : null;
}

/**
 * An answer of the server for changing arguments: `{answer, fault, isLoading}`. While the next one loads, the old one
 * is kept. `get` gets a signal that aborts it; null as `key` asks nothing.
 */
export function useAnswer(key, get, delay = 0) {
  const [found, setFound] = useState({ key: null, answer: null, fault: null });
  useEffect(() => {
    if (key === null) return undefined;
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const answer = await get(stop.signal);
        if (!stop.signal.aborted) setFound({ key, answer, fault: null });
      } catch (fault) {
        if (!stop.signal.aborted) setFound((old) => ({ key, answer: old.answer, fault }));
      }
    }, delay);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [key]);
  return { answer: key === null ? null : found.answer, fault: found.key === key ? found.fault : null, isLoading: key !== null && found.key !== key };
}
