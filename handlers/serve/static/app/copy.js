// Buttons that copy a text.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { Copy } from "./icons.js";

const SAID_MS = 2000;

/** Return what the last click came to, for two seconds, and a function to be called with a click. `text` is a function. */
function useCopy(text) {
  const [said, setSaid] = useState(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      setSaid("Copied");
    } catch {
      setSaid("The browser does not allow it"); // it does only on localhost and over HTTPS
    }
    setTimeout(() => setSaid(null), SAID_MS);
  };
  return [said, copy];
}

export function CopyButton({ text, label = "Copy" }) {
  const [said, copy] = useCopy(text);
  return html`<button class="quiet" type="button" onClick=${copy} aria-live="polite">${said ?? label}</button>`;
}

/** Draws a small picture as the button. `label` says what is copied. */
export function CopyIcon({ text, label }) {
  const [said, copy] = useCopy(text);
  const picture = said === null ? html`<${Copy} />` : said === "Copied" ? "✓" : "✗";
  return html`<button type="button" class="icon small copy" aria-label=${label} title=${said ?? label} onClick=${copy}>${picture}<span class="hidden" role="status">${said}</span></button>`;
}
