import type { Entry, LiveDelta } from "./api.js";
import type { Lost, Opened } from "./stream.js";

interface Placed {
  /** id of the session */
  session: string;
  /** continue after this item with it, as `after` */
  cursor: string;
}

/** A stored message. */
export interface EntryItem extends Placed {
  type: "entry";
  entry: Entry;
}

/** A piece of a message that a model is writing. */
export interface DeltaItem extends Placed {
  type: "delta";
  delta: LiveDelta;
}

/** Entries after the cursor were trimmed or are missing. The next entry is that at position `firstKept`. */
export interface GapItem extends Placed {
  type: "gap";
  after: string;
  firstKept: number;
}

/** The log lost its end, up to position `found`: drop what you hold after it. New entries follow. */
export interface RolledBackItem extends Placed {
  type: "rolledback";
  seen: number;
  found: number;
}

/**
 * A notice of the session.
 *
 * - `caughtup`: all that was stored has been yielded
 * - `fellbehind`: the client was slow, and is sent stored entries again. Nothing is lost
 * - `closed`, `reopened`: the session takes no more messages, or takes them again
 */
export interface NoticeItem extends Placed {
  type: "caughtup" | "fellbehind" | "closed" | "reopened";
}

/** The bus cannot send more. The stream connects again; `follow` throws if `status` is below 500. */
export interface FailedItem extends Placed {
  type: "failed";
  /** the status and the name of the error that a request would get */
  status: number;
  error: string;
  message: string;
}

/** What a followed session yields. */
export type Item =
  | EntryItem
  | DeltaItem
  | GapItem
  | RolledBackItem
  | NoticeItem
  | FailedItem
  | Opened
  | Lost;

/**
 * What the list of sessions yields.
 *
 * - `ready`: request the list now; each later change follows
 * - `changed`: these sessions have new entries up to this position, or work
 * - `missed`: not all changed sessions could be named. Request the list again
 */
export type ChangeItem =
  | { type: "ready" | "missed" }
  | { type: "changed"; sessions: { session: string; position: number }[] }
  | Opened
  | Lost;
