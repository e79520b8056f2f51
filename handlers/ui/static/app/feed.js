// Follows one session: loads the newest entries, receives new ones, and resumes after a lost connection.
import { eventsPath, getEntries, getHead } from "./api.js";
import { EventStream } from "./event_stream.js";
import { Previews } from "./previews.js";

export const WINDOW = 300; // entries loaded at first, and with each "Load earlier"
const MOST = 1500; // most rows kept while following the end; older rows can be loaded again
const PAGE = 1000; // most entries in one response
const RETRY_MS = 2000;
const HIDDEN_MS = 20_000; // after this time, a hidden tab closes its stream: a browser allows six streams to one server

const isAfter = (one, other) => one[0] > other[0] || (one[0] === other[0] && one[1] > other[1]);

export class Feed {
  /** `onChange` is called after changes, at most once per animation frame. */
  constructor(session, onChange) {
    this.session = session;
    this.state = "connecting"; // connecting, live, behind, reconnecting, refused
    this.hasCaughtUp = false; // all entries that existed at the start are loaded
    this.isClosed = null; // whether the session accepts no more messages; null until known
    this.error = null;
    this.entries = []; // in the order of positions; an item with `gap` stands for trimmed entries
    this.first = 0; // position before the first loaded entry: more can be loaded while it is above the floor
    this.floor = 0; // last trimmed position: no earlier entry exists
    this.isFollowing = true; // the end is shown; false while the user reads older rows
    this.isLoadingEarlier = false;
    this.previews = new Previews();
    this.version = 0;
    this.#onChange = onChange;
    document.addEventListener("visibilitychange", this.#onVisibility);
    this.#start();
  }

  #onChange;
  #cursor = null; // [position, delta] of the last received item; null until the head is known
  #resumeAt = null; // the same cursor as text from the server, which also names the log's incarnation
  #source = null;
  #retryMs = RETRY_MS;
  #timer = null;
  #hiddenTimer = null;
  #drawn = false;
  #isOver = false;

  get position() {
    return this.#cursor?.[0] ?? 0;
  }

  close() {
    this.#isOver = true;
    this.#disconnect();
    clearTimeout(this.#hiddenTimer);
    document.removeEventListener("visibilitychange", this.#onVisibility);
  }

  /** Load the entries between position `from` and the first loaded entry. */
  async loadEarlier(from = this.first - WINDOW) {
    if (this.isLoadingEarlier || this.first <= Math.max(this.floor, from)) return;
    this.isLoadingEarlier = true;
    this.isFollowing = false;
    this.#draw();
    try {
      while (this.first > Math.max(this.floor, from)) {
        const start = Math.max(this.floor, from, this.first - PAGE);
        const found = await getEntries(this.session, start, this.first);
        if (this.#isOver) return;
        this.entries = [...found, ...this.entries];
        this.first = start;
      }
      this.error = null;
    } catch (error) {
      this.error = error.message;
      // The missing entries were trimmed, so no earlier entries can be loaded.
      if (error.error === "cursor_trimmed") this.floor = this.first;
    } finally {
      this.isLoadingEarlier = false;
      this.#draw();
    }
  }

  async #start() {
    try {
      const head = await getHead(this.session);
      if (this.#isOver) return;
      this.floor = head.trimmed;
      this.first = Math.max(this.floor, head.position - WINDOW);
      this.#cursor = [this.first, 0];
      this.#resumeAt = this.#cursor.join("-");
      this.#connect();
    } catch (error) {
      this.#failed(error);
    }
  }

  #connect() {
    this.#disconnect();
    const isCurrent = () => source === this.#source;
    const source = new EventStream(eventsPath(this.session, this.#resumeAt), {
      open: () => isCurrent() && this.#set("live"),
      retry: (milliseconds) => {
        this.#retryMs = milliseconds;
      },
      event: (name, data, id) => {
        if (!isCurrent()) return;
        try {
          this.#receive(name, JSON.parse(data));
        } catch (error) {
          // One malformed event must not end the view of a session. The next events are handled.
          console.warn("lanebus: an event could not be handled", error);
        }
        if (this.#resumeAt !== null) this.#resumeAt = id || this.#resumeAt;
      },
      end: (error) => {
        if (!isCurrent()) return;
        this.#source = null;
        if (error !== null) this.#failed(error);
        else {
          this.#set("reconnecting");
          this.#retry();
        }
      },
    });
    this.#source = source;
  }

  #receive(name, data) {
    switch (name) {
      case "entry":
        return this.#addEntry(data);
      case "delta":
        return this.#addDelta(data);
      case "gap":
        return this.#addGap(data);
      case "caughtup":
        this.hasCaughtUp = true;
        return this.#set("live");
      case "fellbehind":
        return this.#set("behind");
      case "closed":
        return this.#setClosed(true);
      case "reopened":
        return this.#setClosed(false);
      case "rolledback":
        return this.#restart();
      case "failed":
        return this.#set("reconnecting", data.message);
      case "bye":
        return this.#set("reconnecting");
      default:
        return undefined; // of a newer server
    }
  }

  #disconnect() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  #retry() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => (this.#cursor === null ? this.#start() : this.#connect()), this.#retryMs);
  }

  #failed(error) {
    if (this.#isOver) return;
    const isFinal = error.status === 401 || error.status === 403 || error.status === 400;
    this.#set(isFinal ? "refused" : "reconnecting", error.message);
    if (!isFinal) this.#retry();
  }

  /** Load everything again: the log lost its end, so loaded entries may not exist any more. */
  #restart() {
    this.#disconnect();
    this.entries = [];
    this.previews = new Previews();
    this.#cursor = null;
    this.#resumeAt = null;
    this.hasCaughtUp = false;
    this.isClosed = null;
    this.#set("reconnecting", "The log lost its newest entries. The session is loaded again.");
    this.#timer = setTimeout(() => this.#start(), RETRY_MS);
  }

  #addEntry(entry) {
    if (entry.position <= this.#cursor[0]) return; // received before the reconnect
    this.#cursor = [entry.position, 0];
    this.entries.push(entry);
    this.previews.settle(entry.message);
    this.#draw();
  }

  #addDelta(entry) {
    const place = [entry.position, entry.delta];
    // A snapshot repeats the text before the cursor, for a subscriber that starts at the cursor.
    if (!isAfter(place, this.#cursor) && !entry.message.isSnapshot) return;
    if (isAfter(place, this.#cursor)) this.#cursor = place;
    this.previews.add(entry.message);
    this.#draw();
  }

  #addGap(gap) {
    this.#cursor = [Math.max(this.#cursor[0], gap.firstKept - 1), 0];
    this.entries.push({ position: gap.firstKept - 1, gap });
    this.#draw();
  }

  #setClosed(isClosed) {
    this.isClosed = isClosed;
    this.#draw();
  }

  #set(state, error = null) {
    if (this.#isOver) return;
    this.state = state;
    this.error = error;
    this.#draw();
  }

  #onVisibility = () => {
    clearTimeout(this.#hiddenTimer);
    if (document.hidden) {
      this.#hiddenTimer = setTimeout(() => this.#disconnect(), HIDDEN_MS);
    } else if (this.#source === null && this.#cursor !== null && this.state !== "refused") {
      this.#connect();
    }
  };

  #draw() {
    if (this.#drawn || this.#isOver) return;
    this.#drawn = true;
    const draw = () => {
      this.#drawn = false;
      if (this.#isOver) return;
      if (this.isFollowing && this.entries.length > MOST) {
        this.entries = this.entries.slice(-(MOST / 2));
        this.first = this.entries[0].position - 1;
      }
      this.version += 1;
      this.#onChange();
    };
    if (document.hidden) setTimeout(draw, 100);
    else requestAnimationFrame(draw);
  }
}
