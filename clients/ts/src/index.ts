/**
 * Follow lanebus sessions, send messages and commands, and show messages while models write them.
 *
 * Start with `connect`.
 */
export type { Answer, Arguments, Entry, LiveDelta, Message, Method, Options, Path, Schemas } from "./api.js";
export { type ConnectOptions, type FollowOptions, type Lanebus, connect } from "./client.js";
export { ApiError } from "./errors.js";
export type {
  ChangeItem,
  DeltaItem,
  EntryItem,
  FailedItem,
  GapItem,
  Item,
  NoticeItem,
  RolledBackItem,
} from "./items.js";
export type { paths } from "./schema.js";
export type { Lost, Opened, StreamBounds } from "./stream.js";
export {
  type PartialBlock,
  type PartialMessage,
  type ShownMessage,
  type StoredMessage,
  Transcript,
  type WaitingCall,
} from "./transcript.js";
