import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, type Lanebus } from "@lanebus/client";
import { upload } from "@lanebus/client/upload";

const FILE = new File(["0123456789"], "notes.txt", { type: "text/plain;charset=utf-8" });

interface Sent {
  method: string;
  offset?: number;
  bytes?: string;
  body?: unknown;
}

/** A server with one upload, which answers some requests with errors. */
function server(errors: unknown[], pieceBytes = 4): { lanebus: Lanebus; sent: Sent[]; lose: () => void } {
  const sent: Sent[] = [];
  let held = "";
  const request = async (method: string, _: string, { body, query }: { body: unknown; query?: { offset: number } }) => {
    const bytes = body instanceof Blob ? await body.text() : undefined;
    sent.push(bytes === undefined ? { method, body } : { method, offset: query!.offset, bytes });
    const error = errors.shift();
    if (error) throw error;
    if (bytes !== undefined) {
      if (query!.offset !== held.length) throw new ApiError(409, "wrong_offset", "no", null);
      held += bytes;
    }
    return { offset: held.length, pieceBytes, isComplete: held.length === FILE.size, mimeType: "text/plain" };
  };
  return { lanebus: { request } as unknown as Lanebus, sent, lose: () => (held = "") };
}

const offsets = (sent: Sent[]) => sent.map(({ method, offset }) => offset ?? method);

test("a file is sent in pieces, with its name, type and SHA-256", async () => {
  const { lanebus, sent } = server([]);
  const seen: number[] = [];
  const block = await upload(lanebus, "s", FILE, { onProgress: (bytes) => seen.push(bytes) });
  const sha256 = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882";
  assert.deepEqual(sent[0]!.body, { sha256, sizeBytes: 10, mimeType: "text/plain", filename: "notes.txt" });
  assert.deepEqual(block, { type: "document", media: { kind: "sha256", sha256 } });
  assert.deepEqual(seen, [0, 4, 8, 10]);
  assert.deepEqual(sent.slice(1).map(({ bytes }) => bytes), ["0123", "4567", "89"]);
});

test("a lost answer, a busy server and a lost upload continue where the server is", async () => {
  const busy = new ApiError(503, "upload_busy", "no", null);
  const gone = new ApiError(404, "upload_missing", "no", null);
  const { lanebus, sent, lose } = server([null, null, new TypeError("lost"), busy, null, gone]);
  await upload(lanebus, "s", FILE, { retry: 1, onProgress: (bytes) => bytes === 4 && sent.length === 5 && lose() });
  assert.deepEqual(offsets(sent), ["POST", 0, 4, "POST", "POST", 4, "POST", 0, 4, 8]);
});

test("errors that a repeat does not change, and too many failures, are thrown", async () => {
  for (const [status, error] of [[413, "media_too_large"], [429, "too_many_uploads"], [403, "access_refused"]] as const) {
    const { lanebus, sent } = server([new ApiError(status, error, "no", null)]);
    await assert.rejects(upload(lanebus, "s", FILE, { retry: 1 }), { error });
    assert.equal(sent.length, 1);
  }
  const { lanebus, sent } = server(Array.from({ length: 9 }, () => new TypeError("lost")));
  await assert.rejects(upload(lanebus, "s", FILE, { retry: 1, attempts: 2 }), { message: "lost" });
  assert.equal(sent.length, 3);
});

test("an aborted upload ends, also in a pause, and a later call continues it", async () => {
  const ending = new AbortController();
  const { lanebus, sent } = server([null, null, new TypeError("lost")]);
  const over = upload(lanebus, "s", FILE, { retry: 60_000, signal: ending.signal });
  setTimeout(() => ending.abort(new Error("stop")), 20);
  await assert.rejects(over, { message: "stop" });
  await upload(lanebus, "s", FILE);
  assert.deepEqual(offsets(sent), ["POST", 0, 4, "POST", 4, 8]);
});
