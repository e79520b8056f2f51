// Requests something again and again while the tab is visible.
import { useEffect, useRef } from "preact/hooks";

export const POLL_MS = 2500;
const CALM_MS = 10_000; // pause while the server reports changes: it does not report workers that come and go
const SPACE_MS = 1000; // least pause after a change
const SHARE = 10; // the pause is this many times as long as the request took

/**
 * Call `load` at once, after each change, and now and then; one call at a time. It returns whether to stop, or "soon" if
 * what it loaded may change without a report of the server. `changes`
 * is of `useChanges`; `key` begins anew. Nothing is called while `isHeld`.
 */
export function usePolled(load, changes, key, isHeld = false) {
  const wake = useRef(() => {});
  const now = useRef({ load, changes, isHeld });
  now.current = { load, changes, isHeld };
  useEffect(() => {
    let isOver = false;
    let isLoading = false;
    let isStale = false;
    let earliest = 0;
    let timer = null;
    const run = async () => {
      clearTimeout(timer);
      timer = null;
      if (isOver || document.hidden || now.current.isHeld) return;
      if (isLoading) {
        isStale = true;
        return;
      }
      isLoading = true;
      isStale = false;
      const started = performance.now();
      const done = await now.current.load(() => isOver);
      isLoading = false;
      if (isOver || done === true) return;
      earliest = performance.now() + Math.max(SPACE_MS, (performance.now() - started) * SHARE);
      if (isStale) wake.current();
      else timer = setTimeout(run, now.current.changes.isLive && done !== "soon" ? CALM_MS : POLL_MS);
    };
    wake.current = (wait = Math.max(0, earliest - performance.now())) => {
      if (isLoading) isStale = true;
      else {
        clearTimeout(timer);
        timer = setTimeout(run, wait);
      }
    };
    document.addEventListener("visibilitychange", run);
    run();
    return () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", run);
    };
  }, [key]);
  const isFirst = useRef(true);
  useEffect(() => {
    if (!isFirst.current) wake.current();
    isFirst.current = false;
  }, [changes.version, isHeld]);
  return () => wake.current(0);
}
