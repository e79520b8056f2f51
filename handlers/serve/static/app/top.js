// The bar at the top: where one is, the inbox, the connection, the colours, help and the user.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { count, readText } from "./format.js";
import * as icons from "./icons.js";
import { LogOut } from "./login.js";
import { isOnline } from "./network.js";
import { may } from "./rights.js";
import { getTheme, nextTheme } from "./theme.js";
import { useShortcut } from "./keys.js";

const THEMES = { system: ["System colours", icons.System], light: ["Light colours", icons.Sun], dark: ["Dark colours", icons.Moon] };

function Theme() {
  const [theme, setTheme] = useState(getTheme);
  const next = () => setTheme(nextTheme());
  useShortcut("t", "Everywhere", "Change the colours: system, light, dark", next);
  const [name, Icon] = THEMES[theme];
  return html`<button type="button" class="icon" aria-label=${`${name}. Change`} title=${`${name}. Change`} onClick=${next}><${Icon} /></button>`;
}

function Connection({ feed, fault }) {
  const known = fault?.status === 401 ? "refused" : feed ? feed.state : fault ? "reconnecting" : "connecting";
  const state = !isOnline() && ["connecting", "reconnecting"].includes(known) ? "offline" : known;
  return html`<span class=${`connection ${state}`} role="status" data-state=${state}><i></i><span>${state === "behind" ? "catching up" : state}</span></span>`;
}

/** The number of calls that wait. While the server still reads sessions, it says that there may be more. */
function Waiting({ waiting: { all, progress } }) {
  if (all === 0 && !progress) return null;
  const title = progress ? readText(progress) : undefined;
  return html`<b class=${progress ? "number partial" : "number"} title=${title}><span class="hidden">, ${progress ? "at least " : ""}</span>${all > 0 ? count(all) : ""}${progress ? html`<span aria-hidden="true">${all > 0 ? "+" : "…"}</span>` : null}<span class="hidden">${all > 0 ? "" : "0"} waiting</span></b>`;
}

export function Top({ place, feed, fault, access, waiting, onHelp }) {
  const here = (name) => (place === name ? "page" : undefined);
  const isInSessions = place === "session" || place === "sessions" || place === "";
  return html`<header class="top">
    <h1><a href="#/sessions"><img src=${document.querySelector("link[rel=icon]").href} alt="" width="22" height="22" />lanebus</a></h1>
    <nav class="places" aria-label="Places">
      <a href="#/sessions" aria-current=${isInSessions ? "page" : undefined}><${icons.List} /><span>Sessions</span></a>
      ${may(access, "read.waiting") ? html`<a href="#/inbox" aria-current=${here("inbox")}><${icons.Inbox} /><span>Inbox</span><${Waiting} waiting=${waiting} /></a>` : null}
    </nav>
    <span class="spring"></span>
    ${feed || fault ? html`<${Connection} feed=${feed} fault=${fault} />` : null}
    <${Theme} />
    <button type="button" class="icon" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick=${onHelp}>?</button>
    <${LogOut} name=${access.name} />
  </header>`;
}
