// The box to speak to the agent.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { newKey, say } from "./api.js";

export function Composer({ session, isClosed }) {
  const [text, setText] = useState("");
  const [isSending, setSending] = useState(false);
  const [fault, setFault] = useState(null);
  const box = useRef(null);
  const attempt = useRef(null); // the text of a post without an answer, and its key: repeated, it is said once

  useLayoutEffect(() => {
    box.current.style.height = "auto";
    box.current.style.height = `${Math.min(box.current.scrollHeight + 2, 200)}px`;
  }, [text]);

  useLayoutEffect(() => {
    if (!isSending) box.current.focus({ preventScroll: true });
  }, [isSending, session]);

  const send = async () => {
    if (isSending || isClosed || !text.trim()) return;
    if (attempt.current?.text !== text) attempt.current = { text, key: newKey() };
    setSending(true);
    setFault(null);
    try {
      await say(session, text, attempt.current.key);
      attempt.current = null;
      setText("");
    } catch (error) {
      setFault(error.message);
    } finally {
      setSending(false);
    }
  };

  const onKeyDown = (event) => {
    // While an input method composes a word, Enter ends the word.
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
        placeholder=${isClosed ? "This session is closed" : "Ask the agent…"}
        onInput=${(event) => setText(event.currentTarget.value)} onKeyDown=${onKeyDown}></textarea>
      <button type="submit" disabled=${isSending || isClosed || !text.trim()}>${isSending ? "Sending…" : "Send"}</button>
    </div>
    <p class="keys"><kbd>Enter</kbd> sends, <kbd>Shift</kbd>+<kbd>Enter</kbd> begins a new line</p>
  </form>`;
}
