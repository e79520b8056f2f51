// Shows what the agent does, with buttons to pause, resume and abort the agent and to answer approval requests.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { getCall, newKey, sendCommand } from "./api.js";
import { visible } from "./format.js";

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

const RETRY_MS = 2500;

/** Request the whole call: what is approved must be seen. Null until it is loaded. */
function useCall(session, call) {
  const [found, setFound] = useState(null);
  const of = `${call.turnId?.loopId}#${call.turnId?.turnIndex} ${call.toolCallId}`;
  useEffect(() => {
    let isOver = false;
    let timer = null;
    const load = async () => {
      try {
        const answer = await getCall(session, call.toolCallId);
        if (!isOver) setFound({ of, answer });
      } catch (error) {
        if (!isOver) setFound({ of, fault: error.message });
        if (!isOver) timer = setTimeout(load, RETRY_MS);
      }
    };
    load();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [session, of]);
  return found?.of === of ? found : null;
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
  const found = useCall(feed.session, call);
  const whole = found?.answer ?? null;
  const about = { turnId: call.turnId, toolCallId: call.toolCallId };
  const approve = () => commandSender.send({ command: "approve", ...about, callHash: whole.callHash });
  const deny = () => commandSender.send({ command: "deny", ...about, ...(reason.trim() ? { reason: reason.trim() } : {}) });
  const name = visible(whole?.toolName ?? call.toolName);
  return html`<li class="ask">
    <p><code class="tool">${name}</code> <span>${WHY[call.why] ?? visible(call.why)}</span></p>
    ${whole === null
      ? html`<p class="note">${found?.fault ? `Its arguments cannot be loaded: ${found.fault}` : "Its arguments are loading."}</p>`
      : html`<div class="text code whole" tabindex="0" role="region" aria-label=${`All arguments of ${name}`}>${visible(whole.text)}</div>`}
    <div class="answers">
      <button type="button" class="yes" disabled=${commandSender.isSending || whole === null} onClick=${approve}>Approve</button>
      <button type="button" class="no" disabled=${commandSender.isSending} onClick=${deny}>Deny</button>
      <input value=${reason} onInput=${(event) => setReason(event.currentTarget.value)} placeholder="reason: kept in the log, not sent to the model" aria-label=${`Why ${name} is denied`} maxlength="500" />
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
              : html`<li key=${call.toolCallId} class="ask"><p><code class="tool">${visible(call.toolName)}</code> <span>${WHY[call.why] ?? visible(call.why)}</span></p></li>`,
          )}
        </ul>`
      : null}
  </section>`;
}
