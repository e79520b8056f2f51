// The entries of a session that are in memory: pages of consecutive positions, and only a bounded number of them.

export const PAGE = 200; // positions in a page

/** The page that holds a position. Page 0 has the positions 1 to `PAGE`. */
export const pageOf = (position) => Math.floor((position - 1) / PAGE);
/** The position before the first one of a page. */
export const startOf = (page) => page * PAGE;

export class Pages {
  /** Keeps at most `most` pages, and at most `mostBytes` of entries beyond those in use. */
  constructor({ most = 24, mostBytes = 32_000_000 } = {}) {
    this.#most = most;
    this.#mostBytes = mostBytes;
  }

  #most;
  #mostBytes;
  #pages = new Map(); // by number: {entries, until, bytes, used}
  #clock = 0;

  clear() {
    this.#pages.clear();
  }

  /** Return the numbers of the loaded pages, in order. */
  numbers() {
    return [...this.#pages.keys()].sort((one, other) => one - other);
  }

  /** Return the entries of a page in order; undefined if it is not loaded. */
  entries(page) {
    return this.#pages.get(page)?.entries;
  }

  /** Return the last position of a loaded page up to which its entries are here. */
  until(page) {
    return this.#pages.get(page).until;
  }

  /** Return the entry at a position, if it is loaded. */
  at(position) {
    return this.entries(pageOf(position))?.find((entry) => entry.position === position);
  }

  /** Whether a page has all entries up to a position. */
  isLoaded(page, until) {
    const found = this.#pages.get(page);
    return found !== undefined && found.until >= Math.min(until, startOf(page + 1));
  }

  /** Note that all entries between two positions have been added. */
  settle(from, until) {
    for (const [page, found] of this.#pages) {
      if (found.until >= Math.max(from, startOf(page))) found.until = Math.max(found.until, Math.min(until, startOf(page + 1)));
    }
  }

  /** Set the entries of a page up to a position. */
  put(page, entries, until, bytes) {
    const old = this.#pages.get(page);
    if (old && old.until > until) {
      // The stream brought newer entries while the page was requested.
      const newer = old.entries.filter((entry) => entry.position > until);
      this.#pages.set(page, { entries: [...entries, ...newer], until: old.until, bytes: bytes + old.bytes, used: ++this.#clock });
      return;
    }
    this.#pages.set(page, { entries, until, bytes, used: ++this.#clock });
  }

  /**
   * Add a new entry that follows position `before`, or the last trimmed position `floor`. Positions between are of a
   * lane that the user may not see.
   */
  add(entry, before, bytes, floor = 0) {
    const page = pageOf(entry.position);
    this.settle(before, entry.position - 1);
    let open = this.#pages.get(page);
    if (open === undefined && before <= Math.max(startOf(page), floor)) {
      this.#pages.set(page, (open = { entries: [], until: entry.position - 1, bytes: 0, used: 0 }));
    }
    // A page that lacks entries before this one is requested when it is shown.
    if (open === undefined || open.until < entry.position - 1) return;
    open.entries = [...open.entries, entry];
    open.until = entry.position;
    open.bytes += bytes;
    open.used = ++this.#clock;
  }

  /** Mark pages as in use, and drop the ones that were not used for the longest time. `kept` are never dropped. */
  use(kept) {
    for (const page of kept) {
      const found = this.#pages.get(page);
      if (found) found.used = ++this.#clock;
    }
    const safe = new Set(kept);
    const old = [...this.#pages].filter(([page]) => !safe.has(page)).sort(([, one], [, other]) => one.used - other.used);
    let bytes = [...this.#pages.values()].reduce((sum, page) => sum + page.bytes, 0);
    let count = this.#pages.size;
    const dropped = [];
    for (const [page, { bytes: size }] of old) {
      if (count <= this.#most && bytes <= this.#mostBytes) break;
      this.#pages.delete(page);
      dropped.push(page);
      count -= 1;
      bytes -= size;
    }
    return dropped;
  }
}
