// What the parts of the page share: the feed of one session, views of it, and the rights.
import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { getAccess } from "./api.js";
import { Feed } from "./feed.js";
import { POLL_MS } from "./polled.js";

/** The feed of a session; null while none is open. Draws again when entries arrive. */
export function useFeed(session) {
  const [, draw] = useReducer((number) => number + 1, 0);
  const [feed, setFeed] = useState(null);
  useEffect(() => {
    if (session === null) return undefined;
    const opened = new Feed(session, () => draw());
    setFeed(opened);
    return () => {
      opened.close();
      setFeed(null);
    };
  }, [session]);
  return feed?.session === session ? feed : null;
}

/**
 * A view of a session, requested again `delay` milliseconds after a new entry, even while more entries arrive. `position`
 * is the newest one, or a text of what else the view depends on.
 */
export function useView(session, position, get, delay) {
  const [found, setFound] = useState(null);
  const refresh = useRef(null);
  useEffect(() => {
    if (session === null) return undefined;
    let isOver = false;
    let isRequesting = false;
    let isStale = false;
    let timer = null;
    const load = async () => {
      timer = null;
      isRequesting = true;
      isStale = false;
      try {
        const answer = await get(session);
        if (!isOver) setFound({ session, answer });
        isStale ||= answer.isRead === false; // the server has not read all entries of the session yet
      } catch (error) {
        // The connection indicator shows the error. A refusal does not go away.
        if (!isOver && error.status !== 401 && error.status !== 403) timer = setTimeout(load, POLL_MS);
      }
      isRequesting = false;
      if (isStale) schedule(delay);
    };
    const schedule = (wait) => {
      if (isOver) return;
      if (isRequesting) isStale = true;
      else timer ??= setTimeout(load, wait);
    };
    refresh.current = schedule;
    schedule(0);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [session]);
  useEffect(() => refresh.current?.(delay), [position]);
  return found?.session === session ? found.answer : null;
}

/** The error of the last press, as `[fault, setFault]`. That the server is away becomes `after` once the page `isLive` again. */
export function useFault(isLive, after = null) {
  const [fault, setFault] = useState(null);
  useEffect(() => {
    if (isLive) setFault((last) => (last?.isAway ? after : last));
  }, [isLive]);
  return [fault, setFault];
}

/** What the token allows: null until known; `{refused}` with the reason if the server does not know the token. */
export function useAccess() {
  const [access, setAccess] = useState(null);
  useEffect(() => {
    let isOver = false;
    let timer = null;
    const load = () =>
      getAccess().then(
        (found) => isOver || setAccess(found),
        (error) => {
          if (isOver) return;
          if (error.status === 401) setAccess({ refused: error.message });
          else timer = setTimeout(load, POLL_MS);
        },
      );
    load();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, []);
  return access;
}

