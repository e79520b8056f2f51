// Starts the page.
import { render } from "preact";
import { html } from "./html.js";
import { App } from "./app.js";
import { applyTheme } from "./theme.js";
import { takeToken } from "./token.js";

takeToken();
applyTheme();
const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
