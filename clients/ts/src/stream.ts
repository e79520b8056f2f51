import { ApiError, errorOf } from "./errors.js";
import { type Frame, SseParser } from "./sse.js";

/** Bounds of an event stream. Times are in milliseconds. */
export interface StreamBounds {
  /** pause before the first reconnect, until the server names another; 1,000 by default. It doubles at each attempt */
  retry?: number;
  /** longest pause before a reconnect; 30,000 by default */
  maxRetry?: number;
  /** number of failed attempts in a row before the error is thrown; unlimited by default */
  attempts?: number;
  /** a connection without a byte for this time is dropped; 45,000 by default, three heartbeats of the server */
  silence?: number;
  /** most characters of one event; 33,554,432 by default. A larger one throws an `ApiError` `frame_too_large` */
  frame?: number;
}

/** The connection is open. */
export interface Opened {
  type: "open";
}

/** The connection was lost. The stream connects again after the delay, and resumes after the last item. */
export interface Lost {
  type: "lost";
  /** what ended it; null if the server ended the stream */
  error: unknown;
  /** milliseconds */
  delay: number;
}

/** events after which the server ends the stream. They are no success: the next pause is longer */
const LAST = new Set(["failed", "bye"]);

/** Opens one connection. The id is that of the last frame, "" before the first. */
export type Connect = (id: string, signal: AbortSignal) => Promise<Response>;

/**
 * Yield the frames of an event stream for as long as the caller iterates, over as many connections as it takes.
 *
 * Aborting the signal ends the iteration without an error.
 *
 * @throws ApiError for a status that a repeat does not change, and after too many failed attempts
 */
export async function* frames(
  connect: Connect,
  id: string,
  bounds: StreamBounds,
  signal: AbortSignal | undefined,
): AsyncGenerator<Frame | Opened | Lost, void, undefined> {
  const { maxRetry = 30_000, attempts = Infinity, silence = 45_000, frame: limit = 1 << 25 } = bounds;
  let retry = bounds.retry ?? 1_000;
  let failed = 0;
  while (!signal?.aborted) {
    const connection = new AbortController();
    const drop = () => connection.abort();
    signal?.addEventListener("abort", drop);
    /** Wait for bytes. The time that the caller takes for a frame does not count. */
    const heard = <T>(bytes: Promise<T>): Promise<T> => {
      let settle = () => {};
      return new Promise<T>((resolve, reject) => {
        const end = () => reject(connection.signal.reason);
        const silent = () => connection.abort(new Error(`the connection was silent for ${silence} ms`));
        const timer = setTimeout(silent, silence);
        settle = () => {
          clearTimeout(timer);
          connection.signal.removeEventListener("abort", end);
        };
        // A `fetch` or a token of the caller's may ignore the signal.
        connection.signal.addEventListener("abort", end);
        bytes.then(resolve, reject);
      }).finally(settle);
    };
    let error: unknown = null;
    try {
      const response = await heard(connect(id, connection.signal));
      if (response.status === 204) return;
      if (!response.ok) throw await heard(errorOf(response));
      if (!response.body || !response.headers.get("content-type")?.startsWith("text/event-stream")) {
        throw new ApiError(0, "not_an_event_stream", "the address does not answer with server-sent events: check it");
      }
      yield { type: "open" };
      const parser = new SseParser(id, limit);
      const decoder = new TextDecoder();
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await heard(reader.read());
        if (done || signal?.aborted) break;
        for (const frame of parser.push(decoder.decode(value, { stream: true }))) {
          id = frame.id;
          if (!LAST.has(frame.event)) failed = 0;
          yield frame;
          if (signal?.aborted) return;
        }
        id = parser.id;
        retry = parser.retry ?? retry;
      }
    } catch (fault) {
      error = fault instanceof RangeError ? new ApiError(0, "frame_too_large", fault.message) : fault;
    } finally {
      signal?.removeEventListener("abort", drop);
      connection.abort();
    }
    if (signal?.aborted) return;
    if (error instanceof ApiError && !error.isTemporary) throw error;
    if (failed >= attempts) throw error ?? new Error(`the server ended the stream ${failed + 1} times without an event`);
    // Half of the pause is random, so that clients that were cut together do not return together.
    const pause = Math.min(maxRetry, retry * 2 ** failed) * (0.5 + Math.random() / 2);
    const asked = error instanceof ApiError ? (error.retryAfter ?? 0) * 1_000 : 0;
    const delay = Math.min(maxRetry, Math.max(pause, asked));
    failed += 1;
    yield { type: "lost", error, delay };
    await sleep(delay, signal);
  }
}

function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const over = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", over);
      resolve();
    };
    const timer = setTimeout(over, milliseconds);
    signal?.addEventListener("abort", over);
  });
}
