// Where each row is in the scrolled area, in pixels. Rows that were never drawn have estimated heights. Pure.
import { PAGE, pageOf, startOf } from "./pages.js";

const FIRST_GUESS = { llm: 90, extension: 28, fold: 30 };
const ENOUGH = 8; // rows whose average is better than the first guess
const MOST = 0.75; // share of the rows with known heights from which the height of a position is learned for good

export class Layout {
  /** Unloaded pages are drawn smaller than they are if the area would be higher than `most` pixels: browsers have limits. */
  constructor({ most = 12_000_000, perPosition = 40 } = {}) {
    this.#most = most;
    this.#perPosition = perPosition;
  }

  #most;
  #perPosition;
  #isKnown = false; // whether the height of a position was learned from drawn rows
  #first = 0;
  #count = 0; // pages
  #pages = new Map(); // loaded ones, by number: {rows, until, tops, height}
  #remembered = new Map(); // heights of pages that were loaded once
  #measured = new Map(); // heights of rows, by position
  #sums = { llm: [0, 0], extension: [0, 0], fold: [0, 0] }; // number and height of the measured rows of each kind
  #tops = new Float64Array(1);
  #floor = 0;
  #head = 0;

  get height() {
    return this.#tops[this.#count];
  }

  /**
   * Set the rows. `rows` maps numbers of loaded pages to `{position, kind}` objects, in order. `untilOf` returns the last
   * position of a page that is loaded: the newest page arrives in parts.
   */
  set(floor, head, rows, untilOf) {
    this.#floor = floor;
    this.#head = head;
    this.#first = pageOf(floor + 1);
    this.#count = head > floor ? pageOf(head) - this.#first + 1 : 0;
    for (const page of this.#pages.keys()) {
      if (rows.has(page)) continue;
      this.#remembered.set(page, this.#pages.get(page).height);
      for (const row of this.#pages.get(page).rows) this.#measured.delete(row.position);
      this.#pages.delete(page);
    }
    for (const [page, list] of rows) {
      this.#pages.set(page, { rows: list, until: untilOf(page), tops: new Float64Array(list.length + 1), height: 0 });
      this.#stack(page);
    }
    this.#learn();
    this.#place();
  }

  /** Forget the heights of pages that are not loaded, as other rows of them are shown now. */
  forget() {
    this.#remembered.clear();
    this.#isKnown = false;
  }

  /** Set the true heights of rows: pairs of a row and its pixels. Return whether a height changed. */
  measure(found) {
    const changed = new Set();
    for (const [row, height] of found) {
      const old = this.#measured.get(row.position);
      if (old !== undefined && Math.abs(old - height) < 0.5) continue;
      this.#measured.set(row.position, height);
      const sum = this.#sums[row.kind];
      if (old === undefined) sum[0] += 1;
      sum[1] += height - (old ?? 0);
      changed.add(pageOf(row.position));
    }
    for (const page of changed) if (this.#pages.has(page)) this.#stack(page);
    if (changed.size) this.#place();
    return changed.size > 0;
  }

  /** Return the top of the row at a position, or of the next one that is shown. */
  top(position) {
    if (this.#count === 0) return 0;
    const page = Math.min(Math.max(pageOf(position), this.#first), this.#first + this.#count - 1);
    const above = this.#tops[page - this.#first];
    const loaded = this.#pages.get(page);
    if (loaded === undefined) {
      const [from, size] = this.#span(page);
      return above + (this.#heightOf(page) * Math.min(Math.max(position - 1 - from, 0), size)) / Math.max(size, 1);
    }
    return above + loaded.tops[indexOf(loaded.rows, position)];
  }

  /** Return the loaded rows between two heights, and the numbers of the pages there. */
  between(from, to) {
    const rows = [];
    const pages = [];
    let index = Math.max(upper(this.#tops, this.#count, from) - 1, 0);
    for (; index < this.#count && this.#tops[index] < to; index += 1) {
      const page = this.#first + index;
      pages.push(page);
      const loaded = this.#pages.get(page);
      if (loaded === undefined) continue;
      const base = this.#tops[index];
      let at = Math.max(upper(loaded.tops, loaded.rows.length, from - base) - 1, 0);
      for (; at < loaded.rows.length && base + loaded.tops[at] < to; at += 1) {
        if (base + loaded.tops[at + 1] > from) rows.push(loaded.rows[at]);
      }
    }
    return { rows, pages };
  }

  /** Return the rows that have no unloaded page between them and `row`, which is one of them. */
  connected(rows, row = rows[0]) {
    const at = Math.max(rows.indexOf(row), 0);
    const isGap = (above, below) => {
      for (let page = pageOf(above.position) + 1; page < pageOf(below.position); page += 1) if (!this.#pages.has(page)) return true;
      return false;
    };
    let first = at;
    while (first > 0 && !isGap(rows[first - 1], rows[first])) first -= 1;
    let last = at;
    while (last + 1 < rows.length && !isGap(rows[last], rows[last + 1])) last += 1;
    return rows.slice(first, last + 1);
  }

  /** Return the position that is estimated to be at a height. */
  positionAt(y) {
    if (this.#count === 0) return 0;
    const index = Math.min(Math.max(upper(this.#tops, this.#count, y) - 1, 0), this.#count - 1);
    const page = this.#first + index;
    const loaded = this.#pages.get(page);
    if (loaded?.rows.length) {
      return loaded.rows[Math.min(Math.max(upper(loaded.tops, loaded.rows.length, y - this.#tops[index]) - 1, 0), loaded.rows.length - 1)].position;
    }
    const [from, size] = this.#span(page);
    const part = (y - this.#tops[index]) / Math.max(this.#heightOf(page), 1);
    return from + 1 + Math.floor(Math.min(Math.max(part, 0), 0.999) * size);
  }

  heightOfRow(row) {
    return this.#measured.get(row.position) ?? this.#guess(row.kind);
  }

  #guess(kind) {
    const [count, height] = this.#sums[kind];
    return this.#isSure(kind) ? height / count : FIRST_GUESS[kind];
  }

  #isSure(kind) {
    return this.#sums[kind][0] >= ENOUGH;
  }

  #stack(page) {
    const { rows, tops } = this.#pages.get(page);
    let top = 0;
    rows.forEach((row, index) => {
      tops[index] = top;
      top += this.heightOfRow(row);
    });
    tops[rows.length] = top;
    this.#pages.get(page).height = top;
  }

  /** The position before the first of a page that exists, and how many exist. */
  #span(page) {
    const from = Math.max(startOf(page), this.#floor);
    return [from, Math.max(Math.min(startOf(page + 1), this.#head) - from, 0)];
  }

  /** Learn the height of a position: most have no row of their own, as a turn is one row. */
  #learn() {
    if (this.#isKnown) return;
    let height = 0;
    let positions = 0;
    let rows = 0;
    let sure = 0;
    for (const [page, loaded] of this.#pages) {
      const [from, size] = this.#span(page);
      height += loaded.height;
      positions += Math.min(Math.max(loaded.until - from, 0), size); // what is not loaded yet has no height here
      rows += loaded.rows.length;
      for (const row of loaded.rows) if (this.#measured.has(row.position) || this.#isSure(row.kind)) sure += 1;
    }
    // Within one long turn, there are next to no rows: that says nothing of the other positions.
    if (positions >= PAGE / 2 && rows >= ENOUGH) this.#perPosition = Math.max(height / positions, 1);
    // Learned once: if it followed each drawn row, the scrollbar would move under the user's hand.
    this.#isKnown = positions >= PAGE && rows >= ENOUGH && sure >= rows * MOST;
  }

  #heightOf(page) {
    const loaded = this.#pages.get(page);
    if (loaded) return loaded.height;
    const most = this.#most / Math.max(this.#count, 1);
    return Math.min(this.#remembered.get(page) ?? this.#span(page)[1] * this.#perPosition, most);
  }

  #place() {
    if (this.#tops.length < this.#count + 1) this.#tops = new Float64Array(Math.max(this.#count + 1, 2 * this.#tops.length));
    let top = 0;
    for (let index = 0; index < this.#count; index += 1) {
      this.#tops[index] = top;
      top += this.#heightOf(this.#first + index);
    }
    this.#tops[this.#count] = top;
  }
}

/** Return the index of the row at a position, or of the next one; the number of rows if there is none. */
function indexOf(rows, position) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].position < position) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Return the index of the first of `count` sorted numbers that is above a value. */
function upper(numbers, count, value) {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}
