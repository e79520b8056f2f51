import assert from "node:assert/strict";
import { test } from "node:test";
import { SseParser } from "../dist/sse.js";

const parse = (...pieces: string[]) => {
  const parser = new SseParser("", 1_000);
  return { frames: pieces.flatMap((piece) => parser.push(piece)), parser };
};

test("an event has its name, the lines of its data and its id", () => {
  const { frames, parser } = parse("retry: 2000\nevent: entry\ndata: one\ndata:two\nid: 3-0\n\n: hb\n\ndata: x\n\n");
  assert.deepEqual(frames, [
    { event: "entry", data: "one\ntwo", id: "3-0" },
    { event: "message", data: "x", id: "3-0" },
  ]);
  assert.equal(parser.retry, 2_000);
});

test("every way to cut the text, and every line end, gives the same events", () => {
  const text = "event: a\ndata: 1\nid: 1-0\n\n: hb\n\nevent: b\ndata\ndata:  2 \nid: 2-0\n\n";
  const wanted = parse(text).frames;
  assert.equal(wanted.length, 2);
  for (const end of ["\n", "\r\n", "\r"]) {
    const sent = text.replaceAll("\n", end);
    for (let first = 0; first <= sent.length; first += 1) {
      for (let second = first; second <= sent.length; second += 1) {
        const pieces = [sent.slice(0, first), sent.slice(first, second), sent.slice(second)];
        assert.deepEqual(parse(...pieces).frames, wanted, JSON.stringify(pieces));
      }
    }
  }
});

test("an event without an end changes nothing, so it is sent again", () => {
  const { frames, parser } = parse("data: 1\nid: 1-0\n\ndata: 2\nid: 2-0\n");
  assert.equal(frames.length, 1);
  assert.equal(parser.id, "1-0");
});

test("an id without data moves the reader, and yields nothing", () => {
  const { frames, parser } = parse("id: 7-0\n\n");
  assert.deepEqual(frames, []);
  assert.equal(parser.id, "7-0");
});

test("an event over the limit is refused, in one line or in many", () => {
  assert.throws(() => parse("data: " + "x".repeat(1_001)), RangeError);
  assert.throws(() => parse("data: xxxxxxxxxx\n".repeat(101)), RangeError);
  assert.equal(parse("data: xxxxxxxxxx\n\n".repeat(200)).frames.length, 200);
});
