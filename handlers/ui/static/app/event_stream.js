// Server-sent events over fetch: an EventSource cannot send the header with the token.
import { ApiError, requestStream } from "./api.js";

/** Yield `{name, data, id}` for each event of a response's text. `id` is the newest id, also of earlier events. */
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let id = "";
  let name = "";
  let data = [];
  let isMoved = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
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

  /**
   * `on` has the functions `open()`, `event(name, data, id)`, `retry(milliseconds)` and `end(error)`. `end` is called
   * once, with null if the server ended the stream. None is called after `close()`.
   */
  constructor(path, on) {
    this.#run(path, on);
  }

  close() {
    this.#abort.abort();
  }

  async #run(path, on) {
    const { signal } = this.#abort;
    let fault = null;
    try {
      const reply = await requestStream(path, signal);
      if (!signal.aborted) on.open();
      for await (const { name, data, id } of eventsOf(reply.body)) {
        if (signal.aborted) return;
        if (name === "retry") on.retry(Number(data));
        else on.event(name, data, id);
      }
    } catch (error) {
      fault = error instanceof ApiError ? error : null; // anything else is a lost connection
    }
    if (!signal.aborted) on.end(fault);
  }
}
