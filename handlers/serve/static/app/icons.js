// Small pictures of buttons, drawn in the colour of the text.
import { html } from "./html.js";

const icon = (...paths) => () =>
  html`<svg viewBox="0 0 16 16" width="16" height="16" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">${paths.map((d) => html`<path d=${d} />`)}</svg>`;

export const Back = icon("M10 3 5 8l5 5");
export const Clip = icon("m13 7.5-5.3 5.3a3 3 0 0 1-4.3-4.3l5.6-5.6a2 2 0 0 1 2.9 2.9l-5.5 5.4a1 1 0 0 1-1.5-1.4l4.8-4.8");
export const Copy = icon("M5.5 5.5h7v8h-7z", "M3.5 10.5v-8h7");
export const Inbox = icon("M2 9.5 4.2 3h7.6L14 9.5V13H2z", "M2 9.5h3.5l1 1.7h3l1-1.7H14");
export const List = icon("M2.5 4h11M2.5 8h11M2.5 12h11");
export const Leave = icon("M6.5 2.5h-4v11h4", "M6 8h7.5M10.5 5l3 3-3 3");
export const Menu = icon("M2.8 7.3h1.4v1.4H2.8zM7.3 7.3h1.4v1.4H7.3zM11.8 7.3h1.4v1.4h-1.4z");
export const Moon = icon("M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z");
export const Panel = icon("M2 3h12v10H2z", "M10 3v10");
export const Search = icon("M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9z", "m10.5 10.5 3 3");
export const Sun = icon("M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6z", "M8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M12.6 3.4l-.7.7M4.1 11.9l-.7.7");
export const System = icon("M8 2.5a5.5 5.5 0 1 1 0 11z", "M8 2.5a5.5 5.5 0 1 0 0 11z");
