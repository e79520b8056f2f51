// The view "Log": both lanes of the session.
import { html } from "./html.js";
import { Lanes } from "./lanes.js";

export function View({ session, feed, access, route, setPosition }) {
  return feed
    ? html`<${Lanes} key=${session} session=${session} feed=${feed} version=${feed.version} access=${access} route=${route} setPosition=${setPosition} />`
    : html`<div class="lanes"></div>`;
}
