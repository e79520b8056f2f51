import assert from "node:assert/strict";
import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { ApiError, type Item, connect } from "@lanebus/client";

type Answer = (response: ServerResponse, request: IncomingMessage) => void;

const stream: Answer = (response) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.flushHeaders();
};
const caughtUp = (id: string) => `event: caughtup\ndata: {"session":"s"}\nid: ${id}\n\n`;

/** Answer each request with the next answer, and then with the last one again. */
async function serving<T>(answers: Answer[], use: (url: string, requests: IncomingMessage[]) => Promise<T>): Promise<T> {
  const requests: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    requests.push(request);
    answers[Math.min(requests.length, answers.length) - 1]!(response, request);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    return await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

const refuse =
  (status: number, error: string, headers: Record<string, string> = {}): Answer =>
  (response) => {
    response.writeHead(status, { "content-type": "application/problem+json", ...headers });
    response.end(JSON.stringify({ status, error, detail: "no" }));
  };

async function take(items: AsyncIterable<Item>, type: string, count = 1): Promise<Item[]> {
  const found: Item[] = [];
  for await (const item of items) {
    found.push(item);
    if (item.type === type && found.filter((each) => each.type === type).length === count) break;
  }
  return found;
}

const quick = { token: "t", retry: 4, maxRetry: 40 };

for (const [status, error] of [
  [400, "unknown_parameter"],
  [401, "token_unknown"],
  [403, "access_refused"],
  [404, "not_found"],
  [409, "session_erased"],
] as const) {
  test(`${status} is thrown at once`, async () => {
    await serving([refuse(status, error)], async (url, requests) => {
      const wanted = { name: "ApiError", status, error, isTemporary: false };
      await assert.rejects(take(connect({ url, ...quick }).follow("s"), "never"), wanted);
      assert.equal(requests.length, 1);
    });
  });
}

test("a proxy's page is no event stream, and is thrown at once", async () => {
  const page: Answer = (response) => response.writeHead(200, { "content-type": "text/html" }).end("<h1>Log in</h1>");
  await serving([page], async (url) => {
    await assert.rejects(take(connect({ url, ...quick }).follow("s"), "never"), { error: "not_an_event_stream" });
  });
});

test("204 ends the iteration", async () => {
  await serving([(response) => response.writeHead(204).end()], async (url) => {
    assert.deepEqual(await take(connect({ url, ...quick }).follow("s"), "never"), []);
  });
});

test("pauses double up to the longest one, half of each is random, and an event resets them", async () => {
  const well: Answer = (response, request) => {
    stream(response, request);
    response.end(caughtUp("1-0"));
  };
  await serving([...Array<Answer>(6).fill(refuse(503, "server_busy")), well], async (url, requests) => {
    const items = await take(connect({ url, ...quick }).follow("s"), "lost", 8);
    const delays = items.flatMap((item) => (item.type === "lost" ? [item.delay] : []));
    for (const [at, whole] of [4, 8, 16, 32, 40, 40, 4, 4].entries()) {
      assert.ok(delays[at]! >= whole / 2 && delays[at]! <= whole, `${at}: ${delays}`);
    }
    assert.equal(requests.at(-1)!.headers["last-event-id"], "1-0");
  });
});

test("the server's retry and Retry-After are honoured, within the longest pause", async () => {
  const first: Answer = (response, request) => {
    stream(response, request);
    response.end(`retry: 20\n${caughtUp("1-0")}`);
  };
  await serving([first, refuse(429, "too_many_streams", { "retry-after": "9" })], async (url) => {
    const items = await take(connect({ url, ...quick }).follow("s"), "lost", 2);
    const [after, asked] = items.flatMap((item) => (item.type === "lost" ? [item] : []));
    assert.ok(after!.delay >= 10 && after!.delay <= 20, String(after!.delay));
    assert.equal(asked!.delay, 40);
    assert.equal((asked!.error as ApiError).retryAfter, 9);
  });
});

test("after the allowed attempts the last error is thrown", async () => {
  await serving([refuse(503, "server_busy")], async (url, requests) => {
    await assert.rejects(take(connect({ url, ...quick, attempts: 2 }).follow("s"), "never"), { error: "server_busy" });
    assert.equal(requests.length, 3);
  });
});

test("a server that fails after it has answered gets longer and longer pauses", async () => {
  const failed: Answer = (response, request) => {
    stream(response, request);
    response.end('event: failed\ndata: {"session":"s","status":503,"error":"unavailable","message":"no"}\n\nevent: bye\ndata: {}\n\n');
  };
  await serving([failed], async (url) => {
    const items = await take(connect({ url, ...quick }).follow("s"), "lost", 5);
    const last = items.at(-1)!;
    assert.ok(last.type === "lost" && last.delay >= 20, JSON.stringify(last));
    assert.equal(items.filter((item) => item.type === "failed").length, 5);
  });
});

test("a silent connection is dropped; heartbeats keep one", async () => {
  const silent: Answer = (response, request) => {
    stream(response, request);
    response.write(caughtUp("4-0"));
  };
  const beating: Answer = (response, request) => {
    stream(response, request);
    const timer = setInterval(() => response.write(": hb\n\n"), 10);
    setTimeout(() => response.write(caughtUp("5-0")), 1_500);
    response.on("close", () => clearInterval(timer));
  };
  await serving([silent, beating], async (url, requests) => {
    const items = await take(connect({ url, ...quick, silence: 1_000 }).follow("s"), "caughtup", 2);
    assert.deepEqual(items.map((item) => item.type), ["open", "caughtup", "lost", "open", "caughtup"]);
    assert.match(String((items[2] as { error: unknown }).error), /silent for 1000 ms/);
    assert.equal(requests[1]!.headers["last-event-id"], "4-0");
  });
});

test("a token that never comes is given up, and asked for again", async () => {
  let asked = 0;
  const token = () => ((asked += 1) === 1 ? new Promise<string>(() => {}) : "second");
  await serving([(response, request) => {
    stream(response, request);
    response.write(caughtUp("1-0"));
  }], async (url, requests) => {
    await take(connect({ url, ...quick, token, silence: 50 }).follow("s"), "caughtup");
    assert.equal(requests[0]!.headers.authorization, "Bearer second");
  });
});

test("an abort ends the iteration in a read and in a pause, without an error", async () => {
  for (const answer of [stream, refuse(503, "server_busy")]) {
    await serving([answer], async (url) => {
      const stop = new AbortController();
      const lanebus = connect({ url, ...quick, retry: 60_000, maxRetry: 60_000 });
      for await (const item of lanebus.follow("s", { signal: stop.signal })) {
        assert.ok(["open", "lost"].includes(item.type));
        setTimeout(() => stop.abort(), 5);
      }
    });
  }
});

test("leaving the loop closes the connection", async () => {
  let closed = () => {};
  const isClosed = new Promise<void>((resolve) => (closed = resolve));
  const answer: Answer = (response, request) => {
    stream(response, request);
    response.on("close", closed);
    response.write(caughtUp("1-0"));
  };
  await serving([answer], async (url) => {
    await take(connect({ url, ...quick }).follow("s"), "caughtup");
    await isClosed;
  });
});

test("a request fills the path, leaves out what is undefined, and has the token", async () => {
  const echo: Answer = (response, request) =>
    response
      .writeHead(200, { "content-type": "application/json" })
      .end(JSON.stringify({ url: request.url, token: request.headers.authorization }));
  await serving([echo], async (url) => {
    const lanebus = connect({ url: `${url}/base/`, token: async () => "secret" });
    const answer: unknown = await lanebus.request("GET", "/api/sessions/{session}/entries", {
      path: { session: "a/b" },
      query: { after: "1-0", until: undefined },
    });
    assert.deepEqual(answer, { url: "/base/api/sessions/a%2Fb/entries?after=1-0", token: "Bearer secret" });
  });
});

test("a token is never sent to another server by a redirect", async () => {
  await serving([refuse(404, "not_found")], async (other, requests) => {
    await serving([(response) => response.writeHead(302, { location: other }).end()], async (url) => {
      await assert.rejects(connect({ url, token: "t" }).request("GET", "/api/access"), TypeError);
    });
    assert.equal(requests.length, 0);
  });
});

test("a page that gets no answer from another origin is told what may be missing", async () => {
  const failing = { fetch: () => Promise.reject(new TypeError("Failed to fetch")), token: "t" };
  const place = (href: string) =>
    Object.defineProperty(globalThis, "location", { value: new URL(href), configurable: true });
  const ask = (url: string) => connect({ url, ...failing }).request("GET", "/api/access");
  try {
    place("https://app.example.com/chat");
    const wanted = "Failed to fetch: no answer, or the server lacks --allow-origin https://app.example.com";
    await assert.rejects(ask("http://127.0.0.1:8420"), { name: "TypeError", message: wanted });
    for (const own of ["https://app.example.com/lanebus", "", "/lanebus"]) {
      await assert.rejects(ask(own), { name: "TypeError", message: "Failed to fetch" });
    }
  } finally {
    Reflect.deleteProperty(globalThis, "location");
  }
  await assert.rejects(ask("http://127.0.0.1:8420"), { message: "Failed to fetch" });
});

test("a request without an answer ends after its time", async () => {
  await serving([() => {}], async (url) => {
    const lanebus = connect({ url, token: "t", timeout: 30 });
    await assert.rejects(lanebus.request("GET", "/api/access"), { name: "TimeoutError" });
  });
});

test("types name the fields of requests and answers", async () => {
  const lanebus = connect({ url: "http://127.0.0.1:9", token: "t" });
  const never = async () => {
    const { sessions } = await lanebus.request("GET", "/api/sessions");
    sessions.map((each) => each.id satisfies string);
    const path = { session: "s" };
    const sent = await lanebus.request("POST", "/api/sessions/{session}/messages", { path, body: { text: "hi" } });
    sent.positions satisfies number[];
    const turnId = { loopId: "l", turnIndex: 0 };
    const body = { command: "approve", turnId, toolCallId: "c" } as const;
    await lanebus.request("POST", "/api/sessions/{session}/commands", { path, body });
    // @ts-expect-error there is no such path
    await lanebus.request("GET", "/api/nothing");
    // @ts-expect-error the path needs a session
    await lanebus.request("GET", "/api/sessions/{session}");
    // @ts-expect-error a message needs a text
    await lanebus.request("POST", "/api/sessions/{session}/messages", { path, body: {} });
    // @ts-expect-error there is no such parameter
    await lanebus.request("GET", "/api/sessions/{session}/entries", { path, query: { lane: "llm" } });
    for await (const item of lanebus.follow("s")) {
      if (item.type === "entry" && item.entry.message.role === "user") item.entry.message.content satisfies unknown;
      // @ts-expect-error only an entry has an entry
      if (item.type === "delta") item.entry;
    }
  };
  assert.ok(never);
});
