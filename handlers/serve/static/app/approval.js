// A tool call that waits for a person: the whole call, with buttons to approve and to deny it.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { getCall, newKey, sendCommand } from "./api.js";
import { draftOf, keepDraft } from "./drafts.js";
import { count, visible } from "./format.js";
import { useFault } from "./hooks.js";
import { usePressGuard } from "./press_guard.js";
import { may } from "./rights.js";
import { decisionText } from "./states.js";

const BEGUN = "was started, but its result is unknown. It may have done its work already";

/** Why a call waits, in words. It asks only a user who may approve it. */
const whyOf = (why, mayApprove) =>
  ({
    approval: mayApprove ? "needs your approval to run" : "needs an approval to run",
    unknown: mayApprove ? `${BEGUN}, and would then do it twice. Run it again?` : BEGUN,
  })[why] ?? visible(why);

const RETRY_MS = 2500;

const nameOf = (call) => `${call.turnId?.loopId}#${call.turnId?.turnIndex} ${call.toolCallId}`;

/** Request the whole call: what is approved must be seen. Null until it is loaded. */
function useCall(session, call, canSee) {
  const [found, setFound] = useState(null);
  const of = nameOf(call);
  useEffect(() => {
    if (!canSee) return undefined;
    let isOver = false;
    let timer = null;
    const load = async () => {
      try {
        const answer = await getCall(session, call.toolCallId);
        if (!isOver) setFound({ of, answer });
      } catch (error) {
        if (!isOver) setFound({ of, fault: error.message });
        if (!isOver && error.status !== 401 && error.status !== 403) timer = setTimeout(load, RETRY_MS);
      }
    };
    load();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [session, of, canSee]);
  return found?.of === of ? found : null;
}

/**
 * Sends commands one at a time. A failed command is retried with the same key, so it is added only once. `send` also takes the
 * name of the tool that the command is about. `unsent` is the command that did not reach the server, until the page `isLive`
 * again or another one is sent.
 */
export function useCommandSender(session, isLive) {
  const [sent, setSent] = useState(null);
  const [isSending, setSending] = useState(false);
  const [fault, setFault] = useFault(isLive);
  const attempt = useRef(null);
  const send = async (command, tool = null) => {
    if (isSending) return false;
    const text = JSON.stringify(command);
    if (attempt.current?.text !== text) attempt.current = { text, key: newKey() };
    setSending(true);
    setFault(null);
    try {
      const position = await sendCommand(session, command, attempt.current.key);
      attempt.current = null;
      setSent({ name: command.command, tool, position });
      return true;
    } catch (error) {
      setFault(error);
      return false;
    } finally {
      setSending(false);
    }
  };
  const unsent = fault?.isAway ? JSON.parse(attempt.current.text) : null;
  return { send, sent, isSending, fault: fault?.message ?? null, unsent };
}

/** Says at a button that what it sends did not reach the server. */
export const Unsent = ({ when }) => (when ? html`<span class="unsent" title="Press again: what arrived nevertheless is not added twice">not sent</span>` : null);

/** Draws all arguments of a call in a box that scrolls, and how many lines follow below what is in view. */
function Whole({ name, text }) {
  const box = useRef(null);
  const [below, setBelow] = useState(0);
  const measure = () => {
    const { scrollHeight, clientHeight, scrollTop } = box.current;
    setBelow(Math.round((scrollHeight - clientHeight - scrollTop) / parseFloat(getComputedStyle(box.current).lineHeight)));
  };
  useLayoutEffect(() => {
    measure();
    const sizes = new ResizeObserver(() => box.current && measure());
    sizes.observe(box.current);
    return () => sizes.disconnect();
  }, [text]);
  return html`<div class="text code whole" ref=${box} tabindex="0" role="group" aria-label=${`All arguments of ${name}`} onScroll=${measure}>${text}</div>
    <p class="below note" aria-hidden="true">${below > 0 ? `… ${count(below)} more ${below === 1 ? "line" : "lines"}` : ""}</p>`;
}

/** `send` sends the answer about the named tool, and returns whether it was sent. `unsent` is the command that did not reach the server. `row` has more attributes of the element. */
export function Approval({ session, call, access, isSending, send, unsent, isOpen = true, isHalted = false, row = null }) {
  const draft = `${session} ${nameOf(call)}`; // no session's: an id has no space
  const [reason, setReason] = useState(() => draftOf(access.name, draft));
  const isAsked = isOpen && !call.decision;
  const canApprove = isAsked && may(access, "command.approve");
  const canDeny = isAsked && may(access, "command.deny");
  const canSee = may(access, "read.call") && access.lanes.includes("llm");
  const found = useCall(session, call, canSee);
  const whole = found?.answer ?? null;
  const about = { turnId: call.turnId, toolCallId: call.toolCallId };
  const { ref, isMeant } = usePressGuard(`${isAsked} ${row?.hidden} ${whole?.callHash}`);
  const pressed = (act) => (event) => isMeant(event) && act();
  const write = (text) => {
    setReason(text);
    keepDraft(access.name, draft, text);
  };
  const answer = async (command) => (await send(command, name)) && keepDraft(access.name, draft, "");
  const isUnsent = (name) => unsent?.command === name && nameOf(unsent) === nameOf(call);
  const approve = () => answer({ command: "approve", ...about, callHash: whole.callHash });
  const deny = () => answer({ command: "deny", ...about, ...(reason.trim() ? { reason: reason.trim() } : {}) });
  const name = visible(whole?.toolName ?? call.toolName);
  // The arguments have an element of their own: otherwise Preact moves what follows when they arrive, and a user who types loses the focus.
  return html`<li class=${call.decision ? "ask over" : "ask"} ...${row}>
    <p><code class="tool">${name}</code> ${call.decision ? null : html`<span>${whyOf(call.why, may(access, "command.approve"))}</span>`}</p>
    ${call.decision ? html`<p class="decided" role="status">${decisionText(call.decision, isHalted)}</p>` : null}
    <div class="seen">
      ${!canSee
        ? null
        : whole === null
          ? html`<p class="note">${found?.fault ? `Its arguments cannot be loaded: ${found.fault}` : "Its arguments are loading."}</p>`
          : html`<${Whole} name=${name} text=${visible(whole.text)} />`}
    </div>
    ${canApprove || canDeny
      ? html`<div class="answers" ref=${ref}>
          ${canApprove ? html`<button type="button" class="yes" disabled=${isSending || whole === null} onClick=${pressed(approve)}>Approve</button><${Unsent} when=${isUnsent("approve")} />` : null}
          ${canDeny
            ? html`<button type="button" class="no" disabled=${isSending} onClick=${pressed(deny)}>Deny</button><${Unsent} when=${isUnsent("deny")} />
                <input value=${reason} onInput=${(event) => write(event.currentTarget.value)} placeholder="Reason for a denial: kept in the log, not sent to the model" aria-label=${`Why ${name} is denied`} maxlength="500" />`
            : null}
        </div>`
      : null}
  </li>`;
}
