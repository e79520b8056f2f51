// Follows one session: receives new entries, loads the pages of older ones that are shown, and resumes after a lost
// connection.
import { eventsPath, getEntriesPart, getHead } from "./api.js";
import { EventStream } from "./event_stream.js";
import { OFFLINE, isOnline, onNetwork } from "./network.js";
import { PAGE, Pages, pageOf, startOf } from "./pages.js";
import { Previews } from "./previews.js";

const FEW = 60; // if the newest page has fewer entries, the page before it is loaded too
const REQUESTS = 3; // pages requested at the same time, once the first one is there
const RETRY_MS = 2000;
const HIDDEN_MS = 20_000; // after this time, a hidden tab closes its stream: a browser allows six streams to one server

const isAfter = (one, other) => one[0] > other[0] || (one[0] === other[0] && one[1] > other[1]);

export class Feed {
  /** `onChange` is called after changes, at most once per animation frame. */
  constructor(session, onChange) {
    this.session = session;
    this.state = "connecting"; // connecting, live, behind, reconnecting, refused
    this.hasCaughtUp = false; // all entries that existed at the start are loaded
    this.isReady = false; // the entries in view were loaded for the first time: now other things may be requested
    this.isClosed = null; // whether the session accepts no more messages; null until known
    this.error = null;
    this.pages = new Pages();
    this.floor = 0; // last trimmed position: no earlier entry exists
    this.end = 0; // newest position
    this.shared = 0; // last position that a fork shares with its origin: what was not over there goes on only in the origin
    this.isFollowing = true; // the end is shown; false while the user reads older rows
    this.inView = 0; // position at the top of the view
    this.anchor = null; // the place of the log to which the user comes back from another view
    this.previews = new Previews();
    this.version = 0;
    this.#onChange = onChange;
    document.addEventListener("visibilitychange", this.#onVisibility);
    this.#stopListening = onNetwork(this.#onNetwork);
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
  #isStarting = false;
  #stopListening;
  #from = 0; // position after which the stream began
  #wanted = []; // pages to have, the most urgent first
  #requests = new Map(); // by page: the AbortController of its request
  #hasLoaded = false; // whether a page was loaded: side by side, the most urgent one would come three times as late
  #tail = { version: -1, entries: [] };

  get position() {
    return this.#cursor?.[0] ?? 0;
  }

  close() {
    this.#isOver = true;
    for (const request of this.#requests.values()) request.abort();
    this.#disconnect();
    clearTimeout(this.#hiddenTimer);
    document.removeEventListener("visibilitychange", this.#onVisibility);
    this.#stopListening();
  }

  /** The newest entries, in order, without a gap. */
  get entries() {
    if (this.#tail.version !== this.version) {
      const found = [];
      for (let page = pageOf(this.end); this.pages.entries(page); page -= 1) found.unshift(this.pages.entries(page));
      this.#tail = { version: this.version, entries: found.flat() };
    }
    return this.#tail.entries;
  }

  /**
   * Load the pages that are shown, the most urgent first. Requests for others are given up. Then all is drawn again: what
   * waits for these pages waits no longer, and no answer of theirs will say so.
   */
  want(pages) {
    this.#wanted = pages.filter((page) => page >= pageOf(this.floor + 1) && page <= pageOf(this.end));
    for (const [page, request] of this.#requests) {
      if (!this.#wanted.includes(page)) {
        this.#requests.delete(page);
        request.abort();
        this.#draw();
      }
    }
    this.#loadWanted();
  }

  /** Whether all entries of a page are here. */
  has(page) {
    return this.pages.isLoaded(page, this.end) || (!this.hasCaughtUp && page >= pageOf(this.#from + 1));
  }

  #loadWanted() {
    if (this.#isOver || this.#cursor === null) return;
    for (const page of this.#wanted) {
      if (this.#requests.size >= (this.#hasLoaded ? REQUESTS : 1)) return;
      if (!this.has(page) && !this.#requests.has(page)) this.#load(page);
    }
  }

  async #load(page) {
    const request = new AbortController();
    this.#requests.set(page, request);
    const isCurrent = () => !this.#isOver && this.#requests.get(page) === request;
    try {
      const until = Math.min(startOf(page + 1), this.end);
      const found = [];
      let bytes = 0;
      for (let after = Math.max(startOf(page), this.floor); ; ) {
        const answer = await getEntriesPart(this.session, after, until, request.signal);
        found.push(...answer.entries.filter((entry) => entry.delta === 0)); // a foreign client may write other ids
        bytes += answer.bytes;
        if (!answer.more || answer.cursor === after || parseInt(answer.cursor, 10) >= until) break;
        after = answer.cursor;
      }
      if (!isCurrent()) return;
      this.#requests.delete(page);
      this.#hasLoaded = true;
      this.pages.put(page, found, until, bytes);
      this.#keep();
      if (this.state === "live") this.error = null;
      this.#draw();
      this.#loadWanted();
    } catch (error) {
      if (!isCurrent()) return;
      this.#requests.delete(page);
      if (error.error === "cursor_trimmed") await this.#raiseFloor();
      else this.error = error.message;
      this.#draw();
      if (error.status !== 401 && error.status !== 403) setTimeout(() => this.#loadWanted(), RETRY_MS);
    }
  }

  /** Ask where the log begins now: its first entries were trimmed. */
  async #raiseFloor() {
    try {
      this.floor = Math.max(this.floor, (await getHead(this.session)).trimmed);
    } catch (error) {
      this.error = error.message;
    }
  }

  #keep() {
    const last = pageOf(this.end);
    this.pages.use([...this.#wanted, last - 1, last]);
  }

  async #start() {
    if (this.#isStarting) return;
    this.#isStarting = true;
    try {
      const head = await getHead(this.session);
      if (this.#isOver) return;
      this.floor = head.trimmed;
      this.shared = head.origin?.position ?? 0;
      this.end = head.position;
      const newest = startOf(pageOf(Math.max(head.position, 1)));
      this.#from = Math.max(this.floor, head.position - newest < FEW ? newest - PAGE : newest, 0);
      this.#cursor = [this.#from, 0];
      this.#resumeAt = this.#cursor.join("-");
      this.#connect();
      this.#draw(); // the view names the pages that it needs, which are requested beside the stream
    } catch (error) {
      this.#failed(error);
    } finally {
      this.#isStarting = false;
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
          this.#receive(name, JSON.parse(data), data.length);
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

  #receive(name, data, bytes) {
    switch (name) {
      case "entry":
        return this.#addEntry(data, bytes);
      case "delta":
        return this.#addDelta(data);
      case "gap":
        return this.#addGap(data);
      case "caughtup":
        this.hasCaughtUp = true;
        this.pages.settle(this.position, this.end);
        this.#loadWanted();
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
    this.#timer = setTimeout(() => this.#open(), this.#retryMs);
  }

  #open() {
    if (this.#cursor === null) this.#start();
    else this.#connect();
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
    for (const request of this.#requests.values()) request.abort();
    this.#requests.clear();
    this.pages.clear();
    this.end = 0;
    this.previews = new Previews();
    this.#cursor = null;
    this.#resumeAt = null;
    this.hasCaughtUp = false;
    this.isClosed = null;
    this.#set("reconnecting", "The log lost its newest entries. The session is loaded again.");
    this.#timer = setTimeout(() => this.#start(), RETRY_MS);
  }

  #addEntry(entry, bytes) {
    const before = this.#cursor[0];
    if (entry.position <= before) return; // received before the reconnect
    this.#cursor = [entry.position, 0];
    this.end = Math.max(this.end, entry.position);
    this.pages.add(entry, before, bytes, this.floor);
    if (pageOf(entry.position) > pageOf(before)) this.#keep();
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
    this.floor = Math.max(this.floor, gap.firstKept - 1);
    this.end = Math.max(this.end, this.floor);
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
    } else if (this.#source === null && this.state !== "refused") {
      this.#open();
    }
  };

  /** The network changed: the connection may be dead, and nothing else would say so for a long time. */
  #onNetwork = () => {
    if (this.state === "refused" || (document.hidden && this.#source === null)) return;
    this.#set("reconnecting", isOnline() ? null : OFFLINE);
    this.#disconnect();
    this.#open();
  };

  #draw() {
    if (this.#drawn || this.#isOver) return;
    this.#drawn = true;
    const draw = () => {
      this.#drawn = false;
      if (this.#isOver) return;
      this.isReady ||= this.hasCaughtUp && this.#wanted.every((page) => this.has(page));
      this.version += 1;
      this.#onChange();
    };
    if (document.hidden) setTimeout(draw, 100);
    else requestAnimationFrame(draw);
  }
}
