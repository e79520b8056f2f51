// Shows what the agent does, with buttons to pause, resume and abort the agent and to answer approval requests.
import { useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { newKey, sendCommand } from "./api.js";
import { Text } from "./blocks.js";
import { pretty } from "./format.js";

const ACTIVITIES = {
  idle: "idle",
  model: "calls the model",
  tools: "runs tools",
  waiting: "waits for you",
  paused: "paused",
  handoff: "handed to a person",
};

const WHY = {
  approval: "needs your approval to run",
  unknown: "was started, but its result is unknown. Run it again?",
};

/** Return the arguments of a tool call, from the message that contains it. */
function argumentsOf(feed, call) {
  for (let at = feed.entries.length - 1; at >= 0; at -= 1) {
    const message = feed.entries[at].message;
    if (message?.role !== "assistant") continue;
    const block = message.content?.find((one) => one.type === "toolCall" && one.id === call.toolCallId);
    if (block) return block.argumentsRaw ?? pretty(block.arguments);
  }
  return null;
}

/** Return the worker's answer to a command, or null if the worker has not answered yet. */
function outcomeOf(feed, position) {
  for (let at = feed.entries.length - 1; at >= 0 && feed.entries[at].position > position; at -= 1) {
    const message = feed.entries[at].message;
    if (message?.kind === "agent.control.answered" && message.data?.control === position) return message.data;
  }
  return null;
}

/** Sends commands one at a time. A failed command is retried with the same key, so it is added only once. */
export function useCommandSender(session) {
  const [sent, setSent] = useState(null);
  const [isSending, setSending] = useState(false);
  const [fault, setFault] = useState(null);
  const attempt = useRef(null);
  const send = async (command) => {
    if (isSending) return false;
    const text = JSON.stringify(command);
    if (attempt.current?.text !== text) attempt.current = { text, key: newKey() };
    setSending(true);
    setFault(null);
    try {
      const position = await sendCommand(session, command, attempt.current.key);
      attempt.current = null;
      setSent({ name: command.command, position });
      return true;
    } catch (error) {
      setFault(error.message);
      return false;
    } finally {
      setSending(false);
    }
  };
  return { send, sent, isSending, fault };
}

function Sent({ feed, sent }) {
  const answer = outcomeOf(feed, sent.position);
  const outcome = answer === null ? "waits for the worker" : String(answer.outcome);
  return html`<span class=${`sent ${answer === null ? "" : outcome}`}>${sent.name} #${sent.position}: ${outcome}${answer?.reason ? ` (${String(answer.reason).slice(0, 200)})` : ""}</span>`;
}

function Approval({ call, feed, commandSender }) {
  const [reason, setReason] = useState("");
  const text = argumentsOf(feed, call);
  const about = { turnId: call.turnId, toolCallId: call.toolCallId };
  const deny = () => commandSender.send({ command: "deny", ...about, ...(reason.trim() ? { reason: reason.trim() } : {}) });
  return html`<li class="ask">
    <p><code class="tool">${call.toolName}</code> <span>${WHY[call.why] ?? call.why}</span></p>
    ${text === null ? html`<p class="note">Its arguments are in an earlier entry: load earlier entries to see them.</p>` : html`<${Text} text=${text} kind="code" />`}
    <div class="answers">
      <button type="button" class="yes" disabled=${commandSender.isSending} onClick=${() => commandSender.send({ command: "approve", ...about })}>Approve</button>
      <button type="button" class="no" disabled=${commandSender.isSending} onClick=${deny}>Deny</button>
      <input value=${reason} onInput=${(event) => setReason(event.currentTarget.value)} placeholder="reason, for the log only" aria-label=${`Why ${call.toolName} is denied`} maxlength="500" />
    </div>
  </li>`;
}

export function Control({ feed, status, commandSender, canWrite }) {
  // Hidden until the entries are loaded: a user must see a call before approving it.
  if (status === null || !feed.hasCaughtUp || (status.position === 0 && status.doing === "idle")) return null;
  const { doing, loop, waiting, commands } = status;
  const isHalted = doing === "paused" || doing === "handoff";
  const isBusy = doing === "model" || doing === "tools" || doing === "waiting";
  const button = (name, label, title) =>
    html`<button type="button" disabled=${commandSender.isSending} title=${title} onClick=${() => commandSender.send({ command: name })}>${label}</button>`;
  // Commands of other users without an answer yet.
  const others = commands.filter((one) => one.position !== commandSender.sent?.position);
  return html`<section class="control" aria-label="The agent">
    <div class="state">
      <span class=${`doing ${doing}`} data-doing=${doing}><i></i>${ACTIVITIES[doing] ?? doing}${isBusy && loop?.turnIndex != null ? ` · turn ${loop.turnIndex}` : ""}</span>
      <span class="news" role="status">
        ${commandSender.sent ? html`<${Sent} feed=${feed} sent=${commandSender.sent} />` : null}
        ${others.length ? html`<span class="sent">${others.length === 1 ? `${others[0].kind} #${others[0].position} waits` : `${others.length} commands wait`}</span>` : null}
      </span>
      ${canWrite
        ? html`<span class="buttons">
            ${isHalted ? button("resume", "Resume", "Continue the paused loop, with messages sent since") : button("pause", "Pause", "Stop after the current turn")}
            ${isBusy || isHalted ? button("abort", "Abort", "End the running loop now") : null}
          </span>`
        : null}
    </div>
    ${commandSender.fault ? html`<p class="fault" role="alert">${commandSender.fault}</p>` : null}
    ${waiting.length
      ? html`<ul class="asks" aria-label="Tool calls that wait for you">
          ${waiting.map((call) =>
            canWrite
              ? html`<${Approval} key=${call.toolCallId} call=${call} feed=${feed} commandSender=${commandSender} />`
              : html`<li key=${call.toolCallId} class="ask"><p><code class="tool">${call.toolName}</code> <span>${WHY[call.why] ?? call.why}</span></p></li>`,
          )}
        </ul>`
      : null}
  </section>`;
}
