import assert from "node:assert/strict";
import { test } from "node:test";
import { type Entry, type Item, type LiveDelta, Transcript } from "@lanebus/client";

const turnId = { loopId: "s.main.1", turnIndex: 0 };
const place = { time: 1, producer: "p", session: "s" };

const entry = (position: number, message: Entry["message"]): Item => {
  const cursor = `${position}-0`;
  const lane = message.role === "extension" ? "extension" : "llm";
  return { type: "entry", session: "s", cursor, entry: { ...place, position, delta: 0, cursor, lane, message } };
};
const user = (position: number, text: string) => entry(position, { role: "user", content: [{ type: "text", text }] });
const assistant = (position: number, id: string, text: string) =>
  entry(position, { role: "assistant", id, turnId, content: [{ type: "text", text }] } as Entry["message"]);
const event = (position: number, kind: string, data: object) =>
  entry(position, { role: "extension", kind, data } as Entry["message"]);
const delta = (position: number, at: number, more: Partial<LiveDelta["message"]>): Item => {
  const cursor = `${position}-${at}`;
  const message = { role: "delta", kind: "text", messageId: "m1", turnId, ...more } as const;
  return { type: "delta", session: "s", cursor, delta: { ...place, position, delta: at, cursor, lane: "llm", message } };
};
const rolledBack = (found: number): Item => ({ type: "rolledback", session: "s", cursor: `${found}-0`, seen: 9, found });

const after = (...items: Item[]) => {
  const transcript = new Transcript();
  for (const item of items) transcript.add(item);
  return transcript;
};
const shown = (transcript: Transcript) =>
  transcript.messages.map((each) => `${each.role}${each.isPartial ? "…" : ""}: ${each.text}`);

test("pieces become a partial message, which the whole one replaces under the same key", () => {
  const before = after(user(1, "hi"), delta(1, 1, { delta: "Hel" }), delta(1, 2, { delta: "lo" }));
  assert.deepEqual(shown(before), ["user: hi", "assistant…: Hello"]);
  const key = before.messages[1]!.key;
  before.add(assistant(2, "m1", "Hello."));
  assert.deepEqual(shown(before), ["user: hi", "assistant: Hello."]);
  assert.equal(before.messages[1]!.key, key);
});

test("what a resume repeats is not shown twice", () => {
  const items = [user(1, "hi"), delta(1, 1, { delta: "Hel" }), delta(1, 2, { delta: "lo" })];
  const snapshot = delta(1, 2, { delta: "Hello", isSnapshot: true });
  assert.deepEqual(shown(after(...items, ...items, snapshot)), ["user: hi", "assistant…: Hello"]);
  assert.deepEqual(shown(after(...items, snapshot, delta(1, 3, { delta: "!" }))), ["user: hi", "assistant…: Hello!"]);
});

test("a snapshot of a stored message is ignored", () => {
  const late = delta(1, 2, { delta: "Hello", isSnapshot: true });
  assert.deepEqual(shown(after(delta(1, 1, { delta: "H" }), assistant(2, "m1", "Hello."), late)), ["assistant: Hello."]);
});

test("blocks of thinking and tool calls are kept apart from the text", () => {
  const transcript = after(
    delta(0, 1, { kind: "thinking", delta: "Hm" }),
    delta(0, 2, { delta: "Look", block: 1 }),
    delta(0, 3, { kind: "toolCall", delta: '{"a":', block: 2, toolName: "look" }),
    delta(0, 4, { kind: "toolCall", delta: "1}", block: 2 }),
  );
  const [message] = transcript.messages;
  assert.ok(message!.isPartial);
  assert.equal(message!.text, "Look");
  assert.deepEqual(message!.blocks, [
    { kind: "thinking", text: "Hm", toolName: null },
    { kind: "text", text: "Look", toolName: null },
    { kind: "toolCall", text: '{"a":1}', toolName: "look" },
  ]);
});

test("a cut keeps the text until another message, its turn or its loop ends it", () => {
  const cut = [delta(1, 1, { delta: "Hel" }), delta(1, 2, { kind: "cut", delta: "worker lost" })];
  const [message] = after(...cut).messages;
  assert.ok(message!.isPartial && message!.cut === "worker lost" && message!.text === "Hel");
  assert.deepEqual(shown(after(...cut, assistant(2, "m2", "Anew"))), ["assistant: Anew"]);
  assert.deepEqual(shown(after(...cut, event(2, "agent.turn.ended", { turnId }))), []);
  assert.deepEqual(shown(after(...cut, event(2, "agent.ended", { loopId: turnId.loopId }))), []);
});

test("a rollback removes what is after its position, and the new entries take the place", () => {
  const items = [user(1, "one"), user(2, "two"), delta(2, 1, { delta: "x" }), rolledBack(1)];
  assert.deepEqual(shown(after(...items)), ["user: one"]);
  assert.deepEqual(shown(after(...items, user(2, "other"))), ["user: one", "user: other"]);
});

test("a gap goes on with the first entry that is kept", () => {
  const gap: Item = { type: "gap", session: "s", cursor: "6-0", after: "1-0", firstKept: 7 };
  assert.deepEqual(shown(after(user(1, "one"), gap, user(7, "seven"))), ["user: one", "user: seven"]);
});

test("a call waits until it starts, ends, or its loop ends", () => {
  const call = { turnId, toolCallId: "c1", toolName: "pay", why: "approval" };
  const waits = event(3, "agent.tool.waiting", call);
  assert.deepEqual(after(waits).waiting, [{ ...call, position: 3 }]);
  for (const kind of ["agent.tool.started", "agent.tool.ended"]) {
    assert.deepEqual(after(waits, event(4, kind, call)).waiting, []);
  }
  assert.deepEqual(after(waits, event(4, "agent.ended", { loopId: turnId.loopId })).waiting, []);
  assert.deepEqual(after(waits, rolledBack(2)).waiting, []);
});

test("the newest messages are kept", () => {
  const transcript = new Transcript(2);
  for (const position of [1, 2, 3]) transcript.add(user(position, String(position)));
  assert.deepEqual(shown(transcript), ["user: 2", "user: 3"]);
});

test("messages are the same array until a message changes", () => {
  const transcript = after(user(1, "one"));
  const before = transcript.messages;
  transcript.add({ type: "caughtup", session: "s", cursor: "1-0" });
  assert.equal(transcript.messages, before);
  assert.ok(transcript.isCaughtUp && transcript.cursor === "1-0");
  transcript.add(user(2, "two"));
  assert.notEqual(transcript.messages, before);
});
