// What waits for a person, across all sessions.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { listWaiting } from "./api.js";
import { Approval, useCommandSender } from "./approval.js";
import { ago, count, dateTime, readText } from "./format.js";
import { usePassedFocus } from "./pass_focus.js";
import { usePolled } from "./polled.js";
import { mayAnswer } from "./rights.js";
import { sessionLink } from "./route.js";

/**
 * Return `{calls, all, progress, fault, refresh}`: the calls that wait. `calls` is null until the first answer. `progress`
 * is `{sessions, read}` until the server has read all sessions, and null then: before, calls may be missing.
 */
export function useWaiting(changes, isHeld) {
  const [found, setFound] = useState({ calls: null, all: 0, progress: null, fault: null });
  const load = async (isOver) => {
    try {
      const answer = await listWaiting();
      if (isOver()) return "stop";
      setFound({ calls: answer.waiting, all: answer.count, progress: answer.isComplete ? null : answer.progress, fault: null });
      return answer.isComplete ? undefined : "soon";
    } catch (error) {
      if (isOver() || error.status === 401 || error.status === 403) return "stop";
      setFound((before) => ({ ...before, fault: error.message }));
      return undefined;
    }
  };
  const refresh = usePolled(load, changes, "waiting", isHeld);
  return { ...found, refresh };
}

function WaitingCall({ call, access, isLive, now, onAnswered }) {
  const sender = useCommandSender(call.session, isLive);
  const { sent } = sender;
  // Until the server tells the decision, what was sent is known here alone.
  const decision = call.decision ?? (sent ? { decision: sent.name, by: access.name, position: sent.position } : null);
  const { row, answer } = usePassedFocus("#inbox-title");
  const send = async (command, tool) => {
    const isSent = await answer(sender.send(command, tool));
    if (isSent) onAnswered();
    return isSent;
  };
  return html`<li class="waitingcall" ...${row}>
    <header>
      <h3><a href=${sessionLink(call.session, "log", call.position)}>${call.title || call.session}</a></h3>
      <span class="facts"><span class="name">${call.session}</span>${call.turnId ? html`<span>turn ${call.turnId.turnIndex}</span>` : null}${call.since ? html`<time title=${dateTime(call.since)}>for ${ago(call.since, now)}</time>` : null}</span>
    </header>
    <ul><${Approval} session=${call.session} call=${{ ...call, decision }} access=${access} isSending=${sender.isSending} send=${send} unsent=${sender.unsent} /></ul>
    ${decision ? html`<p class="facts"><a href=${sessionLink(call.session, "log", decision.position)}>Entry #${decision.position}</a></p>` : null}
    ${sender.fault ? html`<p class="fault" role="alert">${sender.fault}</p>` : null}
  </li>`;
}

export function Inbox({ waiting, access, isLive, now }) {
  const { calls, all, progress, fault, refresh } = waiting;
  const asked = (calls ?? []).filter((call) => !call.decision).length;
  return html`<section class="inbox" aria-labelledby="inbox-title">
    <header class="head"><h2 id="inbox-title" tabindex="-1">Inbox</h2><p class="hint">Tool calls of all sessions that wait for a person</p></header>
    ${fault ? html`<p class="trouble" role="alert">${fault}</p>` : null}
    ${calls === null
      ? html`<p class="hint" role="status">Loading…</p>`
      : calls.length === 0
        ? progress ? null : html`<div class="empty"><h3>Nothing waits for ${mayAnswer(access) ? "you" : "a person"}</h3><p>When an agent asks for approval, its call appears here, with all arguments.</p></div>`
        : html`<ul class="waitingcalls">${calls.map((call) => html`<${WaitingCall} key=${`${call.session} ${call.turnId?.loopId} ${call.turnId?.turnIndex} ${call.toolCallId}`} call=${call} access=${access} isLive=${isLive} now=${now} onAnswered=${refresh} />`)}</ul>`}
    ${all > asked ? html`<p class="hint">and ${count(all - asked)} more</p>` : null}
    ${progress ? html`<p class="hint" role="status">${calls.length ? "More calls may wait" : "Looking for calls that wait"}: ${readText(progress)}</p>` : null}
  </section>`;
}
