// One session: its views, what the agent does, and the box for messages.
import { html } from "./html.js";
import { getStatus } from "./api.js";
import { useCommandSender } from "./approval.js";
import { Composer } from "./composer.js";
import { Control } from "./control.js";
import { useView } from "./hooks.js";
import { may } from "./rights.js";
import { go, sessionLink } from "./route.js";
import { Tabs, VIEWS, ViewOf } from "./session_views.js";

const STATUS_MS = 150;

/** The agent's status, and the box for messages to the agent. */
function Conversation({ session, feed, isClosed, access, hasComposer }) {
  const seesStatus = may(access, "read.status") && access.lanes.includes("extension");
  const status = useView(seesStatus ? session : null, feed?.position ?? 0, getStatus, STATUS_MS);
  const commandSender = useCommandSender(session);
  const isBusy = ["model", "tools", "waiting"].includes(status?.doing);
  const composer = may(access, "send")
    ? html`<${Composer} session=${session} access=${access} isClosed=${isClosed} isBusy=${isBusy} commandSender=${commandSender} />`
    : html`<p class="onlooker">This link is read-only: you cannot send messages.</p>`;
  return html`
    ${feed ? html`<${Control} feed=${feed} status=${status} commandSender=${commandSender} access=${access} isOpen=${!isClosed} />` : null}
    ${hasComposer ? composer : null}
  `;
}

/** Show the entry at a position of a session in its log. */
export const showEntryOf = (session) => (position) => go(sessionLink(session, "log", position));

export function SessionPage({ route, feed, access, isClosed }) {
  const { session, at } = route;
  const view = VIEWS.some((one) => one.name === route.view) ? route.view : VIEWS[0].name;
  const setPosition = (position) => go(sessionLink(session, view, position, route.query), true);
  const hasTabs = VIEWS.length > 1;
  return html`
    <${Tabs} session=${session} selected=${view} position=${at} />
    <div class="view" id="view" role=${hasTabs ? "tabpanel" : undefined} aria-labelledby=${hasTabs ? `tab-${view}` : undefined}>
      <${ViewOf} name=${view} session=${session} feed=${feed} access=${access} route=${route} position=${at} setPosition=${setPosition} showEntry=${showEntryOf(session)} />
    </div>
    <${Conversation} key=${`to-${session}`} session=${session} feed=${feed} isClosed=${isClosed} access=${access} hasComposer=${view === "log"} />`;
}
