// The page: which session is shown, and who draws what.
import { render } from "preact";
import { useCallback, useEffect, useReducer, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { getAccess, getStatus, getTurns, getUsage, listSessions } from "./api.js";
import { Composer } from "./composer.js";
import { Control, useOrders } from "./control.js";
import { Feed } from "./feed.js";
import { count } from "./format.js";
import { Lanes } from "./lanes.js";
import { Sessions } from "./sessions.js";
import { Turns } from "./turns.js";

const POLL_MS = 2500;
const NO_TURNS = { count: 0, turns: [], usage: null };

const shown = () => /^#\/s\/([A-Za-z0-9_-]{1,64})$/.exec(location.hash)?.[1] ?? null;

/** The session in the address, so that a reload and a bookmark come back to it. */
function useSelected() {
  const [selected, setSelected] = useState(shown);
  useEffect(() => {
    const onHash = () => setSelected(shown());
    addEventListener("hashchange", onHash);
    return () => removeEventListener("hashchange", onHash);
  }, []);
  return [selected, (session) => (location.hash = `/s/${session}`)];
}

/** The heads of all sessions, asked for while somebody looks. */
function useHeads() {
  const [heads, setHeads] = useState(null);
  const [fault, setFault] = useState(null);
  useEffect(() => {
    let isOver = false;
    let timer = null;
    const ask = async () => {
      clearTimeout(timer);
      if (!document.hidden) {
        try {
          const found = await listSessions();
          if (isOver) return;
          setHeads(found);
          setFault(null);
        } catch (error) {
          if (!isOver) setFault(error);
        }
      }
      if (!isOver) timer = setTimeout(ask, POLL_MS);
    };
    const onVisible = () => document.hidden || ask();
    document.addEventListener("visibilitychange", onVisible);
    ask();
    return () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, []);
  return [heads, fault];
}

function useFeed(session) {
  const [, draw] = useReducer((number) => number + 1, 0);
  const [feed, setFeed] = useState(null);
  useEffect(() => {
    if (session === null) return undefined;
    const opened = new Feed(session, () => draw());
    setFeed(opened);
    return () => {
      opened.close();
      setFeed(null);
    };
  }, [session]);
  return feed?.session === session ? feed : null;
}

const TURNS_MS = 350;
const STATUS_MS = 150;

const askTurns = async (session) => {
  const [turns, usage] = await Promise.all([getTurns(session), getUsage(session)]);
  return { ...turns, usage };
};

/** What the server makes of a session, asked for again a moment after it moved on, also while it never rests. */
function useAsked(session, position, get, delay) {
  const [found, setFound] = useState(null);
  const asker = useRef(null);
  useEffect(() => {
    if (session === null) return undefined;
    let isOver = false;
    let isAsking = false;
    let isStale = false;
    let timer = null;
    const ask = async () => {
      timer = null;
      isAsking = true;
      isStale = false;
      try {
        const answer = await get(session);
        if (!isOver) setFound({ session, answer });
      } catch {
        if (!isOver) timer = setTimeout(ask, POLL_MS); // what is wrong is shown beside the connection
      }
      isAsking = false;
      if (isStale) schedule(delay);
    };
    const schedule = (wait) => {
      if (isOver) return;
      if (isAsking) isStale = true;
      else timer ??= setTimeout(ask, wait);
    };
    asker.current = schedule;
    schedule(0);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [session]);
  useEffect(() => asker.current?.(delay), [position]);
  return found?.session === session ? found.answer : null;
}

/** Whether who looks may speak too; asked for once. */
function useAccess() {
  const [canWrite, setWrite] = useState(true);
  useEffect(() => {
    getAccess().then((access) => setWrite(access.canWrite), () => {});
  }, []);
  return canWrite;
}

function Connection({ feed, fault }) {
  const state = fault?.status === 401 ? "refused" : feed ? feed.state : fault ? "reconnecting" : "connecting";
  return html`<span class=${`connection ${state}`} role="status" data-state=${state}><i></i>${state === "behind" ? "catching up" : state}</span>`;
}

/** What the agent does, and the box to speak to it. */
function Speaking({ session, feed, isClosed, canWrite }) {
  const status = useAsked(session, feed?.position ?? 0, getStatus, STATUS_MS);
  const orders = useOrders(session);
  const isBusy = ["model", "tools", "waiting"].includes(status?.doing);
  return html`
    ${feed ? html`<${Control} feed=${feed} status=${status} orders=${orders} canWrite=${canWrite && !isClosed} />` : null}
    ${canWrite ? html`<${Composer} session=${session} isClosed=${isClosed} isBusy=${isBusy} orders=${orders} />` : html`<p class="onlooker">You may look here, and not speak.</p>`}
  `;
}

function App() {
  const [selected, select] = useSelected();
  const [heads, fault] = useHeads();
  const feed = useFeed(selected);
  const { count: turnCount, turns, usage } = useAsked(selected, feed?.position ?? 0, askTurns, TURNS_MS) ?? NO_TURNS;
  const canWrite = useAccess();
  const now = Date.now() / 1000;

  useEffect(() => {
    // Asked of the address itself: the user may have gone to a session since the last drawing.
    if (shown() === null && heads?.length) location.replace(`#/s/${heads[0].id}`);
    document.title = selected ? `${selected} · lanebus` : "lanebus";
  }, [selected, heads]);

  const showTurn = useCallback(
    async (turn) => {
      const position = turn.message ?? turn.prompts[0];
      if (!feed || !position) return;
      feed.isFollowing = false;
      await feed.loadEarlier(position - 20);
      // The frame after the one that draws the rows.
      requestAnimationFrame(() => requestAnimationFrame(() => {
        const row = document.querySelector(`[data-position="${position}"]`);
        row?.scrollIntoView({ block: "center" });
        row?.animate([{ opacity: 0.2 }, { opacity: 1 }], 600);
      }));
    },
    [feed],
  );

  const head = heads?.find((one) => one.id === selected);
  // The feed knows it first; the heads are asked for now and then.
  const isClosed = feed?.isClosed ?? head?.isClosed === true;
  const trouble = fault?.status === 401 ? fault.message : (feed?.error ?? (fault && !feed ? fault.message : null));
  return html`<div class="page">
    <header class="top">
      <h1><img src="/static/favicon.svg" alt="" width="22" height="22" />lanebus</h1>
      ${selected ? html`<span class="where">${selected}</span>` : null}
      ${feed && feed.position > 0 ? html`<span class="fact">position ${count(feed.position)}</span>` : null}
      ${isClosed ? html`<span class="fact closed">closed</span>` : null}
      <span class="spring"></span>
      <${Connection} feed=${feed} fault=${fault} />
    </header>
    <${Sessions} heads=${heads} selected=${selected} position=${feed?.position ?? 0} onSelect=${select} now=${now} />
    <main>
      ${trouble ? html`<p class="trouble" role="alert">${trouble}</p>` : null}
      ${selected === null
        ? html`<div class="empty"><h2>A session is one conversation with an agent</h2><p>Name one on the left, or press +. Its two lanes appear here, side by side, as they are written.</p></div>`
        : html`${feed ? html`<${Lanes} key=${selected} feed=${feed} version=${feed.version} />` : html`<div class="lanes"></div>`}
            <${Speaking} key=${`to-${selected}`} session=${selected} feed=${feed} isClosed=${isClosed} canWrite=${canWrite} />`}
    </main>
    <${Turns} count=${turnCount} turns=${turns} usage=${usage} onShow=${showTurn} />
  </div>`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
