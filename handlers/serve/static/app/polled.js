// Requests something again and again while the tab is visible.
import { useEffect, useRef } from "preact/hooks";
import { onNetwork } from "./network.js";

export const POLL_MS = 2500;
const CALM_MS = 10_000; // pause while the server reports changes: it does not report workers that come and go
const SPACE_MS = 1000; // least pause after a change
const SHARE = 10; // the pause is this many times as long as the request took

/**
 * Call `load` at once, after each change, and now and then; one call at a time. It may return "stop"; "soon" if its answer is
 * not complete yet: then it is called again after the least pause; or "poll" if what it loaded may change without a report of
 * the server. `changes` is of `useChanges`; `key` begins anew. Nothing is called while `isHeld`.
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
      const next = await now.current.load(() => isOver);
      isLoading = false;
      if (isOver || next === "stop") return;
      const took = performance.now() - started;
      earliest = performance.now() + (next === "soon" ? SPACE_MS : Math.max(SPACE_MS, took * SHARE));
      if (isStale || next === "soon") wake.current();
      else timer = setTimeout(run, now.current.changes.isLive && next !== "poll" ? CALM_MS : POLL_MS);
    };
    wake.current = (wait = Math.max(0, earliest - performance.now())) => {
      if (isLoading) isStale = true;
      else {
        clearTimeout(timer);
        timer = setTimeout(run, wait);
      }
    };
    document.addEventListener("visibilitychange", run);
    const stopListening = onNetwork(run);
    run();
    return () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", run);
      stopListening();
    };
  }, [key]);
  const isFirst = useRef(true);
  useEffect(() => {
    if (!isFirst.current) wake.current();
    isFirst.current = false;
  }, [changes.version, isHeld]);
  return () => wake.current(0);
}
