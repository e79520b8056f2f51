// The box for messages to the agent.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { newKey, sendMessage } from "./api.js";
import { AttachButton, AttachmentList, useAttachments } from "./attachments.js";
import { useShortcut } from "./keys.js";
import { may } from "./rights.js";

export function Composer({ session, access, isClosed, isBusy, commandSender }) {
  const [text, setText] = useState("");
  const [isFollowUp, setFollowUp] = useState(false);
  const [isSending, setSending] = useState(false);
  const [fault, setFault] = useState(null);
  const box = useRef(null);
  const attempt = useRef(null); // what was posted with which key, while the response is missing; posting again with this key adds nothing
  const attachments = useAttachments(session);
  const openChooser = useRef(null);
  const { files } = attachments;
  const canSend = !isSending && !isClosed && attachments.isReady && Boolean(text.trim() || files.length);
  const canSteer = !isSending && !isClosed && Boolean(text.trim()) && files.length === 0;

  useLayoutEffect(() => {
    box.current.style.height = "auto";
    box.current.style.height = `${Math.min(box.current.scrollHeight + 2, 200)}px`;
  }, [text]);

  useLayoutEffect(() => {
    // Not on a touch screen, where the focus opens a keyboard over the log.
    if (!isSending && !matchMedia("(pointer: coarse)").matches) box.current.focus({ preventScroll: true });
  }, [isSending, session]);

  useShortcut("m", "Session", "Write a message", () => box.current.focus());

  useShortcut("u", "Session", "Attach files", () => openChooser.current());

  const send = async () => {
    if (!canSend) return;
    const isLater = isBusy && isFollowUp;
    const said = files.length ? { content: [...(text.trim() ? [{ type: "text", text }] : []), ...attachments.blocks] } : { text };
    const whole = JSON.stringify([said, isLater]);
    if (attempt.current?.whole !== whole) attempt.current = { whole, key: newKey() };
    setSending(true);
    setFault(null);
    try {
      await sendMessage(session, said, attempt.current.key, isLater);
      attempt.current = null;
      setText("");
      attachments.clear();
    } catch (error) {
      setFault(error.message);
    } finally {
      setSending(false);
    }
  };

  /** Stop the current answer, and send the text with the next request to the model. */
  const steer = async () => {
    if (!canSteer) return;
    setSending(true);
    if (await commandSender.send({ command: "steer", text, when: "now" })) setText("");
    setSending(false);
  };

  const onKeyDown = (event) => {
    // While an input method composes a word, Enter only completes the word.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  };

  const onSubmit = (event) => {
    event.preventDefault();
    send();
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
    ${fault ? html`<p class="fault" role="alert">${fault} <button class="quiet" type="submit">Send again</button></p>` : null}
    <${AttachmentList} attachments=${attachments} isLocked=${isSending} />
    <div class="field">
      <${AttachButton} attachments=${attachments} isDisabled=${isSending || isClosed} open=${openChooser} />
      <textarea ref=${box} rows="1" value=${text} disabled=${isSending || isClosed} aria-label="Message to the agent"
        placeholder=${isClosed ? "This session is closed" : isBusy ? "Steer the agent…" : "Ask the agent…"}
        onInput=${(event) => setText(event.currentTarget.value)} onKeyDown=${onKeyDown} onPaste=${onPaste}></textarea>
      ${isBusy && may(access, "command.steer")
        ? html`<button type="button" class="now" title="Stop the current answer and tools, and continue with this message" disabled=${!canSteer} onClick=${steer}>Steer now</button>`
        : null}
      <button type="submit" disabled=${!canSend}>${isSending ? "Sending…" : "Send"}</button>
    </div>
    ${isBusy
      ? html`<label class="later"><input type="checkbox" checked=${isFollowUp} onChange=${(event) => setFollowUp(event.currentTarget.checked)} /> send after the loop: the agent sees it only when it is done</label>`
      : null}
    <p class="keys"><kbd>Enter</kbd> sends, <kbd>Shift</kbd>+<kbd>Enter</kbd> starts a new line</p>
  </form>`;
}
