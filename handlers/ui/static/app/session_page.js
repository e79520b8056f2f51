// One session: its views, what the agent does, and the box for messages.
import { html } from "./html.js";
import { getStatus } from "./api.js";
import { Composer } from "./composer.js";
import { Control, useCommandSender } from "./control.js";
import { useView } from "./hooks.js";
import { go, sessionLink } from "./route.js";
import { Tabs, ViewOf, viewsFor } from "./session_views.js";
import { Scrub } from "./time/scrub.js";
import { pastOf, withPast } from "./time/travel.js";

const STATUS_MS = 150;

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

/** Show the entry at a position of a session in its log. */
export const showEntryOf =
  (session, past = null) =>
  (position) =>
    go(sessionLink(session, "log", position, withPast({}, past === null ? null : position)));

export function SessionPage({ route, feed, timeline, access, isClosed }) {
  const { session, view, at } = route;
  const past = pastOf(route);
  const setPosition = (position) => go(sessionLink(session, view, position, withPast(route.query, position)), true);
  const hasTabs = viewsFor(access).length > 1;
  return html`
    <${Tabs} session=${session} selected=${view} position=${at} query=${withPast({}, past)} access=${access} />
    ${hasTabs ? html`<${Scrub} key=${`scrub-${session}`} session=${session} feed=${feed} timeline=${timeline} access=${access} past=${past} setPast=${setPosition} />` : null}
    <div class="view" id="view" role=${hasTabs ? "tabpanel" : undefined} aria-labelledby=${hasTabs ? `tab-${view}` : undefined}>
      <${ViewOf} name=${view} session=${session} feed=${feed} timeline=${timeline} access=${access} route=${route} position=${past} setPosition=${setPosition} showEntry=${showEntryOf(session, past)} />
    </div>
    <div class="conversation" hidden=${past !== null}><${Conversation} key=${`to-${session}`} session=${session} feed=${feed} isClosed=${isClosed} canWrite=${access.canWrite} /></div>`;
}
