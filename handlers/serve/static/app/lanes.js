// Draws the two lanes side by side, one row per position. Only the rows in view are in the document. Follows the end
// until the user scrolls up.
import { Component, createRef } from "preact";
import { html } from "./html.js";
import { isBegun, writeNext } from "./composer.js";
import { PreviewRow, Row } from "./entries.js";
import { mark, scrollAside } from "./find.js";
import { FindBox } from "./find_box.js";
import { count } from "./format.js";
import { LaneBar } from "./lane_bar.js";
import { Layout } from "./layout.js";
import { pageOf } from "./pages.js";
import { may } from "./rights.js";
import { go, sessionLink } from "./route.js";
import { rowsOf } from "./rows.js";
import { pastOf } from "./time/travel.js";
import { keptChoice, keepChoice } from "./log_choice.js";

const NEAR_END = 48; // pixels
const MARGIN = 300; // pixels drawn above and below the view
const UNFOLDING = 2; // frames in which the parts of an entry unfold for the text that the user looks for
const NEW_ROWS = 14; // rows drawn for the first time in one frame: more would take longer than a frame

class Lanes extends Component {
  box = createRef();
  list = createRef();
  layout = new Layout();
  #drawn = []; // the rows in the document
  #shown = new Map(); // the same, by position
  #pages = []; // numbers of the pages in view and near it
  #anchor = null; // the row that stays in place while heights change: its position, and its distance from the top
  #expected = 0; // scroll position that this code has set
  #route = null; // the place that was last shown
  #target = null; // position of the entry that a link names
  #isFresh = false; // whether the target was reached just now
  #made = null; // what the rows were made from
  #sizes = null;
  #watched = new Set();
  #isQueued = false;
  #isMarked = false;
  #sought = ""; // the text that the user looks for
  #visit = null; // frames since the user went to a match; null once it is in view
  #unseen = null; // position of a match that the user would not see in what is drawn of the entry
  #seen = null; // the newest position at the time when the user left the end

  constructor(props) {
    super(props);
    this.state = { ...keptChoice(), open: new Set() };
    // The user comes back from another view.
    this.#anchor = props.feed.anchor ?? null;
    if (this.#anchor === null) props.feed.isFollowing = true;
  }

  // --- what is shown ------------------------------------------------------------------------------------------

  choose = (change) => {
    this.layout.forget();
    this.setState(change);
    keepChoice({ ...this.state, ...change });
  };

  toggle = (key) => {
    const open = new Set(this.state.open);
    if (!open.delete(key)) open.add(key);
    // The user looks at the row of the turn: it stays in place.
    this.#leaveEnd();
    this.setState({ open });
  };

  /** Scroll to an entry, and unfold its turn. */
  show(position) {
    const { feed } = this.props;
    feed.isFollowing = false;
    this.#target = position;
    this.#isFresh = true;
    this.#anchor = { position, offset: Math.round((this.box.current?.clientHeight ?? 600) / 4) };
  }

  showMatch = (position) => {
    this.#target = null; // a match that was folded since the last visit unfolds again
    this.#unseen = null;
    this.forceUpdate(() => {
      this.show(position);
      this.#visit = 0;
      this.forceUpdate();
    });
  };

  find = (text) => {
    if (text === this.#sought) return;
    this.#sought = text;
    this.#visit = null;
    this.#unseen = null;
    this.forceUpdate();
  };

  toEnd = () => {
    const { feed, route, setPosition } = this.props;
    feed.isFollowing = true;
    this.#anchor = null;
    this.#target = null;
    feed.anchor = null;
    this.forceUpdate();
    if (route.at !== null) setPosition(null);
  };

  #leaveEnd() {
    const { feed } = this.props;
    if (!feed.isFollowing || !this.list.current) return;
    this.#anchor = this.#anchorAt(this.#expected);
    feed.isFollowing = false;
  }

  #rows() {
    const { feed, route } = this.props;
    const { lane, isAll, open } = this.state;
    const past = pastOf(route);
    const made = [feed.version, lane, isAll, open, this.#target, past];
    if (this.#made?.every((one, index) => one === made[index])) return;
    this.#made = made;
    let { rows, folds } = rowsOf(feed.pages, feed.floor, this.state, past);
    const found = this.#target === null ? undefined : feed.pages.at(this.#target);
    if (found && !rows.get(pageOf(found.position)).some((row) => row.position === found.position)) {
      // The entry that a link names is hidden.
      this.state.open = new Set(open).add(folds.get(found.position)?.key ?? found.position);
      if (lane !== "both" && found.lane !== lane) this.state.lane = "both";
      ({ rows } = rowsOf(feed.pages, feed.floor, this.state, past));
      this.#made = [feed.version, this.state.lane, isAll, this.state.open, this.#target, past];
    }
    this.layout.set(feed.floor, feed.end, rows, (page) => feed.pages.until(page));
  }

  /** Choose the rows to draw: those in view first. */
  #plan() {
    const { layout } = this;
    const { feed } = this.props;
    const height = this.box.current?.clientHeight ?? 800;
    const top = feed.isFollowing ? layout.height - height : this.#anchor ? layout.top(this.#anchor.position) - this.#anchor.offset : 0;
    const near = layout.between(top - MARGIN, top + height + MARGIN);
    const inView = layout.between(top, top + height);
    // The pages next to the view are loaded before the user reaches them.
    const around = inView.pages.length ? [inView.pages.at(-1) + 1, inView.pages[0] - 1] : [];
    this.#pages = [...new Set([...inView.pages, ...near.pages, ...around])];
    this.isMissing = inView.pages.some((page) => !feed.has(page));
    let rows = layout.connected(near.rows, inView.rows[0]);
    const isNew = (row) => !this.#shown.has(row.position);
    this.isPartial = false;
    if (rows.filter(isNew).length > NEW_ROWS) {
      this.isPartial = true;
      rows = layout.connected(inView.rows, inView.rows[0]);
      if (feed.isFollowing) rows.reverse();
      let left = NEW_ROWS;
      const end = rows.findIndex((row) => isNew(row) && left-- === 0);
      if (end >= 0) rows = rows.slice(0, end);
      if (feed.isFollowing) rows.reverse();
    }
    this.#drawn = rows;
  }

  // --- where it is shown --------------------------------------------------------------------------------------

  #anchorAt(scrolled) {
    const y = scrolled - this.list.current.offsetTop;
    const row = this.layout.between(y, y + 1).rows[0];
    const position = row?.position ?? this.layout.positionAt(y);
    return { position, offset: this.layout.top(position) - y };
  }

  /** Measure the drawn rows, and scroll so that the row that the user reads stays where it is. */
  #place(isResized = false) {
    const [box, list] = [this.box.current, this.list.current];
    if (!box || !list) return;
    if (isResized) this.#notice();
    this.#space();
    const found = [];
    for (let index = 0; index < this.#drawn.length; index += 1) {
      const row = list.children[index];
      if (row) found.push([this.#drawn[index], row.getBoundingClientRect().height]);
    }
    if (this.layout.measure(found)) this.#space();
    const { feed } = this.props;
    const wanted = feed.isFollowing
      ? box.scrollHeight
      : this.#anchor
        ? Math.max(0, list.offsetTop + this.layout.top(this.#anchor.position) - this.#anchor.offset)
        : box.scrollTop;
    if (Math.abs(box.scrollTop - wanted) >= 1) box.scrollTop = wanted;
    this.#expected = box.scrollTop;
    if (!feed.isFollowing && Math.abs(this.#expected - wanted) > 2 && feed.pages.at(this.#anchor.position)) this.#anchor = this.#anchorAt(this.#expected);
    this.#shown = new Map(this.#drawn.map((row) => [row.position, row]));
    this.#watch(list);
    feed.want(this.#pages);
    feed.inView = this.layout.positionAt(this.#expected - list.offsetTop);
    if (this.#sought !== "" || this.#isMarked) this.#mark(box, list);
    if (this.#isFresh && this.#shown.has(this.#target)) this.#flash();
    const isShort = !this.isPartial && this.#isUncovered(box, list);
    if (this.isPartial || isShort) this.#queue();
  }

  /** Mark the text that the user looks for, and scroll to it in the entry that the user went to. */
  #mark(box, list) {
    const row = this.#shown.has(this.#target) ? list.querySelector(`[data-position="${this.#target}"]`) : null;
    const found = mark(list, this.#sought, row);
    this.#isMarked = this.#sought !== "";
    if (this.#visit === null || row === null) return;
    this.#visit += 1;
    if (this.#visit <= UNFOLDING) {
      this.#queue();
    } else if (found === null && this.#unseen === null) {
      this.#unseen = this.#target;
      this.#visit = 0;
      this.#queue();
    } else {
      this.#visit = null;
      if (found === null) return;
      scrollAside(found, row);
      const [at, around] = [found.getBoundingClientRect(), box.getBoundingClientRect()];
      if (at.top >= around.top && at.bottom <= around.bottom) return;
      const scrolled = this.#expected - list.offsetTop + at.top - around.top - around.height / 4;
      this.#anchor = { position: this.#target, offset: Math.round(this.layout.top(this.#target) - scrolled) };
      this.#queue();
    }
  }

  /** Whether there are rows in view that are not drawn. */
  #isUncovered(box, list) {
    const y = this.#expected - list.offsetTop;
    return this.layout.between(y, y + box.clientHeight).rows.some((row) => !this.#shown.has(row.position));
  }

  #space() {
    const rows = this.#drawn;
    const { layout } = this;
    const above = rows.length ? layout.top(rows[0].position) : 0;
    const last = rows.at(-1);
    const below = rows.length ? layout.height - layout.top(last.position) - layout.heightOfRow(last) : layout.height;
    const style = this.list.current.style;
    style.paddingTop = `${above}px`;
    style.paddingBottom = `${Math.max(below, 0)}px`;
  }

  #watch(list) {
    const now = new Set(list.children);
    for (const row of this.#watched) if (!now.has(row)) this.#sizes.unobserve(row);
    for (const row of now) if (!this.#watched.has(row)) this.#sizes.observe(row);
    this.#watched = now;
  }

  #flash() {
    this.#isFresh = false;
    const row = this.list.current.querySelector(`[data-position="${this.#target}"]`);
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) row?.animate([{ opacity: 0.2 }, { opacity: 1 }], 600);
  }

  #queue() {
    if (this.#isQueued) return;
    this.#isQueued = true;
    requestAnimationFrame(() => {
      this.#isQueued = false;
      if (this.box.current) this.forceUpdate();
    });
  }

  /** Note where the user scrolled to. Return whether the user did. */
  #notice() {
    const { feed } = this.props;
    const { scrollTop, scrollHeight, clientHeight } = this.box.current;
    if (Math.abs(scrollTop - this.#expected) < 2) return false; // this code scrolled
    const isDown = scrollTop > this.#expected;
    const isNearEnd = scrollHeight - scrollTop - clientHeight < NEAR_END;
    this.#expected = scrollTop;
    if (isNearEnd && (isDown || feed.isFollowing)) {
      feed.isFollowing = true;
      this.#anchor = null;
    } else {
      feed.isFollowing = false;
      this.#anchor = this.#anchorAt(scrollTop);
    }
    return true;
  }

  onScroll = () => {
    // The event may come after the view is gone.
    if (this.box.current && this.#notice()) this.forceUpdate();
  };

  // --- the component ------------------------------------------------------------------------------------------

  componentDidMount() {
    this.#sizes = new ResizeObserver(() => this.#place(true));
    this.#sizes.observe(this.box.current);
    this.#place();
  }

  componentDidUpdate() {
    this.#place();
  }

  componentWillUnmount() {
    this.#sizes.disconnect();
    this.props.feed.anchor = this.#anchor;
  }

  render({ feed, session, isLeft, access, route }, { lane, isAll, isPlain }) {
    if (route !== this.#route) {
      this.#route = route;
      if (route.at !== null) this.show(route.at);
    }
    if (this.box.current) this.#notice(); // before rows change: afterwards the browser may have moved the view
    this.#rows();
    this.#plan();
    const previews = lane === "extension" ? [] : feed.previews.list();
    const past = pastOf(route);
    if (feed.isFollowing) this.#seen = null;
    else if (feed.hasCaughtUp) this.#seen ??= feed.position;
    const fresh = this.#seen === null ? 0 : feed.position - this.#seen;
    const isEmpty = feed.end <= feed.floor && previews.length === 0;
    return html`<div class="lanes" data-lane=${lane}>
      <${LaneBar} lane=${lane} isAll=${isAll} isPlain=${isPlain} choose=${this.choose}>
        <${FindBox} session=${session} feed=${feed} onShow=${this.showMatch} onFind=${this.find} />
      </${LaneBar}>
      <div class="laneheads" aria-hidden="true">
        <div class="llm"><b>LLM lane</b><span>what the model sees</span></div>
        <div class="spine">#</div>
        <div class="extension"><b>Extension lane</b><span>never reaches the model</span></div>
      </div>
      <div class="scroll" ref=${this.box} onScroll=${this.onScroll} tabindex="0" role="region" aria-label="Both lanes, by position">
        ${feed.floor > 0 ? html`<p class="floor">Entries up to #${count(feed.floor)} were trimmed and cannot be shown.</p>` : null}
        <ol class="rows" ref=${this.list}>
          ${this.#drawn.map(
            (row) => html`<${Row} key=${row.position} ...${row} session=${session} end=${feed.end} isTarget=${row.position === this.#target} isLater=${past !== null && row.position > past} isPlain=${isPlain} sought=${row.position === this.#target ? this.#sought : ""} isUnseen=${row.position === this.#unseen} isLive=${!(isLeft && past === null) && (past ?? feed.end) - row.position < 1000} isShared=${row.position <= feed.shared} access=${access} toggle=${this.toggle} />`,
          )}
        </ol>
        <ol class="speaking" aria-live="off">
          ${previews.map((preview) => html`<${PreviewRow} key=${`live-${preview.id}`} preview=${preview} isLeft=${isLeft} />`)}
        </ol>
        ${isEmpty ? html`<${Nothing} feed=${feed} access=${access} />` : null}
      </div>
      ${this.isMissing ? html`<p class="loading" role="status">Loading…</p>` : null}
      ${feed.isFollowing
        ? null
        : html`<button class="toend" type="button" onClick=${this.toEnd}>${fresh > 0 ? `${count(fresh)} new ↓` : "Go to newest ↓"}</button>`}
    </div>`;
  }
}

/** The view "Log". */
export const View = ({ session, feed, isLeft, access, route, setPosition }) =>
  feed
    ? html`<${Lanes} key=${session} session=${session} feed=${feed} version=${feed.version} isLeft=${isLeft} access=${access} route=${route} setPosition=${setPosition} />`
    : html`<div class="lanes"></div>`;

function Nothing({ feed, access }) {
  if (feed.state === "connecting" || (feed.state === "live" && !feed.hasCaughtUp)) return html`<div class="empty"><p>Loading…</p></div>`;
  if (feed.state !== "live" || feed.end > 0) return null; // all entries were trimmed: the line above says so
  const canBegin = may(access, "send");
  if (!isBegun(feed.session)) {
    const begin = () => {
      writeNext(feed.session);
      go(sessionLink(feed.session));
    };
    return html`<div class="empty">
      <h2>This session does not exist${canBegin ? " yet" : ""}</h2>
      <p>No entry was ever written to <code>${feed.session}</code>. If you followed a link or typed the address, check the id.</p>
      ${canBegin ? html`<p><button type="button" onClick=${begin}>Begin this session</button></p>` : null}
    </div>`;
  }
  return html`<div class="empty">
    <h2>No entries yet</h2>
    <p>Write to the agent below: the first message creates the session. Messages for the model appear on the left, events of the agent on the right, each at its position.</p>
  </div>`;
}
