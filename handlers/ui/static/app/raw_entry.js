// The whole entry as JSON, to look at and to copy.
import { useContext, useState } from "preact/hooks";
import { html } from "./html.js";
import { JsonTree } from "./json_tree.js";
import { OfEntry } from "./of_entry.js";
import { sessionLink } from "./route.js";

/** Draws a button that copies a text. */
export function CopyButton({ text, label = "Copy" }) {
  const [said, setSaid] = useState(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      setSaid("Copied");
    } catch {
      setSaid("The browser does not allow it"); // it does only on localhost and over HTTPS
    }
    setTimeout(() => setSaid(null), 2000);
  };
  return html`<button class="quiet" type="button" onClick=${copy} aria-live="polite">${said ?? label}</button>`;
}

export function RawEntry({ entry, isOpen: isOpenAtFirst = false }) {
  const [isOpen, setOpen] = useState(isOpenAtFirst);
  const { session, position } = useContext(OfEntry);
  const json = () => JSON.stringify(entry, null, 2);
  return html`<div class="rawentry">
    ${isOpen ? html`<${JsonTree} value=${entry} isOpen />` : null}
    <div class="rawbuttons">
      ${isOpenAtFirst ? null : html`<button class="quiet" type="button" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? "Hide the entry" : "Whole entry"}</button>`}
      <${CopyButton} text=${json} label="Copy JSON" />
      <${CopyButton} text=${() => new URL(sessionLink(session, "log", position), location.href).href} label="Copy link" />
    </div>
  </div>`;
}
