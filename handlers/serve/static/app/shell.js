// The frame of the page: the bar at the top, the list of sessions, the selected place, and the panel with the turns.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { getListed, getStatus, getTurns, getUsage } from "./api.js";
import { useChanges } from "./changes.js";
import { isBegun } from "./composer.js";
import { cut, visible } from "./format.js";
import { Help } from "./help.js";
import { useFeed, useView } from "./hooks.js";
import { Inbox, useWaiting } from "./inbox.js";
import { useShortcut } from "./keys.js";
import { Login } from "./login.js";
import { may, seesBothLanes } from "./rights.js";
import { currentRoute, go, sessionLink, useRoute } from "./route.js";
import { SessionHeader } from "./session_header.js";
import { ALL_SESSIONS, useSessionList } from "./session_list.js";
import { SessionPage, showEntryOf } from "./session_page.js";
import { viewsFor } from "./session_views.js";
import { Sessions } from "./sessions.js";
import { withStatus } from "./states.js";
import { useTimeline } from "./time/hooks.js";
import { turnsAt } from "./time/moment.js";
import { pastOf, withPast } from "./time/travel.js";
import { Top } from "./top.js";
import { Turns } from "./turns.js";

const TURNS_MS = 350;
const HEAD_MS = 500;
const STATUS_MS = 150;
const TITLES = { inbox: "Inbox", "no-session": "No such session" };
const NO_TURNS = { count: 0, turns: null, usage: null }; // not loaded yet

const getTurnsAndUsage = async (session) => {
  const [turns, usage] = await Promise.all([getTurns(session), getUsage(session)]);
  return { ...turns, usage };
};

/** A shortcut for each tab, which draws nothing. */
function TabShortcut({ view, number, route }) {
  useShortcut(String(number), "Session", `Show: ${view.label}`, () => route.session && go(sessionLink(route.session, view.name, route.at, withPast({}, pastOf(route)))));
  return null;
}

export function Shell({ access }) {
  const route = useRoute();
  const [query, setQuery] = useState(ALL_SESSIONS);
  const [isHelpOpen, setHelpOpen] = useState(false);
  const [isPanelOpen, setPanelOpen] = useState(false);
  const changes = useChanges();
  const selected = route.session;
  const feed = useFeed(selected);
  // The list and the inbox take the server up to a second at first: the entries in view come before them.
  const isHeld = selected !== null && !feed?.isReady && !feed?.error;
  const list = useSessionList(query, changes, isHeld);
  const waiting = useWaiting(changes, isHeld);
  const position = feed?.position ?? 0;
  const listed = list.rows?.find((one) => one.id === selected);
  // A session that is not among the loaded rows has a row of its own.
  const own = useView(listed || isHeld ? null : selected, position, getListed, HEAD_MS);
  const viewed = feed?.isReady && seesBothLanes(access) ? selected : null; // a long session's views take the server seconds
  const seesStatus = feed?.isReady && may(access, "read.status") && access.lanes.includes("extension");
  const [changed, setChanged] = useState(0);
  // Work that fails or is redriven appends nothing: the list, which is requested now and then, shows that the status is old.
  const seen = [position, listed?.state, listed?.failure?.attempts, changed].join(" ");
  const status = useView(seesStatus ? selected : null, seen, getStatus, STATUS_MS);
  const onChanged = () => {
    setChanged((number) => number + 1);
    list.refresh();
  };
  const { count: turnCount, turns, usage } = useView(viewed, position, getTurnsAndUsage, TURNS_MS) ?? NO_TURNS;
  const timeline = useTimeline(viewed, position);
  const past = pastOf(route);
  const then = past !== null && timeline ? turnsAt(timeline, past) : null;
  const now = Date.now() / 1000;

  useEffect(() => {
    // Read the place from the URL: the user may have selected a session since the page was last drawn.
    if (currentRoute().place === "" && list.rows?.length) go(sessionLink(list.rows[0].id), true);
  }, [selected, list.rows]);

  const known = listed ?? (own?.isMissing ? null : own);
  const head = withStatus(known, status);
  // A message skips calls that wait: it is not sent before the page knows whether some do.
  const isUnsure = !known && own === null && status === null && may(access, "read.status");
  const isMissing = !known && own !== null && position === 0 && !isBegun(selected);
  const title = selected ? head?.title || selected : (TITLES[route.place] ?? null);
  useEffect(() => {
    document.title = title ? `${title} · lanebus` : "lanebus";
  }, [title]);

  const isFirst = useRef(true);
  useEffect(() => {
    // What had the focus may be gone with the place before. On the first place, Tab begins at the top of the page.
    if (!isFirst.current && document.activeElement === document.body) document.getElementById("main").focus({ preventScroll: true });
    isFirst.current = false;
  }, [route.place, selected]);

  useShortcut("?", "Everywhere", "Show this sheet", () => setHelpOpen(true));
  useShortcut("g i", "Everywhere", "Inbox", () => go("#/inbox"));

  const showTurn = useCallback(
    (turn) => {
      const at = turn.message ?? turn.prompts[0];
      if (at) showEntryOf(selected, past)(at);
      setPanelOpen(false);
    },
    [selected, past !== null],
  );

  const fault = list.error;
  const isClosed = feed?.isClosed ?? head?.isClosed === true; // the feed is newer than the list
  const trouble = fault?.status === 401 ? fault.message : (feed?.error ?? (fault && !feed ? fault.message : null));
  const skip = (event) => {
    event.preventDefault(); // the hash is the place
    document.getElementById("main").focus();
  };
  return html`<div class="page" data-place=${selected ? "session" : route.place || "sessions"} data-view=${route.view}>
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <${Top} place=${route.place} feed=${feed} fault=${fault} access=${access} waiting=${waiting} onHelp=${() => setHelpOpen(true)} />
    <${Sessions} list=${list} query=${query} setQuery=${setQuery} selected=${selected} own=${own} position=${position} head=${head} canWrite=${may(access, "send")} now=${now} />
    <main id="main" tabindex="-1">
      ${trouble ? html`<p class="trouble" role="alert">${trouble}</p>` : null}
      ${fault?.status === 401 ? html`<${Login} />` : null}
      ${selected !== null
        ? html`<${SessionHeader} key=${`head-${selected}`} session=${selected} head=${head} isMissing=${isMissing} feed=${feed} access=${access} isClosed=${isClosed} isPanelOpen=${isPanelOpen} onPanel=${() => setPanelOpen(!isPanelOpen)} onChanged=${onChanged} />
            <${SessionPage} route=${route} feed=${feed} status=${status} head=${head} isUnsure=${isUnsure} timeline=${timeline} access=${access} isClosed=${isClosed} onChanged=${onChanged} />`
        : route.place === "inbox"
          ? html`<${Inbox} waiting=${waiting} access=${access} isLive=${changes.isLive} now=${now} />`
          : route.place === "no-session"
            ? html`<div class="empty"><h2>There is no such session</h2><p>${route.invalid ? html`The address names <code>${cut(visible(route.invalid), 200)}</code>. ` : null}The id of a session has 1 to 64 letters, digits, - and _.</p></div>`
            : html`<div class="empty"><h2>A session is one conversation with an agent</h2><p>Select one, or press + to open a new one. Its two lanes appear here side by side, live.</p></div>`}
    </main>
    ${selected !== null ? html`<${Turns} count=${then?.count ?? turnCount} turns=${then?.turns ?? turns} usage=${then?.usage ?? usage} isAllowed=${seesBothLanes(access)} origin=${head?.origin} onShow=${showTurn} isOpen=${isPanelOpen} onClose=${() => setPanelOpen(false)} />` : null}
    ${selected !== null ? viewsFor(access).map((view, index) => html`<${TabShortcut} key=${view.name} view=${view} number=${index + 1} route=${route} />`) : null}
    ${isHelpOpen ? html`<${Help} onClose=${() => setHelpOpen(false)} />` : null}
  </div>`;
}
