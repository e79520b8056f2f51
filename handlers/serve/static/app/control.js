// Shows what the agent does, with buttons to pause, resume and abort the agent, to answer approval requests, and to redrive
// a dead session.
import { useReducer, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { redrive } from "./api.js";
import { Approval, Unsent } from "./approval.js";
import { cut, visible } from "./format.js";
import { usePassedFocus } from "./pass_focus.js";
import { may, mayAnswer } from "./rights.js";
import { failureText, useStates } from "./states.js";

const WORK = { model: "calls the model", tools: "runs tools" };

/** Whether a loop of the agent runs, or waits for a person or a worker. */
export const isLoopOpen = (status) => ["model", "tools", "waiting", "queued"].includes(status?.doing);

/** Return the worker's answer to a command, or null if the worker has not answered yet. */
function outcomeOf(feed, position) {
  for (let at = feed.entries.length - 1; at >= 0 && feed.entries[at].position > position; at -= 1) {
    const message = feed.entries[at].message;
    if (message?.kind === "agent.control.answered" && message.data?.control === position) return message.data;
  }
  return null;
}

function Sent({ feed, sent }) {
  const answer = outcomeOf(feed, sent.position);
  const outcome = answer === null ? "waits for the worker" : String(answer.outcome);
  return html`<span class=${`sent ${answer === null ? "" : outcome}`}>${sent.name} ${sent.tool ? `${cut(sent.tool, 60)} ` : ""}#${sent.position}: ${outcome}${answer?.reason ? ` (${cut(visible(answer.reason), 200)})` : ""}</span>`;
}

/** A call that waits. After its answer, the focus goes to the next one, or to all that is shown of the agent. */
function Ask({ call, session, access, commandSender, isOpen, isHalted, isShown }) {
  const { row, answer } = usePassedFocus(".control");
  const send = (command, tool) => answer(commandSender.send(command, tool));
  return html`<${Approval} row=${{ ...row, hidden: !isShown, "data-call": call.toolCallId, "data-waits": call.decision ? null : row["data-waits"] }} session=${session} call=${call} access=${access} isSending=${commandSender.isSending} send=${send} unsent=${commandSender.unsent} isOpen=${isOpen} isHalted=${isHalted} />`;
}

/** Return `{at, show}`: the index of the call that is shown, and a function that shows another one by its id. */
function useShown(waiting) {
  const shown = useRef({ id: null, at: 0 });
  const [, draw] = useReducer((number) => number + 1, 0);
  // The same call while it waits, whatever comes and goes beside it; then the one in its place.
  const found = waiting.findIndex((call) => call.toolCallId === shown.current.id);
  const at = found >= 0 ? found : Math.max(0, Math.min(shown.current.at, waiting.length - 1));
  shown.current = { id: waiting[at]?.toolCallId ?? null, at };
  const show = (id) => {
    shown.current.id = id;
    draw();
  };
  return { at, show };
}

/** All calls that wait, of which one is shown: its buttons must be in view however many others wait. */
function Pager({ waiting, at, show }) {
  const step = (by) => show(waiting[(at + by + waiting.length) % waiting.length].toolCallId);
  return html`<span class="pager" role="group" aria-label="Calls that wait">
    <button type="button" aria-label="Previous call" onClick=${() => step(-1)}>‹</button>
    <span role="status">${at + 1} of ${waiting.length}</span>
    <button type="button" aria-label="Next call" onClick=${() => step(1)}>›</button>
  </span>`;
}

/** Why the session is dead or tried again, and a button that gives a dead one back to the workers. */
function Failure({ session, status, access, isOpen, onChanged }) {
  const [isSending, setSending] = useState(false);
  const [fault, setFault] = useState(null);
  const send = async () => {
    setSending(true);
    setFault(null);
    try {
      await redrive(session);
      onChanged();
    } catch (error) {
      setFault(error.message);
    }
    setSending(false);
  };
  const isDead = status.state === "dead";
  const text = failureText(status) ?? (isDead ? "Workers gave up." : null);
  if (text === null) return null;
  return html`<div class=${isDead ? "cause dead" : "cause"}>
    <p>${text}</p>
    ${isDead && isOpen && may(access, "redrive") ? html`<span class="buttons"><button type="button" disabled=${isSending} title="Give the session back to the workers" onClick=${send}>Redrive</button></span>` : null}
    ${fault ? html`<p class="fault" role="alert">${fault}</p>` : null}
  </div>`;
}

/** `isOpen` is false while the session is closed: it takes no commands then. */
export function Control({ feed, status, commandSender, access, isOpen, onChanged }) {
  const words = useStates();
  const { at, show } = useShown(status?.waiting ?? []);
  // Hidden until the entries are loaded: a user must see a call before approving it.
  if (status === null || !feed.hasCaughtUp || (status.position === 0 && status.doing === "idle")) return null;
  const { doing, loop, waiting, commands } = status;
  const state = isOpen ? status.state : "closed";
  const isHalted = doing === "paused" || doing === "handoff";
  const isBusy = isLoopOpen(status);
  const decided = new Set(waiting.map((call) => call.decision?.position));
  const button = (name, label, title) =>
    isOpen && may(access, `command.${name}`)
      ? html`<button type="button" disabled=${commandSender.isSending} title=${title} onClick=${() => commandSender.send({ command: name })}>${label}</button><${Unsent} when=${commandSender.unsent?.command === name} />`
      : null;
  const onFocus = (event) => show(event.target.closest("[data-call]").dataset.call);
  // Commands of other users without an answer yet.
  const others = commands.filter((one) => one.position !== commandSender.sent?.position && !decided.has(one.position));
  return html`<section class="control" aria-label="The agent" tabindex="-1">
    <div class="state">
      <span class=${`doing ${state}`} data-state=${state} data-doing=${doing}><i></i>${(state === "working" && WORK[doing]) || words[state] || state}${isBusy && loop?.turnIndex != null ? ` · turn ${loop.turnIndex}` : ""}</span>
      ${waiting.length > 1 ? html`<${Pager} waiting=${waiting} at=${at} show=${show} />` : null}
      <span class="news" role="status">
        ${commandSender.sent ? html`<${Sent} feed=${feed} sent=${commandSender.sent} />` : null}
        ${others.length ? html`<span class="sent">${others.length === 1 ? `${others[0].kind} #${others[0].position} waits` : `${others.length} commands wait`}</span>` : null}
      </span>
      <span class="buttons">
        ${isHalted ? button("resume", "Resume", "Continue the paused loop, with messages sent since") : button("pause", "Pause", "Stop after the current turn")}
        ${isBusy || isHalted ? button("abort", "Abort", "End the running loop now") : null}
      </span>
    </div>
    <${Failure} key=${`${state} ${status.position}`} session=${feed.session} status=${status} access=${access} isOpen=${isOpen} onChanged=${onChanged} />
    ${commandSender.fault ? html`<p class="fault" role="alert">${commandSender.fault}</p>` : null}
    ${waiting.length
      ? html`<ul class="asks" aria-label=${`Tool calls that wait for ${mayAnswer(access) ? "you" : "a person"}`} onfocusin=${onFocus}>
          ${waiting.map((call, index) => html`<${Ask} key=${call.toolCallId} session=${feed.session} call=${call} access=${access} commandSender=${commandSender} isOpen=${isOpen} isHalted=${isHalted} isShown=${index === at} />`)}
        </ul>`
      : null}
  </section>`;
}
