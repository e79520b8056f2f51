// The box for messages to the agent.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { newKey, sendMessage } from "./api.js";
import { useShortcut } from "./keys.js";
import { may } from "./rights.js";

export function Composer({ session, access, isClosed, isBusy, commandSender }) {
  const [text, setText] = useState("");
  const [isFollowUp, setFollowUp] = useState(false);
  const [isSending, setSending] = useState(false);
  const [fault, setFault] = useState(null);
  const box = useRef(null);
  const attempt = useRef(null); // the text and key of a post whose response is missing; posting again with this key adds nothing

  useLayoutEffect(() => {
    box.current.style.height = "auto";
    box.current.style.height = `${Math.min(box.current.scrollHeight + 2, 200)}px`;
  }, [text]);

  useLayoutEffect(() => {
    // Not on a touch screen, where the focus opens a keyboard over the log.
    if (!isSending && !matchMedia("(pointer: coarse)").matches) box.current.focus({ preventScroll: true });
  }, [isSending, session]);

  useShortcut("m", "Session", "Write a message", () => box.current.focus());

  const send = async () => {
    if (isSending || isClosed || !text.trim()) return;
    const isLater = isBusy && isFollowUp;
    if (attempt.current?.text !== text || attempt.current.isLater !== isLater) attempt.current = { text, isLater, key: newKey() };
    setSending(true);
    setFault(null);
    try {
      await sendMessage(session, text, attempt.current.key, isLater);
      attempt.current = null;
      setText("");
    } catch (error) {
      setFault(error.message);
    } finally {
      setSending(false);
    }
  };

  /** Stop the current answer, and send the text with the next request to the model. */
  const steer = async () => {
    if (isSending || isClosed || !text.trim()) return;
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

  return html`<form class="composer" onSubmit=${onSubmit}>
    ${fault ? html`<p class="fault" role="alert">${fault} <button class="quiet" type="submit">Send again</button></p>` : null}
    <div class="field">
      <textarea ref=${box} rows="1" value=${text} disabled=${isSending || isClosed} aria-label="Message to the agent"
        placeholder=${isClosed ? "This session is closed" : isBusy ? "Steer the agent…" : "Ask the agent…"}
        onInput=${(event) => setText(event.currentTarget.value)} onKeyDown=${onKeyDown}></textarea>
      ${isBusy && may(access, "command.steer")
        ? html`<button type="button" class="now" title="Stop the current answer and tools, and continue with this message" disabled=${isSending || isClosed || !text.trim()} onClick=${steer}>Steer now</button>`
        : null}
      <button type="submit" disabled=${isSending || isClosed || !text.trim()}>${isSending ? "Sending…" : "Send"}</button>
    </div>
    ${isBusy
      ? html`<label class="later"><input type="checkbox" checked=${isFollowUp} onChange=${(event) => setFollowUp(event.currentTarget.checked)} /> send after the loop: the agent sees it only when it is done</label>`
      : null}
    <p class="keys"><kbd>Enter</kbd> sends, <kbd>Shift</kbd>+<kbd>Enter</kbd> starts a new line</p>
  </form>`;
}
