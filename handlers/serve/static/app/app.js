// The page: asks for the token if it is unknown, and shows the frame once the rights are known.
import { useEffect, useReducer } from "preact/hooks";
import { html } from "./html.js";
import { useAccess } from "./hooks.js";
import { Login } from "./login.js";
import { Rights } from "./rights.js";
import { Shell } from "./shell.js";
import { onToken, takeToken } from "./token.js";

function Page() {
  const access = useAccess();
  if (access === null) return html`<p class="loading" role="status">Connecting…</p>`;
  if (access.refused) return html`<main><h1 class="hidden">lanebus</h1><${Login} fault=${access.refused} isPage /></main>`;
  return html`<${Rights.Provider} value=${access}><${Shell} access=${access} /></${Rights.Provider}>`;
}

/** A new token starts everything again. */
export function App() {
  const [turn, next] = useReducer((number) => number + 1, 0);
  useEffect(() => onToken(next), []);
  useEffect(() => {
    const onHash = (event) => takeToken(event.newURL); // the printed URL was opened in this tab again
    addEventListener("hashchange", onHash);
    return () => removeEventListener("hashchange", onHash);
  }, []);
  return html`<${Page} key=${turn} />`;
}
