// The whole entry as JSON, to look at and to copy.
import { useContext, useState } from "preact/hooks";
import { CopyButton } from "./copy.js";
import { html } from "./html.js";
import { JsonTree } from "./json_tree.js";
import { Exact, OfEntry } from "./of_entry.js";
import { sessionLink } from "./route.js";

export function RawEntry({ entry, isOpen: isOpenAtFirst = false }) {
  const [isOpen, setOpen] = useState(isOpenAtFirst);
  const { session, position } = useContext(OfEntry);
  const json = () => JSON.stringify(entry, null, 2);
  return html`<div class="rawentry">
    ${isOpen ? html`<${Exact.Provider} value><${JsonTree} value=${entry} isOpen /></${Exact.Provider}>` : null}
    <div class="rawbuttons">
      ${isOpenAtFirst ? null : html`<button class="quiet" type="button" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? "Hide the entry" : "Whole entry"}</button>`}
      <${CopyButton} text=${json} label="Copy JSON" />
      <${CopyButton} text=${() => new URL(sessionLink(session, "log", position), location.href).href} label="Copy link" />
    </div>
  </div>`;
}
