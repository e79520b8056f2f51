// The token of this tab. It arrives in the fragment of the URL, which browsers do not send to servers, and is kept in
// the session storage. Pages of other ports cannot read that storage; a cookie would be sent to them.

import { BASE } from "./base.js";
import { forgetDrafts } from "./drafts.js";

// Servers below other paths of a site have tokens of their own.
const KEY = `lanebus.token${BASE}`;

const listeners = new Set();

/** Take the token out of a URL, such as `…#token=…`, and remember it. The tab may be at another place already. */
export function takeToken(url) {
  const found = /^[^#]*#token=([^&]+)$/.exec(url);
  if (!found) return;
  if (location.href === url) history.replaceState(null, "", location.pathname + location.search);
  try {
    setToken(decodeURIComponent(found[1]));
  } catch {
    // Not a valid escape: the page asks for the token.
  }
}

export const getToken = () => sessionStorage.getItem(KEY);

/** Remember a token, or forget it with null. */
export function setToken(token) {
  if (token !== getToken()) forgetDrafts();
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
  for (const listener of listeners) listener();
}

/** Call `listener` after each change, until the returned function is called. */
export function onToken(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The headers that prove the right to a request. A server behind a proxy may need none. */
export function tokenHeaders() {
  const token = getToken();
  return token ? { Authorization: `Bearer ${token}` } : {};
}
