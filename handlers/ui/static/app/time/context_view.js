import { html } from "../html.js";
export function View() { return html`<p class="hint">soon</p>`; }
