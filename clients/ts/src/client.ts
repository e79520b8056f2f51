import type { Answer, Arguments, Method, Path } from "./api.js";
import { ApiError, errorOf } from "./errors.js";
import type { ChangeItem, Item } from "./items.js";
import { type StreamBounds, frames } from "./stream.js";

/** How to reach a server. */
export interface ConnectOptions extends StreamBounds {
  /** address of the server, with its base path, such as `https://example.org/lanebus` */
  url: string;
  /** token, or a function that returns one for each request and each connection */
  token: string | (() => string | Promise<string>);
  /** a `fetch` of your own */
  fetch?: typeof fetch;
  /** longest time in milliseconds that a request may take; 60,000 by default. It does not count for streams */
  timeout?: number;
}

/** Which items of a session to follow. */
export interface FollowOptions {
  /** the cursor of the last item that you have, or a position; from the first entry by default */
  after?: string | number;
  /** lanes to follow: `llm`, `extension`, or both with a comma. All that the token allows by default */
  lanes?: string;
  /** kinds of messages, with commas, such as `user,agent.*`; all by default */
  kinds?: string;
  /** whether to follow the text of models while they write; true by default */
  live?: boolean;
  /** ends the iteration, without an error */
  signal?: AbortSignal;
}

/** A server. */
export interface Lanebus {
  /**
   * Send a request: `request("GET", "/api/sessions/{session}", { path: { session: "s1" } })`.
   *
   * @returns the JSON of the answer, or the `Response` if it is no JSON
   * @throws ApiError if the server refuses, `TypeError` if it cannot be reached, `TimeoutError` if it takes too long
   */
  request<M extends Method, P extends Path<M>>(method: M, path: P, ...options: Arguments<M, P>): Promise<Answer<M, P>>;

  /**
   * Yield the items of a session, stored and new, without end. A lost connection is resumed after the last item.
   *
   * @throws ApiError if the server refuses
   */
  follow(session: string, options?: FollowOptions): AsyncGenerator<Item, void, undefined>;

  /**
   * Yield the items of up to 50 sessions over one connection. `cursor` holds the cursors of all sessions.
   *
   * @throws ApiError if the server refuses
   */
  followMany(
    sessions: readonly string[],
    options?: Omit<FollowOptions, "after"> & { after?: string | Readonly<Record<string, string | number>> },
  ): AsyncGenerator<Item, void, undefined>;

  /**
   * Yield which sessions have new entries.
   *
   * @throws ApiError if the server refuses
   */
  changes(options?: { signal?: AbortSignal }): AsyncGenerator<ChangeItem, void, undefined>;
}

const NAMES = new Set<string>(
  ["entry", "delta", "gap", "rolledback", "caughtup", "fellbehind", "closed", "reopened", "failed"],
);
const CHANGES = new Set<string>(["ready", "changed", "missed"]);

/** Return a client of a server. Nothing is sent before the first request. */
export function connect(options: ConnectOptions): Lanebus {
  const { token, timeout = 60_000 } = options;
  const base = options.url.replace(/[/#?]+$/, "");

  async function send(path: string, init: RequestInit, headers: Record<string, string>): Promise<Response> {
    const secret = typeof token === "string" ? token : await token();
    try {
      return await (options.fetch ?? fetch)(base + path, {
        ...init,
        headers: { ...headers, authorization: `Bearer ${secret}` },
        cache: "no-store",
        credentials: "omit",
        redirect: "error", // the token is for this server
      });
    } catch (error) {
      const { origin, href } = globalThis.location ?? {}; // Node has none
      if (!(error instanceof TypeError) || !href || new URL(base, href).origin === origin) throw error;
      // A browser does not tell a page why it could not fetch from another origin.
      throw new TypeError(`${error.message}: no answer, or the server lacks --allow-origin ${origin}`, { cause: error });
    }
  }

  async function* stream(
    path: string,
    query: object,
    id: string,
    names: ReadonlySet<string>,
    signal: AbortSignal | undefined,
    more: (frame: { event: string; data: string }) => object,
  ): AsyncGenerator<never, void, undefined> {
    const opened = frames(
      (last, ending) =>
        send(path + search(query), { signal: ending }, {
          accept: "text/event-stream",
          ...(last && { "last-event-id": last }),
        }),
      id,
      options,
      signal,
    );
    for await (const frame of opened) {
      if ("type" in frame) yield frame as never;
      // A newer server may have others.
      else if (names.has(frame.event)) yield { type: frame.event, cursor: frame.id, ...more(frame) } as never;
    }
  }

  return {
    async request(method, path, ...[given]) {
      const { path: parts, query, body, signal, headers } = (given ?? {}) as RequestParts;
      const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(parts?.[name])));
      const isJson = body !== undefined && !isRaw(body);
      const limit = AbortSignal.timeout(timeout);
      const response = await send(
        filled + search(query ?? {}),
        {
          method,
          body: isJson ? JSON.stringify(body) : (body as BodyInit | undefined) ?? null,
          signal: signal ? AbortSignal.any([signal, limit]) : limit,
        },
        { accept: "application/json", ...(isJson && { "content-type": "application/json" }), ...headers },
      );
      if (!response.ok) throw await errorOf(response);
      return response.headers.get("content-type")?.startsWith("application/json") ? response.json() : response;
    },

    async *follow(session, { after = "", signal, ...query } = {}) {
      const path = `/api/sessions/${encodeURIComponent(session)}/events`;
      const items: AsyncIterable<Item> = stream(
        path,
        { lanes: "all", ...query },
        String(after),
        NAMES,
        signal,
        ({ event, data }) => itemOf(event, JSON.parse(data), session),
      );
      for await (const item of items) {
        yield item;
        // An erased session stays erased.
        if (item.type === "failed" && item.status < 500) throw new ApiError(item.status, item.error, item.message);
      }
    },

    followMany(sessions, { after = "", signal, ...query } = {}) {
      const cursors = typeof after === "string" ? after : Object.entries(after).map((each) => each.join(":")).join(",");
      const asked = { lanes: "all", ...query, sessions: sessions.join(",") };
      return stream("/api/events", asked, cursors, NAMES, signal, ({ event, data }) => {
        const { session, ...rest } = JSON.parse(data);
        return itemOf(event, rest, session);
      });
    },

    changes({ signal } = {}) {
      return stream("/api/changes", {}, "", CHANGES, signal, ({ data }) => JSON.parse(data));
    },
  };
}

interface RequestParts {
  path?: Record<string, unknown>;
  query?: object;
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

function itemOf(event: string, data: object, session: string): object {
  return event === "entry" || event === "delta" ? { session, [event]: data } : { ...data, session };
}

function search(query: object): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  return given.length ? `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}` : "";
}

function isRaw(body: unknown): boolean {
  return body instanceof Blob || body instanceof ArrayBuffer || ArrayBuffer.isView(body) || body instanceof ReadableStream;
}
