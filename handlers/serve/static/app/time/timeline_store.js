// Loads the timeline of a session in pages, and again what changed since.
import { getTimeline } from "../api.js";

const MOST_AT_ONCE = 5; // most pages that one call of `reach` loads

export class TimelineStore {
  /** `onChange` is called after each answer. */
  constructor(session, onChange) {
    this.session = session;
    this.turns = []; // from the index `first` on
    this.loops = [];
    this.compactions = [];
    this.first = null; // null until the newest turns are loaded
    this.count = 0;
    this.usage = null;
    this.countedFrom = null;
    this.position = 0; // the answer tells what was so at this position
    this.isLoading = false;
    this.fault = null;
    this.#onChange = onChange;
  }

  #onChange;
  #isOver = false;
  #isRefreshing = false;

  close() {
    this.#isOver = true;
  }

  /** Load the newest turns, or those that may have changed since. */
  async refresh() {
    if (this.#isRefreshing) return;
    this.#isRefreshing = true;
    try {
      let from = this.#oldestOpen();
      for (let pages = 0; pages < MOST_AT_ONCE; pages += 1) {
        const answer = await getTimeline(this.session, from);
        if (this.#isOver) return;
        if (from !== null && answer.count < this.first + this.turns.length) return this.#restart(); // the log lost its end
        this.#merge(answer);
        from = answer.first + answer.turns.length;
        if (from >= answer.count || answer.turns.length === 0) break;
      }
      this.fault = null;
    } catch (error) {
      this.fault = error;
    } finally {
      this.#isRefreshing = false;
      this.#tell();
    }
  }

  /** Load earlier turns until those at a position are loaded, at most some pages. 0 loads all that this allows. */
  async reach(position) {
    if (this.isLoading || this.first === null) return;
    this.isLoading = true;
    this.#tell();
    try {
      for (let pages = 0; pages < MOST_AT_ONCE && this.first > 0 && this.turns[0].startedPosition > position; pages += 1) {
        const size = Math.max(this.#page, 1);
        const answer = await getTimeline(this.session, Math.max(0, this.first - size), Math.min(size, this.first));
        if (this.#isOver || answer.turns.length === 0) return;
        this.#merge(answer);
      }
      this.fault = null;
    } catch (error) {
      this.fault = error;
    } finally {
      this.isLoading = false;
      this.#tell();
    }
  }

  #page = 0; // turns in the largest answer

  /** Index of the first turn that may change; null if none is loaded. */
  #oldestOpen() {
    if (this.first === null || this.turns.length === 0) return null;
    const open = this.turns.findIndex((turn) => turn.ended === null);
    return this.first + (open === -1 ? this.turns.length - 1 : open);
  }

  #merge(answer) {
    this.#page = Math.max(this.#page, answer.turns.length);
    if (this.first === null || this.turns.length === 0) {
      this.turns = answer.turns;
      this.first = answer.first;
    } else if (answer.first < this.first) {
      this.turns = [...answer.turns.slice(0, this.first - answer.first), ...this.turns];
      this.first = answer.first;
    } else {
      const at = answer.first - this.first;
      this.turns = [...this.turns.slice(0, at), ...answer.turns, ...this.turns.slice(at + answer.turns.length)];
    }
    this.loops = united(this.loops, answer.loops, (one) => one.loopId);
    this.compactions = united(this.compactions, answer.compactions, (one) => one.startedPosition);
    if (answer.position >= this.position) {
      this.position = answer.position;
      this.count = answer.count;
      this.usage = answer.usage;
      this.countedFrom = answer.countedFrom;
    }
  }

  #restart() {
    this.turns = [];
    this.loops = [];
    this.compactions = [];
    this.first = null;
    this.position = 0;
  }

  #tell() {
    if (!this.#isOver) this.#onChange();
  }
}

function united(old, fresh, keyOf) {
  const all = new Map(old.map((one) => [keyOf(one), one]));
  for (const one of fresh) all.set(keyOf(one), one);
  return [...all.values()].sort((one, other) => one.startedPosition - other.startedPosition);
}
