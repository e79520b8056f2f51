// Shows what the agent does, with buttons to pause, resume and abort the agent and to answer approval requests.
import { html } from "./html.js";
import { Approval } from "./approval.js";
import { cut } from "./format.js";
import { usePassedFocus } from "./pass_focus.js";
import { may } from "./rights.js";

const ACTIVITIES = {
  idle: "idle",
  model: "calls the model",
  tools: "runs tools",
  waiting: "waits for you",
  paused: "paused",
  handoff: "handed to a person",
};

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
  return html`<span class=${`sent ${answer === null ? "" : outcome}`}>${sent.name} #${sent.position}: ${outcome}${answer?.reason ? ` (${cut(String(answer.reason), 200)})` : ""}</span>`;
}

/** A call that waits. After its answer, the focus goes to the next one, or to all that is shown of the agent. */
function Ask({ call, session, access, commandSender, isOpen }) {
  const { row, answer } = usePassedFocus(".control");
  const send = (command) => answer(commandSender.send(command));
  return html`<${Approval} row=${row} session=${session} call=${call} access=${access} isSending=${commandSender.isSending} send=${send} isOpen=${isOpen} />`;
}

/** `isOpen` is false while the session is closed: it takes no commands then. */
export function Control({ feed, status, commandSender, access, isOpen }) {
  // Hidden until the entries are loaded: a user must see a call before approving it.
  if (status === null || !feed.hasCaughtUp || (status.position === 0 && status.doing === "idle")) return null;
  const { doing, loop, waiting, commands } = status;
  const isHalted = doing === "paused" || doing === "handoff";
  const isBusy = doing === "model" || doing === "tools" || doing === "waiting";
  const button = (name, label, title) =>
    isOpen && may(access, `command.${name}`)
      ? html`<button type="button" disabled=${commandSender.isSending} title=${title} onClick=${() => commandSender.send({ command: name })}>${label}</button>`
      : null;
  // Commands of other users without an answer yet.
  const others = commands.filter((one) => one.position !== commandSender.sent?.position);
  return html`<section class="control" aria-label="The agent" tabindex="-1">
    <div class="state">
      <span class=${`doing ${doing}`} data-doing=${doing}><i></i>${ACTIVITIES[doing] ?? doing}${isBusy && loop?.turnIndex != null ? ` · turn ${loop.turnIndex}` : ""}</span>
      <span class="news" role="status">
        ${commandSender.sent ? html`<${Sent} feed=${feed} sent=${commandSender.sent} />` : null}
        ${others.length ? html`<span class="sent">${others.length === 1 ? `${others[0].kind} #${others[0].position} waits` : `${others.length} commands wait`}</span>` : null}
      </span>
      <span class="buttons">
        ${isHalted ? button("resume", "Resume", "Continue the paused loop, with messages sent since") : button("pause", "Pause", "Stop after the current turn")}
        ${isBusy || isHalted ? button("abort", "Abort", "End the running loop now") : null}
      </span>
    </div>
    ${commandSender.fault ? html`<p class="fault" role="alert">${commandSender.fault}</p>` : null}
    ${waiting.length
      ? html`<ul class="asks" aria-label="Tool calls that wait for you">
          ${waiting.map((call) => html`<${Ask} key=${call.toolCallId} session=${feed.session} call=${call} access=${access} commandSender=${commandSender} isOpen=${isOpen} />`)}
        </ul>`
      : null}
  </section>`;
}
