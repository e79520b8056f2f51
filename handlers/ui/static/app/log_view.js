// The view "Log": both lanes of the session.
import { useEffect } from "preact/hooks";
import { html } from "./html.js";
import { Lanes } from "./lanes.js";

const BEFORE = 20; // entries loaded above the one to show

async function show(feed, position) {
  feed.isFollowing = false;
  await feed.loadEarlier(position - BEFORE);
  // Wait for the frame after the one that draws the rows.
  requestAnimationFrame(() => requestAnimationFrame(() => {
    const row = document.querySelector(`[data-position="${position}"]`);
    row?.scrollIntoView({ block: "center" });
    row?.animate([{ opacity: 0.2 }, { opacity: 1 }], 600);
  }));
}

export function View({ session, feed, route }) {
  const isReady = feed?.hasCaughtUp === true;
  useEffect(() => {
    if (isReady && route.at !== null) show(feed, route.at);
  }, [route, feed, isReady]);
  return feed ? html`<${Lanes} key=${session} feed=${feed} version=${feed.version} />` : html`<div class="lanes"></div>`;
}
