// Asks for a token, and forgets it.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { Leave } from "./icons.js";
import { getToken, setToken } from "./token.js";

/** Return the token in a text: the text itself, or what follows `#token=` in a URL. */
function tokenIn(text) {
  const [, found] = /#token=([^&\s]+)/.exec(text) ?? [];
  try {
    return found ? decodeURIComponent(found) : text.trim();
  } catch {
    return text.trim();
  }
}

export function Login({ fault = null, isPage = false }) {
  const [text, setText] = useState("");
  const onSubmit = (event) => {
    event.preventDefault();
    if (text.trim()) setToken(tokenIn(text));
  };
  return html`<form class=${`login ${isPage ? "whole" : ""}`} onSubmit=${onSubmit}>
    ${fault ? html`<p class="trouble" role="alert">${fault}</p>` : null}
    <p>Open the URL that <code>lanebus serve</code> printed, or paste it here, or a token:</p>
    <div class="field">
      <input type="password" autocomplete="off" value=${text} aria-label="Token" onInput=${(event) => setText(event.currentTarget.value)} />
      <button type="submit" disabled=${!text.trim()}>Open</button>
    </div>
  </form>`;
}

/** Forgets the token of this tab. Nothing to forget if a proxy names the user. */
export function LogOut({ name }) {
  if (getToken() === null) return null;
  return html`<button type="button" class="icon" aria-label="Log out" title=${`Log out: forget the token of this tab. You are ${name}.`} onClick=${() => setToken(null)}><${Leave} /></button>`;
}
