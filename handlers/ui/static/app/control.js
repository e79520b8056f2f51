// What the agent does, and the buttons that stop it, let it go on, and answer what it asks.
import { useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { newKey, order } from "./api.js";
import { Text } from "./blocks.js";
import { pretty } from "./format.js";

const DOES = {
  idle: "idle",
  model: "asks the model",
  tools: "runs tools",
  waiting: "waits for you",
  paused: "paused",
  handoff: "handed to a person",
};

const WHY = {
  approval: "asks before it runs",
  unknown: "was started, and nobody knows what came of it; run it again?",
};

/** The arguments of a call, from the message that made it. */
function argumentsOf(feed, call) {
  for (let at = feed.entries.length - 1; at >= 0; at -= 1) {
    const message = feed.entries[at].message;
    if (message?.role !== "assistant") continue;
    const block = message.content?.find((one) => one.type === "toolCall" && one.id === call.toolCallId);
    if (block) return block.argumentsRaw ?? pretty(block.arguments);
  }
  return null;
}

/** What became of a command: the worker's own words, once it has said any. */
function outcomeOf(feed, position) {
  for (let at = feed.entries.length - 1; at >= 0 && feed.entries[at].position > position; at -= 1) {
    const message = feed.entries[at].message;
    if (message?.kind === "agent.control.answered" && message.data?.control === position) return message.data;
  }
  return null;
}

/** Sends commands one at a time. A failed one that is tried again has the same key: it is one command. */
export function useOrders(session) {
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
      const position = await order(session, command, attempt.current.key);
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

function Ask({ call, feed, orders }) {
  const [reason, setReason] = useState("");
  const said = argumentsOf(feed, call);
  const about = { turnId: call.turnId, toolCallId: call.toolCallId };
  const deny = () => orders.send({ command: "deny", ...about, ...(reason.trim() ? { reason: reason.trim() } : {}) });
  return html`<li class="ask">
    <p><code class="tool">${call.toolName}</code> <span>${WHY[call.why] ?? call.why}</span></p>
    ${said === null ? html`<p class="note">Its arguments stand further up: load earlier entries to see them.</p>` : html`<${Text} text=${said} kind="code" />`}
    <div class="answers">
      <button type="button" class="yes" disabled=${orders.isSending} onClick=${() => orders.send({ command: "approve", ...about })}>Approve</button>
      <button type="button" class="no" disabled=${orders.isSending} onClick=${deny}>Deny</button>
      <input value=${reason} onInput=${(event) => setReason(event.currentTarget.value)} placeholder="why not, for the model" aria-label=${`Why ${call.toolName} is denied`} maxlength="500" />
    </div>
  </li>`;
}

export function Control({ feed, status, orders, canWrite }) {
  // Nobody is to approve what they cannot see yet.
  if (status === null || !feed.hasCaughtUp || (status.position === 0 && status.doing === "idle")) return null;
  const { doing, loop, waiting, commands } = status;
  const isHalted = doing === "paused" || doing === "handoff";
  const isBusy = doing === "model" || doing === "tools" || doing === "waiting";
  const button = (name, label, title) =>
    html`<button type="button" disabled=${orders.isSending} title=${title} onClick=${() => orders.send({ command: name })}>${label}</button>`;
  // A command of somebody else's that no worker has taken yet.
  const others = commands.filter((one) => one.position !== orders.sent?.position);
  return html`<section class="control" aria-label="The agent">
    <div class="state">
      <span class=${`doing ${doing}`} data-doing=${doing}><i></i>${DOES[doing] ?? doing}${isBusy && loop?.turnIndex != null ? ` · turn ${loop.turnIndex}` : ""}</span>
      <span class="news" role="status">
        ${orders.sent ? html`<${Sent} feed=${feed} sent=${orders.sent} />` : null}
        ${others.length ? html`<span class="sent">${others.length === 1 ? `${others[0].kind} #${others[0].position} waits` : `${others.length} commands wait`}</span>` : null}
      </span>
      ${canWrite
        ? html`<span class="buttons">
            ${isHalted ? button("resume", "Resume", "Go on with what was left, and with what was said since") : button("pause", "Pause", "Stop after the turn that is under way")}
            ${isBusy || isHalted ? button("abort", "Abort", "End what the agent does, now") : null}
          </span>`
        : null}
    </div>
    ${orders.fault ? html`<p class="fault" role="alert">${orders.fault}</p>` : null}
    ${waiting.length
      ? html`<ul class="asks" aria-label="Calls that wait for you">
          ${waiting.map((call) =>
            canWrite
              ? html`<${Ask} key=${call.toolCallId} call=${call} feed=${feed} orders=${orders} />`
              : html`<li key=${call.toolCallId} class="ask"><p><code class="tool">${call.toolName}</code> <span>${WHY[call.why] ?? call.why}</span></p></li>`,
          )}
        </ul>`
      : null}
  </section>`;
}
