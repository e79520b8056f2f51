/** One server-sent event. */
export interface Frame {
  event: string;
  data: string;
  /** the newest id of the stream, also if an earlier event had it */
  id: string;
}

/**
 * Parse server-sent events from pieces of text.
 *
 * Source: the WHATWG specification, "server-sent events".
 */
export class SseParser {
  /** the newest id; an event that is not complete does not change it */
  id: string;
  /** milliseconds that the server asks to wait before a reconnect */
  retry: number | null = null;
  #limit: number;
  #rest = "";
  #afterReturn = false;
  #event = "";
  #data: string[] = [];
  #size = 0;
  #nextId: string;

  /**
   * @param id id that a reconnect starts with
   * @param limit most characters of one event
   */
  constructor(id: string, limit: number) {
    this.id = this.#nextId = id;
    this.#limit = limit;
  }

  /** Return the events that this piece completes. Throws a RangeError at an event over the limit. */
  push(piece: string): Frame[] {
    if (!piece) return [];
    const text = this.#afterReturn && piece.startsWith("\n") ? piece.slice(1) : piece;
    this.#afterReturn = piece.endsWith("\r");
    const lines = text.split(/\r\n|\r|\n/);
    lines[0] = this.#rest + lines[0];
    this.#rest = lines.pop()!;
    const frames: Frame[] = [];
    for (const line of lines) {
      const frame = this.#line(line);
      if (frame) frames.push(frame);
    }
    this.#check(this.#rest.length);
    return frames;
  }

  #line(line: string): Frame | undefined {
    if (line) {
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
      if (field === "event") this.#event = value;
      else if (field === "data") {
        this.#check(value.length);
        this.#size += value.length;
        this.#data.push(value);
      } else if (field === "id" && !value.includes("\0")) this.#nextId = value;
      else if (field === "retry" && /^\d+$/.test(value)) this.retry = +value;
      return undefined;
    }
    this.id = this.#nextId;
    const { length } = this.#data;
    const frame = { event: this.#event || "message", data: this.#data.join("\n"), id: this.id };
    this.#event = "";
    this.#data = [];
    this.#size = 0;
    return length ? frame : undefined;
  }

  #check(more: number): void {
    if (this.#size + more > this.#limit) throw new RangeError(`an event has over ${this.#limit} characters`);
  }
}
