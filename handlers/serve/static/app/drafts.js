// Messages that were begun and not sent, one for each session, and reasons of denials, one for each call. They are of this
// tab and of one user.
import { BASE } from "./base.js";

const KEY = `lanebus.drafts${BASE}`;
const MOST = 50; // drafts; the oldest is forgotten first
const MOST_BYTES = 1024 * 1024; // of all drafts; a character takes two. One draft has at most half of them

const empty = (user) => ({ user, drafts: [] });

function read(user) {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY));
    return kept?.user === user && Array.isArray(kept.drafts) ? kept : empty(user);
  } catch {
    return empty(user); // storage is off, or has something else
  }
}

/** Return what `user` began to write to `to`, a session or a call; "" if nothing. */
export const draftOf = (user, to) => read(user).drafts.find(([id]) => id === to)?.[1] ?? "";

/** Keep a text as the draft to `to`, in place of the last one; "" forgets it. A draft that is too large is not kept. */
export function keepDraft(user, to, text) {
  const kept = read(user);
  kept.drafts = kept.drafts.filter(([id]) => id !== to);
  const sizeOf = (value) => 2 * JSON.stringify(value).length;
  if (text && sizeOf(text) <= MOST_BYTES / 2) kept.drafts.push([to, text]);
  while (kept.drafts.length > MOST || sizeOf(kept) > MOST_BYTES) kept.drafts.shift();
  try {
    if (kept.drafts.length) sessionStorage.setItem(KEY, JSON.stringify(kept));
    else sessionStorage.removeItem(KEY);
  } catch {
    // Storage is off or full: the draft lasts as long as the box.
  }
}

/** Forget all drafts: the tab has another token. */
export const forgetDrafts = () => sessionStorage.removeItem(KEY);
