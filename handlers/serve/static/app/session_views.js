// The views of a session: one tab each. Add a view here.
//
// `View` is a component; `load` imports one when its tab is first opened. It gets
//   session       the id
//   feed          the loaded and the new entries (feed.js); null until it is open
//   access        what the token allows: see rights.js
//   route         the place in the URL; `route.query` has the view's own parameters
//   timeline      the loaded turns with their times (time/timeline_store.js); null until they are loaded
//   isLeft        whether an open loop has no worker that continues it
//   position      the position to show the session at; null follows the newest
//   setPosition   shows another position, or the newest with null, and writes it into the URL
//   showEntry     shows the entry at a position in the log
// A view fills the height that it gets, and scrolls by itself. Its styles are in a file of its own below styles/.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { View as Log } from "./lanes.js";
import { seesBothLanes } from "./rights.js";
import { go, sessionLink } from "./route.js";

// All of them in one module: it shares one file of the bundle with the rest of the page, and not one for each view.
const ofTime = (name) => () => import("./time/views.js").then((module) => module[name]);

export const VIEWS = [
  { name: "log", label: "Log", View: Log },
  { name: "timeline", label: "Timeline", isForBoth: true, load: ofTime("TimelineView") },
  { name: "context", label: "Context", isForBoth: true, load: ofTime("ContextView") },
  { name: "compare", label: "Compare", isForBoth: true, load: ofTime("CompareView") },
];

/** The views that a token may open. A view `isForBoth` reads both lanes. */
export const viewsFor = (access) => VIEWS.filter((view) => !view.isForBoth || seesBothLanes(access));

const loaded = new Map(); // by name of the view

/** Draws one view; its module is loaded first. */
export function ViewOf({ name, ...rest }) {
  const view = viewsFor(rest.access).find((one) => one.name === name) ?? VIEWS[0];
  const [, setLoaded] = useState(null);
  const [fault, setFault] = useState(null);
  const found = view.View ?? loaded.get(view.name);
  useEffect(() => {
    if (found) return undefined;
    let isOver = false;
    setFault(null);
    view.load().then(
      (View) => {
        loaded.set(view.name, View);
        if (!isOver) setLoaded(view.name);
      },
      () => isOver || setFault("This view cannot be loaded. Check that the server is running, and reload the page."),
    );
    return () => {
      isOver = true;
    };
  }, [view.name]);
  if (fault) return html`<p class="trouble" role="alert">${fault}</p>`;
  return found ? html`<${found} ...${rest} />` : html`<p class="loading" role="status">Loading…</p>`;
}

/** The tabs. Arrow keys move between them. Nothing while there is only one. */
export function Tabs({ session, selected, position, query, access }) {
  const views = viewsFor(access);
  if (views.length < 2) return null;
  const current = Math.max(0, views.findIndex((one) => one.name === selected));
  const onKeyDown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const to = event.key === "Home" ? 0 : event.key === "End" ? views.length - 1 : step === undefined ? null : (current + step + views.length) % views.length;
    if (to === null) return;
    event.preventDefault();
    go(sessionLink(session, views[to].name, position, query));
    event.currentTarget.children[to].focus();
  };
  return html`<div class="tabs" role="tablist" aria-label="Views of the session" onKeyDown=${onKeyDown}>
    ${views.map(
      (view, index) => html`<button key=${view.name} type="button" role="tab" id=${`tab-${view.name}`} aria-controls="view" aria-selected=${index === current} tabindex=${index === current ? 0 : -1}
        onClick=${() => go(sessionLink(session, view.name, position, query))}>${view.label}</button>`,
    )}
  </div>`;
}
