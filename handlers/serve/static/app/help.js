// The help sheet: the shortcuts that work at the moment.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { Dialog } from "./dialog.js";
import { areShortcutsOn, setShortcuts, shortcuts } from "./keys.js";

const FIXED = [
  { group: "Everywhere", keys: "Tab", label: "To the next field or button" },
  { group: "Everywhere", keys: "↑ ↓", label: "Move in a list" },
  { group: "Everywhere", keys: "← →", label: "Move between tabs" },
  { group: "Everywhere", keys: "Esc", label: "Close a dialog, or leave a field" },
  { group: "Messages", keys: "Enter", label: "Send the message" },
  { group: "Messages", keys: "Shift Enter", label: "Start a new line" },
];

export function Help({ onClose }) {
  const [isOn, setOn] = useState(areShortcutsOn);
  const change = (event) => {
    setShortcuts(event.currentTarget.checked);
    setOn(event.currentTarget.checked);
  };
  const groups = Map.groupBy([...shortcuts(), ...FIXED], (one) => one.group);
  return html`<${Dialog} title="Keyboard" onClose=${onClose}>
    <div class="shortcuts">
      ${[...groups].map(
        ([name, all]) => html`<section key=${name}>
          <h3>${name}</h3>
          <dl>${all.map((one) => html`<div key=${one.keys}><dt>${one.keys.split(" ").map((key) => html`<kbd>${key}</kbd>`)}</dt><dd>${one.label}</dd></div>`)}</dl>
        </section>`,
      )}
    </div>
    <label class="check"><input type="checkbox" checked=${isOn} onChange=${change} /> Shortcuts of a single key are on</label>
  </${Dialog}>`;
}
