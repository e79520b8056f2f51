// Server-sent events over fetch: an EventSource cannot send the header with the token.
import { ApiError, requestStream } from "./api.js";

const SILENT_MS = 40_000; // a stream without a sign for so long is dead: the server sends one every 15 seconds
const CHECK_MS = 5000;

/** Yield `{name, data, id}` for each event of a response's text; `onSign` is called when any of it arrives. `id` is the newest id, also of earlier events. */
async function* eventsOf(body, onSign) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let id = "";
  let name = "";
  let data = [];
  let isMoved = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onSign();
    text += value;
    let end;
    // The server ends lines with LF only.
    while ((end = text.indexOf("\n")) >= 0) {
      const line = text.slice(0, end);
      text = text.slice(end + 1);
      if (line === "") {
        if (data.length) yield { name: name || "message", data: data.join("\n"), id };
        else if (isMoved) yield { name: "moved", data: "null", id }; // only the id: entries were left out
        isMoved = false;
        name = "";
        data = [];
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const content = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") name = content;
      else if (field === "data") data.push(content);
      else if (field === "id") {
        id = content;
        isMoved = true;
      }
      else if (field === "retry" && /^\d+$/.test(content)) yield { name: "retry", data: content, id };
    }
  }
}

/** One connection to an event stream. It does not reconnect: the feed does, with the newest id. */
export class EventStream {
  #abort = new AbortController();
  #isClosed = false;

  /**
   * `on` has the functions `open()`, `event(name, data, id)`, `retry(milliseconds)` and `end(error)`. `end` is called
   * once, with null if the server ended the stream or is silent. None is called after `close()`.
   */
  constructor(path, on) {
    this.#run(path, on);
  }

  close() {
    this.#isClosed = true;
    this.#abort.abort();
  }

  async #run(path, on) {
    let fault = null;
    let last = performance.now();
    const onSign = () => {
      last = performance.now();
    };
    // Not a longer timer, which a laptop that slept would have to wait for again.
    const check = setInterval(() => performance.now() - last > SILENT_MS && this.#abort.abort(), CHECK_MS);
    try {
      const reply = await requestStream(path, this.#abort.signal);
      if (!this.#isClosed) on.open();
      for await (const { name, data, id } of eventsOf(reply.body, onSign)) {
        if (this.#isClosed) return;
        if (name === "retry") on.retry(Number(data));
        else on.event(name, data, id);
      }
    } catch (error) {
      fault = error instanceof ApiError ? error : null; // anything else is a lost connection
    } finally {
      clearInterval(check);
    }
    if (!this.#isClosed) on.end(fault);
  }
}
