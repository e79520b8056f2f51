// Starts the page.
import { render } from "preact";
import { html } from "./html.js";
import { expectHead } from "./api.js";
import { App } from "./app.js";
import { currentRoute } from "./route.js";
import { applyTheme } from "./theme.js";
import { getToken, takeToken } from "./token.js";

takeToken(location.href);
applyTheme();
const { session } = currentRoute();
if (session !== null && getToken()) expectHead(session);
const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
