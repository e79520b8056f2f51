// The place in the page, kept in the URL, so that every view and entry has a link:
// #/s/ID, #/s/ID/timeline?at=123, #/inbox. `at` is a position of the session.
import { useEffect, useState } from "preact/hooks";

const SESSION = /^#\/s\/([A-Za-z0-9_-]{1,64})(?:\/([^?]*))?(?:\?(.*))?$/;
const OF_SESSION = /^#\/s\/([^/?]*)/; // also where the id is none of a session
const PLACE = /^#\/([a-z]+)$/;

/**
 * Return `{place, session, view, at, query, invalid}` of a hash: `place` is "session", "inbox" or another page, "" for none. It
 * is "no-session" with the text in place of an id, `invalid`, that no session can have.
 */
export function parseRoute(hash) {
  const found = SESSION.exec(hash);
  if (found) {
    const query = Object.fromEntries(new URLSearchParams(found[3] ?? ""));
    const at = /^\d{1,15}$/.test(query.at ?? "") ? Number(query.at) : null;
    return { place: "session", session: found[1], view: found[2] ?? "log", at, query, invalid: null };
  }
  const invalid = OF_SESSION.exec(hash)?.[1] ?? null;
  const place = invalid === null ? (PLACE.exec(hash)?.[1] ?? "") : "no-session";
  return { place, session: null, view: null, at: null, query: {}, invalid };
}

/** Return the hash of a view of a session. `query` has more parameters; a value of null leaves one out. */
export function sessionLink(session, view = "log", at = null, query = {}) {
  const pairs = Object.entries({ ...query, at }).filter(([, value]) => value !== null && value !== undefined);
  const asked = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return `#/s/${session}${view === "log" ? "" : `/${view}`}${asked ? `?${asked}` : ""}`;
}

/** Go to a link. With `isReplacing`, the browser's Back button skips the present place. */
export function go(link, isReplacing = false) {
  if (link === location.hash) dispatchEvent(new HashChangeEvent("hashchange")); // the user asks for the same place again
  else if (isReplacing) location.replace(link);
  else location.hash = link;
}

export const currentRoute = () => parseRoute(location.hash);

/** The current place. A new object each time that the user goes to a place, also to the same one again. */
export function useRoute() {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    const onHash = () => setRoute(currentRoute());
    addEventListener("hashchange", onHash);
    onHash(); // it may have changed since the first drawing
    return () => removeEventListener("hashchange", onHash);
  }, []);
  return route;
}
