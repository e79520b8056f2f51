// Hears which sessions have new entries, so that the list and the inbox need not be requested all the time.
import { useEffect, useState } from "preact/hooks";
import { EventStream } from "./event_stream.js";
import { onNetwork } from "./network.js";

const RETRY_MS = 2000;
const HIDDEN_MS = 20_000; // after this time, a hidden tab closes its stream: a browser allows six streams to one server

/** Return `{version, isLive}`: a number that grows after changes, and whether the server reports every change. */
export function useChanges() {
  const [state, setState] = useState({ version: 0, isLive: false });
  useEffect(() => {
    let source = null;
    let timer = null;
    let isRefused = false;
    const close = () => {
      clearTimeout(timer);
      source?.close();
      source = null;
    };
    const open = () => {
      close();
      if (isRefused) return;
      source = new EventStream("/api/changes", {
        open: () => {},
        retry: () => {},
        // After `ready`, `changed` and `missed` the list is requested again; other frames are of a newer server.
        event: (name) => ["ready", "changed", "missed"].includes(name) && setState(({ version }) => ({ version: version + 1, isLive: true })),
        end: (error) => {
          source = null;
          setState(({ version }) => ({ version, isLive: false }));
          isRefused = error !== null && error.status >= 400 && error.status < 500 && error.status !== 429;
          if (!isRefused) timer = setTimeout(open, RETRY_MS);
        },
      });
    };
    const onVisible = () => {
      if (document.hidden) {
        clearTimeout(timer);
        timer = setTimeout(close, HIDDEN_MS);
      } else if (source === null) open();
      else clearTimeout(timer);
    };
    const stopListening = onNetwork(() => {
      if (source === null && document.hidden) return; // it is opened again when the tab is shown
      setState(({ version }) => ({ version, isLive: false }));
      open();
    });
    document.addEventListener("visibilitychange", onVisible);
    open();
    return () => {
      close();
      document.removeEventListener("visibilitychange", onVisible);
      stopListening();
    };
  }, []);
  return state;
}
