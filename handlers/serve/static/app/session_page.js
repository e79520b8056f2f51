// One session: its views, what the agent does, and the box for messages.
import { html } from "./html.js";
import { useCommandSender } from "./approval.js";
import { Composer } from "./composer.js";
import { Control, isLoopOpen } from "./control.js";
import { isReadOnly, may } from "./rights.js";
import { go, sessionLink } from "./route.js";
import { Tabs, ViewOf, viewsFor } from "./session_views.js";
import { Scrub } from "./time/scrub.js";
import { pastOf, withPast } from "./time/travel.js";

/** The agent's status, and the box for messages to the agent. */
function Conversation({ session, feed, status, head, isUnsure, isClosed, access, hasComposer, onChanged }) {
  const isLive = feed?.state === "live";
  const commandSender = useCommandSender(session, isLive);
  const isBusy = isLoopOpen(status);
  const waiting = head?.waiting ?? status?.waiting.filter((call) => !call.decision).length ?? 0;
  const composer = may(access, "send")
    ? html`<${Composer} session=${session} access=${access} isLive=${isLive} isAway=${feed?.state === "reconnecting"} isClosed=${isClosed} isBusy=${isBusy} isUnsure=${isUnsure} waiting=${waiting} decided=${(status?.waiting.length ?? waiting) - waiting} commandSender=${commandSender} />`
    : html`<p class="onlooker">${isReadOnly(access) ? "This link is read-only: you cannot send messages." : "You may not send messages to this session."}</p>`;
  return html`
    ${feed ? html`<${Control} feed=${feed} status=${status} commandSender=${commandSender} access=${access} isOpen=${!isClosed} onChanged=${onChanged} />` : null}
    ${hasComposer ? composer : null}
  `;
}

/** Show the entry at a position of a session in its log. */
export const showEntryOf =
  (session, past = null) =>
  (position) =>
    go(sessionLink(session, "log", position, withPast({}, past === null ? null : position)));

export function SessionPage({ route, feed, status, head, isUnsure, timeline, access, isClosed, onChanged }) {
  const { session, at } = route;
  const views = viewsFor(access);
  const view = views.some((one) => one.name === route.view) ? route.view : views[0].name;
  const past = pastOf(route);
  // The recorded request of a turn is of one position: another position is left with that of its own turn.
  const setPosition = (position) => go(sessionLink(session, view, position, withPast({ ...route.query, turn: null }, position)), true);
  const hasTabs = views.length > 1;
  return html`
    <${Tabs} session=${session} selected=${view} position=${at} query=${withPast({}, past)} access=${access} />
    ${hasTabs ? html`<${Scrub} key=${`scrub-${session}`} session=${session} feed=${feed} timeline=${timeline} access=${access} view=${view} past=${past} setPast=${setPosition} />` : null}
    <div class="view" id="view" role=${hasTabs ? "tabpanel" : undefined} aria-labelledby=${hasTabs ? `tab-${view}` : undefined}>
      <${ViewOf} name=${view} session=${session} feed=${feed} timeline=${timeline} isLeft=${status?.state === "queued"} access=${access} route=${route} position=${past} setPosition=${setPosition} showEntry=${showEntryOf(session, past)} />
    </div>
    <div class="conversation" hidden=${past !== null}><${Conversation} key=${`to-${session}`} session=${session} feed=${feed} status=${status} head=${head} isUnsure=${isUnsure} isClosed=${isClosed} access=${access} hasComposer=${view === "log"} onChanged=${onChanged} /></div>`;
}
