import type { Entry, LiveDelta, Message, Schemas } from "./api.js";
import type { Item } from "./items.js";

/** A message of the LLM lane that is in the log. */
export interface StoredMessage {
  isPartial: false;
  /** the same for a message while it is written and when it is stored */
  key: string;
  role: "system" | "developer" | "user" | "assistant" | "toolResult";
  /** its text blocks, joined */
  text: string;
  position: number;
  /** seconds since 1970 UTC */
  time: number;
  message: Extract<Message, { role: StoredMessage["role"] }>;
}

/** A block of a message that a model is writing. */
export interface PartialBlock {
  kind: "text" | "thinking" | "toolCall";
  /** the text so far; of a tool call, the JSON of its arguments so far */
  text: string;
  toolName: string | null;
}

/** A message that a model is writing. */
export interface PartialMessage {
  isPartial: true;
  key: string;
  role: "assistant";
  /** its text blocks so far, joined */
  text: string;
  /** by index; an index without text has no block */
  blocks: readonly (PartialBlock | undefined)[];
  turnId: Schemas["TurnId"] | null;
  /** why the model stopped without a message; null while it writes */
  cut: string | null;
}

/** A message to show. */
export type ShownMessage = StoredMessage | PartialMessage;

/** A tool call that waits for a person. */
export type WaitingCall = Schemas["ToolWaiting"] & { position: number };

const ROLES = new Set<string>(["system", "developer", "user", "assistant", "toolResult"]);

/**
 * The messages of one session, made of its items. Text is never repeated: not by a resume, not by a snapshot.
 *
 * Each change makes new objects of what changed, so that a view can compare.
 */
export class Transcript {
  /** whether all that was stored at the start is here */
  isCaughtUp = false;
  /** whether the session takes no more messages */
  isClosed = false;
  /** whether the connection is open */
  isConnected = false;
  /** cursor of the newest item, to follow after it; "" before the first */
  cursor = "";
  #most: number;
  #place: readonly [number, number] = [0, 0];
  #stored = new Map<string, StoredMessage>();
  #partial = new Map<string, PartialMessage>();
  #waiting = new Map<string, WaitingCall>();
  #messages: readonly ShownMessage[] | null = [];

  /** @param most number of stored messages to keep; the oldest are dropped. 10,000 by default */
  constructor(most = 10_000) {
    this.#most = most;
  }

  /** The stored messages, and after them those that models are writing. The same array until the next change. */
  get messages(): readonly ShownMessage[] {
    return (this.#messages ??= [...this.#stored.values(), ...this.#partial.values()]);
  }

  /** The tool calls that wait for a person. */
  get waiting(): readonly WaitingCall[] {
    return [...this.#waiting.values()];
  }

  /** Add an item. Items come in the order in which `follow` yields them. */
  add(item: Item): void {
    if ("cursor" in item) this.cursor = item.cursor;
    switch (item.type) {
      case "entry":
        return this.#addEntry(item.entry);
      case "delta":
        return this.#addDelta(item.delta);
      case "gap":
        // What ended the messages that were being written may be among the lost entries.
        return this.#forget(Infinity, [Math.max(this.#place[0], item.firstKept - 1), 0]);
      case "rolledback":
        return this.#forget(item.found, [item.found, 0]);
      case "caughtup":
        this.isCaughtUp = true;
        return;
      case "closed":
      case "reopened":
        this.isClosed = item.type === "closed";
        return;
      case "open":
      case "lost":
        this.isConnected = item.type === "open";
        return;
      default:
    }
  }

  #addEntry(entry: Entry): void {
    const { message, position } = entry;
    if (!this.#moves([position, 0])) return;
    if (isShown(message)) {
      const { role } = message;
      const id = role === "assistant" ? message.id : null;
      const key = id && !this.#stored.has(id) ? id : `@${position}`;
      this.#stored.set(key, {
        ...{ isPartial: false, key, role, text: textOf(message), position, time: entry.time, message },
      });
      if (this.#stored.size > this.#most) this.#stored.delete(this.#stored.keys().next().value!);
      if (role === "assistant") {
        if (id) this.#partial.delete(id);
        this.#drop((partial) => partial.cut !== null || isSame(partial.turnId, message.turnId));
      }
      this.#messages = null;
    } else if (message.role === "extension") this.#addEvent(message, position);
  }

  #addEvent({ kind, data }: Schemas["ExtensionEntry"], position: number): void {
    const event = data as Schemas["ToolWaiting"] & { loopId?: string };
    if (kind === "agent.tool.waiting") this.#waiting.set(callKey(event), { ...event, position });
    else if (kind === "agent.tool.started" || kind === "agent.tool.ended") this.#waiting.delete(callKey(event));
    else if (kind === "agent.turn.ended") this.#drop((partial) => isSame(partial.turnId, event.turnId));
    else if (kind === "agent.ended") {
      this.#drop((partial) => partial.turnId?.loopId === event.loopId);
      for (const [key, call] of this.#waiting) if (call.turnId.loopId === event.loopId) this.#waiting.delete(key);
    }
  }

  #addDelta({ position, delta: at, message: piece }: LiveDelta): void {
    // A snapshot may repeat the text before the cursor that a reader resumed at.
    if ((!this.#moves([position, at]) && !piece.isSnapshot) || this.#stored.has(piece.messageId)) return;
    const { messageId: key, block: index = 0, delta = "", toolName, turnId = null, kind } = piece;
    const before = this.#partial.get(key);
    const blocks = [...(before?.blocks ?? [])];
    let cut = before?.cut ?? null;
    if (kind === "cut") cut = delta || "cut";
    else if (index >= 0 && index < 10_000) {
      const block = blocks[index];
      const text = (piece.isSnapshot ? "" : (block?.text ?? "")) + delta;
      blocks[index] = { kind, text, toolName: toolName ?? block?.toolName ?? null };
    }
    const text = blocks.reduce((all, block) => (block?.kind === "text" ? all + block.text : all), "");
    this.#partial.set(key, { isPartial: true, key, role: "assistant", text, blocks, turnId, cut });
    this.#messages = null;
  }

  #forget(last: number, place: readonly [number, number]): void {
    for (const [key, { position }] of this.#stored) if (position > last) this.#stored.delete(key);
    for (const [key, { position }] of this.#waiting) if (position > last) this.#waiting.delete(key);
    this.#partial.clear();
    this.#place = place;
    this.#messages = null;
  }

  #drop(isOver: (partial: PartialMessage) => boolean): void {
    for (const [key, partial] of this.#partial) {
      if (isOver(partial)) {
        this.#partial.delete(key);
        this.#messages = null;
      }
    }
  }

  /** Move to a place. Return false if it is not after the present one. */
  #moves(place: readonly [number, number]): boolean {
    const [position, delta] = this.#place;
    const isAfter = place[0] > position || (place[0] === position && place[1] > delta);
    if (isAfter) this.#place = place;
    return isAfter;
  }
}

function isShown(message: Message): message is StoredMessage["message"] {
  return ROLES.has(message.role);
}

function textOf(message: StoredMessage["message"]): string {
  const blocks: readonly { type: string; text?: unknown }[] = message.content ?? [];
  return blocks.map((block) => (block.type === "text" ? block.text : "")).join("");
}

function isSame(turn: Schemas["TurnId"] | null, other: Schemas["TurnId"] | null | undefined): boolean {
  return turn !== null && turn.loopId === other?.loopId && turn.turnIndex === other.turnIndex;
}

function callKey({ turnId, toolCallId }: Schemas["ToolWaiting"]): string {
  return `${turnId?.loopId}#${turnId?.turnIndex} ${toolCallId}`;
}
