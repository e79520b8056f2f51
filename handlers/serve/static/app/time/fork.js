// A button that forks a session after a position, and opens the fork.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { newKey, postFork } from "../api.js";
import { go, sessionLink } from "../route.js";

export function ForkHere({ session, position, label = "Fork here" }) {
  const [state, setState] = useState({ isSending: false, fault: null });
  const attempt = useRef(null);
  const isOver = useRef(false);
  useEffect(() => () => {
    isOver.current = true;
  }, []);
  const fork = async () => {
    const of = `${session} ${position}`;
    // A repeat after a lost answer has the same key, so it makes no second fork.
    if (attempt.current?.of !== of) attempt.current = { of, key: newKey() };
    setState({ isSending: true, fault: null });
    try {
      const made = await postFork(session, position, attempt.current.key);
      attempt.current = null;
      if (!isOver.current) go(sessionLink(made.session));
    } catch (error) {
      if (!isOver.current) setState({ isSending: false, fault: error.message });
      return;
    }
    if (!isOver.current) setState({ isSending: false, fault: null });
  };
  return html`<span class="tm-fork">
    <button type="button" disabled=${state.isSending} title=${`Make a session that continues after #${position}`} onClick=${fork}>${state.isSending ? "Forking…" : label}</button>
    ${state.fault ? html`<span class="fault" role="alert">${state.fault}</span>` : null}
  </span>`;
}
