// The box for messages to the agent.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { newKey, sendMessage, unreachable } from "./api.js";
import { Unsent } from "./approval.js";
import { AttachButton, AttachmentList, useAttachments } from "./attachments.js";
import { Dialog } from "./dialog.js";
import { draftOf, keepDraft } from "./drafts.js";
import { count } from "./format.js";
import { useFault } from "./hooks.js";
import { useShortcut } from "./keys.js";
import { may, mayAnswer } from "./rights.js";

let writesTo = null; // the session that the user is about to open with a button for a new one
const begun = new Set(); // the sessions that the user opened so

/** Put the focus into the box when a session is next drawn: the user asked for a new one to write to it. */
export const writeNext = (session) => {
  writesTo = session;
  begun.add(session);
};

const WAS_AWAY = { message: "the connection was away." };

const waitText = (waiting, whom) => `${waiting === 1 ? "A call waits" : `${waiting} calls wait`} for ${whom}`;

/** Whether the user asked for a new session of this name. Otherwise a session without entries may be a misspelt one. */
export const isBegun = (session) => begun.has(session);

/** Asks before a message that makes the worker skip calls: a user who presses Enter may not have seen that they wait. */
function Skipping({ waiting, whom, verb, onSkip, onLater, onClose }) {
  const what = waiting === 1 ? "the call" : `the ${waiting} calls`;
  return html`<${Dialog} title=${waitText(waiting, whom)} onClose=${onClose}>
    <div class="operation">
      <p>A message that is sent now skips ${what}: nothing runs, and the model reads that it was skipped, or that its outcome is unknown if it had been started. An approval after that comes too late.</p>
      <footer>
        <button type="button" onClick=${onClose}>Cancel</button>
        ${onLater ? html`<button type="button" onClick=${onLater}>Send after the loop</button>` : null}
        <button type="button" class="no" onClick=${onSkip}>Skip ${what} and ${verb}</button>
      </footer>
    </div>
  </${Dialog}>`;
}

/**
 * `waiting` is the number of calls that wait for a person, `decided` of those that wait for a worker, which applies the
 * decision. While the page `isUnsure` whether some do, a message waits; it does not while the server `isAway`.
 */
export function Composer({ session, access, isLive, isAway, isClosed, isBusy, isUnsure, waiting, decided, commandSender }) {
  const [text, setText] = useState(() => draftOf(access.name, session));
  const [isFollowUp, setFollowUp] = useState(false);
  const [isSending, setSending] = useState(false);
  const [fault, setFault] = useFault(isLive, WAS_AWAY);
  const [asked, setAsked] = useState(null); // "send" or "steer", while the user is asked whether to skip the waiting calls
  const [pressed, setPressed] = useState(null); // "send" or "steer", while the page does not know whether calls wait
  const box = useRef(null);
  const attempt = useRef(null); // what was posted with which key, while the response is missing; posting again with this key adds nothing
  const attachments = useAttachments(session);
  const openChooser = useRef(null);
  const { files } = attachments;
  const canSend = !isSending && !isClosed && attachments.isReady && Boolean(text.trim() || files.length);
  const canSteer = !isSending && !isClosed && Boolean(text.trim()) && files.length === 0;

  const write = (next) => {
    setText(next);
    keepDraft(access.name, session, next);
  };

  const fit = () => {
    const { style } = box.current;
    style.height = "auto";
    if (box.current.offsetWidth > 0) style.height = `${Math.min(box.current.scrollHeight + 2, 200)}px`;
  };
  useLayoutEffect(fit, [text]);
  useLayoutEffect(() => {
    // The lines need another height at another width, and none can be measured while the box is hidden.
    let width = box.current.offsetWidth;
    const sizes = new ResizeObserver(() => {
      if (box.current === null || box.current.offsetWidth === width) return;
      width = box.current.offsetWidth;
      fit();
    });
    sizes.observe(box.current);
    return () => sizes.disconnect();
  }, []);

  // Not on a touch screen, where the focus opens a keyboard over the log.
  const focusBox = () => matchMedia("(pointer: coarse)").matches || box.current.focus({ preventScroll: true });
  useLayoutEffect(() => {
    // A visit leaves the focus where it is: keys are shortcuts then, and Enter sends nothing.
    if (writesTo !== session) return;
    focusBox();
    writesTo = null;
  });

  useEffect(() => setAsked(null), [waiting, decided]); // the question is about these calls

  useShortcut("m", "Session", "Write a message", () => box.current.focus());

  useShortcut("u", "Session", "Attach files", () => openChooser.current());

  const send = async (isLater) => {
    setAsked(null);
    const said = files.length ? { content: [...(text.trim() ? [{ type: "text", text }] : []), ...attachments.blocks] } : { text };
    const whole = JSON.stringify([said, isLater]);
    if (attempt.current?.whole !== whole) attempt.current = { whole, key: newKey() };
    setSending(true);
    setFault(null);
    try {
      await sendMessage(session, said, attempt.current.key, isLater);
      attempt.current = null;
      write("");
      attachments.clear();
    } catch (error) {
      setFault(error);
    } finally {
      setSending(false);
    }
  };

  /** Stop the current answer, and send the text with the next request to the model. */
  const steer = async () => {
    setAsked(null);
    setSending(true);
    if (await commandSender.send({ command: "steer", text, when: "now" })) write("");
    setSending(false);
  };

  const isLater = isBusy && isFollowUp;
  const skipped = asked === "steer" ? waiting + decided : waiting; // a steer cuts also what a worker has not begun
  const whom = mayAnswer(access) ? "you" : "a person";
  const skips = waiting > 0 && !isLater && !isClosed;
  const hold = (what) => {
    setFault(null);
    setPressed(what);
  };
  const trySend = () => {
    if (!canSend) return;
    focusBox(); // the button is disabled while the message is sent, and would lose the focus
    if (isUnsure) hold("send");
    else if (skips) setAsked("send");
    else send(isLater);
  };
  const trySteer = () => {
    if (!canSteer) return;
    focusBox();
    if (isUnsure) hold("steer");
    else if (waiting + decided > 0) setAsked("steer");
    else steer();
  };
  useEffect(() => {
    if (pressed === null || (isUnsure && !isAway)) return;
    setPressed(null);
    if (isUnsure) setFault(unreachable());
    else if (pressed === "send") trySend();
    else trySteer();
  }, [isUnsure, isAway, pressed]);

  const onKeyDown = (event) => {
    // While an input method composes a word, Enter only completes the word.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      trySend();
    }
  };

  const onSubmit = (event) => {
    event.preventDefault();
    trySend();
  };

  const onPaste = (event) => {
    if (event.clipboardData?.files.length && !isSending && !isClosed) {
      event.preventDefault();
      attachments.add([...event.clipboardData.files]);
    }
  };

  const onDrop = (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault(); // otherwise the browser opens the file in place of the page
    if (event.type === "drop" && !isSending && !isClosed) attachments.add([...event.dataTransfer.files]);
  };

  return html`<form class="composer" onSubmit=${onSubmit} onDragOver=${onDrop} onDrop=${onDrop}>
    ${fault ? html`<p class="fault" role="alert">Not sent: ${fault.message} <button class="quiet" type="submit">Send again</button></p>` : null}
    ${skips ? html`<p class="skips" id="skips" role="status">${waitText(waiting, whom)}: a message skips ${waiting === 1 ? "it" : "them"}.</p>` : null}
    ${decided > 0 && !isLater && !isClosed ? html`<p class="skips" role="status">${decided === 1 ? "A decided call is" : `${count(decided)} decided calls are`} not carried out yet: a decision comes before a message. Abort to prevent what was approved.</p>` : null}
    <${AttachmentList} attachments=${attachments} isLocked=${isSending} />
    <div class="field">
      <${AttachButton} attachments=${attachments} isDisabled=${isSending || isClosed} open=${openChooser} />
      <textarea ref=${box} rows="1" value=${text} readonly=${isSending} disabled=${isClosed} aria-label="Message to the agent" aria-describedby=${skips ? "skips" : undefined}
        placeholder=${isClosed ? "This session is closed" : isBusy ? "Steer the agent…" : "Ask the agent…"}
        onInput=${(event) => write(event.currentTarget.value)} onKeyDown=${onKeyDown} onPaste=${onPaste}></textarea>
      ${isBusy && may(access, "command.steer")
        ? html`<button type="button" class="now" title="Stop the current answer and tools, and continue with this message" disabled=${!canSteer} onClick=${trySteer}>Steer now</button><${Unsent} when=${commandSender.unsent?.command === "steer"} />`
        : null}
      <button type="submit" disabled=${!canSend}>${isSending || pressed ? "Sending…" : skips ? "Skip and send…" : "Send"}</button>
    </div>
    ${isBusy
      ? html`<label class="later"><input type="checkbox" checked=${isFollowUp} onChange=${(event) => setFollowUp(event.currentTarget.checked)} /> send after the loop: the agent sees it only when it is done</label>`
      : null}
    <p class="keys"><kbd>Enter</kbd> sends, <kbd>Shift</kbd>+<kbd>Enter</kbd> starts a new line</p>
    ${asked && skipped > 0 ? html`<${Skipping} waiting=${skipped} whom=${waiting === 0 ? "a worker" : whom} verb=${asked} onSkip=${asked === "steer" ? steer : () => send(false)} onLater=${asked === "send" && isBusy ? () => send(true) : null} onClose=${() => setAsked(null)} />` : null}
  </form>`;
}
