// What a session is: its title, id, state and agent, and the buttons that concern all of it.
import { html } from "./html.js";
import { CopyIcon } from "./copy.js";
import { count, money } from "./format.js";
import { Back, Panel } from "./icons.js";
import { Operate } from "./operate.js";
import { sessionLink } from "./route.js";
import { State, needsWorker } from "./states.js";

export function SessionHeader({ session, head, isMissing, feed, access, isClosed, isPanelOpen, onPanel, onChanged }) {
  const position = feed?.position ?? 0;
  const origin = head?.origin;
  return html`<header class="sessionhead">
    <a class="icon back" href="#/sessions" aria-label="All sessions"><${Back} /></a>
    <div class="names">
      <h2>${head?.title || session}</h2>
      <p class="facts">
        <${State} state=${isClosed ? "closed" : head?.state} waiting=${head?.waiting} failure=${head?.failure} />
        ${isMissing ? html`<span class="badge missing">does not exist</span>` : null}
        <span class="where">${session}</span><${CopyIcon} text=${() => session} label="Copy the id" />
        ${head?.agent ? html`<span class=${`fact agent ${needsWorker(head) ? "lacking" : ""}`}>${needsWorker(head) ? `no worker serves ${head.agent}` : `agent ${head.agent}`}</span>` : null}
        ${position > 0 ? html`<span class="fact">position ${count(position)}</span>` : null}
        ${head?.isRead === false ? html`<span class="fact">still reading…</span>` : null}
        ${head?.cost != null ? html`<span class="fact">${money({ total: head.cost })}</span>` : null}
        ${origin ? html`<span class="fact">fork of <a href=${sessionLink(origin.session, "log", origin.position)}>${origin.session} at #${count(origin.position)}</a></span>` : null}
      </p>
    </div>
    <${Operate} session=${session} head=${head} position=${position} access=${access} isClosed=${isClosed} onChanged=${onChanged} />
    <button type="button" class="icon panel" aria-label="Turns and cost" title="Turns and cost" aria-expanded=${isPanelOpen} aria-controls="panel" onClick=${onPanel}><${Panel} /></button>
  </header>`;
}
