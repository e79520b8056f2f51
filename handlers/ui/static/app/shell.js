// The frame of the page: the bar at the top, the list of sessions, the selected place, and the panel with the turns.
import { useCallback, useEffect } from "preact/hooks";
import { html } from "./html.js";
import { getTurns, getUsage } from "./api.js";
import { count } from "./format.js";
import { useFeed, useHeads, useView } from "./hooks.js";
import { Login, LogOut } from "./login.js";
import { seesBothLanes } from "./rights.js";
import { currentRoute, go, sessionLink, useRoute } from "./route.js";
import { useTimeline } from "./time/hooks.js";
import { turnsAt } from "./time/moment.js";
import { pastOf } from "./time/travel.js";
import { SessionPage, showEntryOf } from "./session_page.js";
import { Sessions, needsWorker } from "./sessions.js";
import { Turns } from "./turns.js";

const TURNS_MS = 350;
const NO_TURNS = { count: 0, turns: [], usage: null };

const getTurnsAndUsage = async (session) => {
  const [turns, usage] = await Promise.all([getTurns(session), getUsage(session)]);
  return { ...turns, usage };
};

function Connection({ feed, fault }) {
  const state = fault?.status === 401 ? "refused" : feed ? feed.state : fault ? "reconnecting" : "connecting";
  return html`<span class=${`connection ${state}`} role="status" data-state=${state}><i></i>${state === "behind" ? "catching up" : state}</span>`;
}

export function Shell({ access }) {
  const route = useRoute();
  const [heads, fault] = useHeads();
  const selected = route.session;
  const feed = useFeed(selected);
  const { count: turnCount, turns, usage } = useView(seesBothLanes(access) ? selected : null, feed?.position ?? 0, getTurnsAndUsage, TURNS_MS) ?? NO_TURNS;
  const timeline = useTimeline(seesBothLanes(access) ? selected : null, feed?.position ?? 0);
  const past = pastOf(route);
  const then = past !== null && timeline ? turnsAt(timeline, past) : null;
  const now = Date.now() / 1000;

  useEffect(() => {
    // Read the place from the URL: the user may have selected a session since the page was last drawn.
    if (currentRoute().place === "" && heads?.length) go(sessionLink(heads[0].id), true);
    document.title = selected ? `${selected} · lanebus` : "lanebus";
  }, [selected, heads]);

  const showTurn = useCallback(
    (turn) => {
      const position = turn.message ?? turn.prompts[0];
      if (position) showEntryOf(selected, past)(position);
    },
    [selected, past !== null],
  );

  const head = heads?.find((one) => one.id === selected);
  // The feed is newer than the polled heads.
  const isClosed = feed?.isClosed ?? head?.isClosed === true;
  const trouble = fault?.status === 401 ? fault.message : (feed?.error ?? (fault && !feed ? fault.message : null));
  return html`<div class="page" data-view=${route.view}>
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
    <${Sessions} heads=${heads} selected=${selected} position=${feed?.position ?? 0} onSelect=${(session) => go(sessionLink(session))} now=${now} />
    <main>
      ${trouble ? html`<p class="trouble" role="alert">${trouble}</p>` : null}
      ${fault?.status === 401 ? html`<${Login} />` : null}
      ${selected === null
        ? html`<div class="empty"><h2>A session is one conversation with an agent</h2><p>Name one on the left, or press +. Its two lanes appear here side by side, live.</p></div>`
        : html`<${SessionPage} route=${route} feed=${feed} timeline=${timeline} access=${access} isClosed=${isClosed} />`}
    </main>
    <${Turns} count=${then?.count ?? turnCount} turns=${then?.turns ?? turns} usage=${then?.usage ?? usage} onShow=${showTurn} />
  </div>`;
}
