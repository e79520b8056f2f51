// The page: selects the session, and combines the parts.
import { render } from "preact";
import { useCallback, useEffect, useReducer, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { getAccess, getStatus, getTurns, getUsage, listSessions } from "./api.js";
import { Composer } from "./composer.js";
import { Control, useCommandSender } from "./control.js";
import { Feed } from "./feed.js";
import { count } from "./format.js";
import { Lanes } from "./lanes.js";
import { Login, LogOut } from "./login.js";
import { Sessions, needsWorker } from "./sessions.js";
import { onToken, takeToken } from "./token.js";
import { Turns } from "./turns.js";

const POLL_MS = 2500;
const NO_TURNS = { count: 0, turns: [], usage: null };

const shown = () => /^#\/s\/([A-Za-z0-9_-]{1,64})$/.exec(location.hash)?.[1] ?? null;

/** The session in the URL, so that a reload or a bookmark shows it again. */
function useSelected() {
  const [selected, setSelected] = useState(shown);
  useEffect(() => {
    const onHash = () => setSelected(shown());
    addEventListener("hashchange", onHash);
    onHash(); // it may have changed since the first drawing
    return () => removeEventListener("hashchange", onHash);
  }, []);
  return [selected, (session) => (location.hash = `/s/${session}`)];
}

/** The heads of all sessions, polled while the tab is visible. */
function useHeads() {
  const [heads, setHeads] = useState(null);
  const [fault, setFault] = useState(null);
  useEffect(() => {
    let isOver = false;
    let timer = null;
    const load = async () => {
      clearTimeout(timer);
      if (!document.hidden) {
        try {
          const found = await listSessions();
          if (isOver) return;
          setHeads(found);
          setFault(null);
        } catch (error) {
          if (isOver) return;
          setFault(error);
          if (error.status === 401) return; // asking again cannot help, and counts as another wrong token
        }
      }
      if (!isOver) timer = setTimeout(load, POLL_MS);
    };
    const onVisible = () => document.hidden || load();
    document.addEventListener("visibilitychange", onVisible);
    load();
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

const getTurnsAndUsage = async (session) => {
  const [turns, usage] = await Promise.all([getTurns(session), getUsage(session)]);
  return { ...turns, usage };
};

/** A view of a session, requested again `delay` milliseconds after a new entry, even while more entries arrive. */
function useView(session, position, get, delay) {
  const [found, setFound] = useState(null);
  const refresh = useRef(null);
  useEffect(() => {
    if (session === null) return undefined;
    let isOver = false;
    let isRequesting = false;
    let isStale = false;
    let timer = null;
    const load = async () => {
      timer = null;
      isRequesting = true;
      isStale = false;
      try {
        const answer = await get(session);
        if (!isOver) setFound({ session, answer });
      } catch (error) {
        // The connection indicator shows the error. A refusal does not go away.
        if (!isOver && error.status !== 401 && error.status !== 403) timer = setTimeout(load, POLL_MS);
      }
      isRequesting = false;
      if (isStale) schedule(delay);
    };
    const schedule = (wait) => {
      if (isOver) return;
      if (isRequesting) isStale = true;
      else timer ??= setTimeout(load, wait);
    };
    refresh.current = schedule;
    schedule(0);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [session]);
  useEffect(() => refresh.current?.(delay), [position]);
  return found?.session === session ? found.answer : null;
}

/** What the token allows: null until known; `{refused}` with the reason if the server does not know the token. */
function useAccess() {
  const [access, setAccess] = useState(null);
  useEffect(() => {
    let isOver = false;
    let timer = null;
    const load = () =>
      getAccess().then(
        (found) => isOver || setAccess(found),
        (error) => {
          if (isOver) return;
          if (error.status === 401) setAccess({ refused: error.message });
          else timer = setTimeout(load, POLL_MS);
        },
      );
    load();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, []);
  return access;
}

function Connection({ feed, fault }) {
  const state = fault?.status === 401 ? "refused" : feed ? feed.state : fault ? "reconnecting" : "connecting";
  return html`<span class=${`connection ${state}`} role="status" data-state=${state}><i></i>${state === "behind" ? "catching up" : state}</span>`;
}

/** The agent's status, and the box for messages to the agent. */
function Conversation({ session, feed, isClosed, canWrite }) {
  const status = useView(session, feed?.position ?? 0, getStatus, STATUS_MS);
  const commandSender = useCommandSender(session);
  const isBusy = ["model", "tools", "waiting"].includes(status?.doing);
  return html`
    ${feed ? html`<${Control} feed=${feed} status=${status} commandSender=${commandSender} canWrite=${canWrite && !isClosed} />` : null}
    ${canWrite ? html`<${Composer} session=${session} isClosed=${isClosed} isBusy=${isBusy} commandSender=${commandSender} />` : html`<p class="onlooker">This link is read-only: you cannot send messages.</p>`}
  `;
}

function App({ access }) {
  const [selected, select] = useSelected();
  const [heads, fault] = useHeads();
  const { canWrite, lanes } = access;
  const seesBoth = lanes.length === 2;
  const feed = useFeed(selected);
  const { count: turnCount, turns, usage } = useView(seesBoth ? selected : null, feed?.position ?? 0, getTurnsAndUsage, TURNS_MS) ?? NO_TURNS;
  const now = Date.now() / 1000;

  useEffect(() => {
    // Read the session from the URL: the user may have selected one since the page was last drawn.
    if (shown() === null && heads?.length) location.replace(`#/s/${heads[0].id}`);
    document.title = selected ? `${selected} · lanebus` : "lanebus";
  }, [selected, heads]);

  const showTurn = useCallback(
    async (turn) => {
      const position = turn.message ?? turn.prompts[0];
      if (!feed || !position) return;
      feed.isFollowing = false;
      await feed.loadEarlier(position - 20);
      // Wait for the frame after the one that draws the rows.
      requestAnimationFrame(() => requestAnimationFrame(() => {
        const row = document.querySelector(`[data-position="${position}"]`);
        row?.scrollIntoView({ block: "center" });
        row?.animate([{ opacity: 0.2 }, { opacity: 1 }], 600);
      }));
    },
    [feed],
  );

  const head = heads?.find((one) => one.id === selected);
  // The feed is newer than the polled heads.
  const isClosed = feed?.isClosed ?? head?.isClosed === true;
  const trouble = fault?.status === 401 ? fault.message : (feed?.error ?? (fault && !feed ? fault.message : null));
  return html`<div class="page">
    <header class="top">
      <h1><img src="/static/favicon.svg" alt="" width="22" height="22" />lanebus</h1>
      ${selected ? html`<span class="where">${selected}</span>` : null}
      ${feed && feed.position > 0 ? html`<span class="fact">position ${count(feed.position)}</span>` : null}
      ${head?.agent ? html`<span class=${`fact agent ${needsWorker(head) ? "lacking" : ""}`}>${needsWorker(head) ? `no worker serves ${head.agent}` : `agent ${head.agent}`}</span>` : null}
      ${isClosed ? html`<span class="fact closed">closed</span>` : null}
      <span class="spring"></span>
      <${Connection} feed=${feed} fault=${fault} />
      <${LogOut} name=${access.name} />
    </header>
    <${Sessions} heads=${heads} selected=${selected} position=${feed?.position ?? 0} onSelect=${select} now=${now} />
    <main>
      ${trouble ? html`<p class="trouble" role="alert">${trouble}</p>` : null}
      ${fault?.status === 401 ? html`<${Login} />` : null}
      ${selected === null
        ? html`<div class="empty"><h2>A session is one conversation with an agent</h2><p>Name one on the left, or press +. Its two lanes appear here side by side, live.</p></div>`
        : html`${feed ? html`<${Lanes} key=${selected} feed=${feed} version=${feed.version} />` : html`<div class="lanes"></div>`}
            <${Conversation} key=${`to-${selected}`} session=${selected} feed=${feed} isClosed=${isClosed} canWrite=${canWrite} />`}
    </main>
    <${Turns} count=${turnCount} turns=${turns} usage=${usage} onShow=${showTurn} />
  </div>`;
}

/** Asks for the token if it is unknown. A new token starts everything again. */
function Page() {
  const access = useAccess();
  if (access === null) return html`<p class="waiting" role="status">Connecting…</p>`;
  if (access.refused) return html`<${Login} fault=${access.refused} isPage />`;
  return html`<${App} access=${access} />`;
}

function Root() {
  const [turn, next] = useReducer((number) => number + 1, 0);
  useEffect(() => onToken(next), []);
  useEffect(() => {
    addEventListener("hashchange", takeToken); // the printed URL was opened in this tab again
    return () => removeEventListener("hashchange", takeToken);
  }, []);
  return html`<${Page} key=${turn} />`;
}

takeToken();
const root = document.getElementById("app");
root.textContent = "";
render(html`<${Root} />`, root);
