// The switches above the lanes: which lane is shown, and whether the events of a turn are folded.
import { html } from "./html.js";

const LANES = [
  ["both", "Both lanes"],
  ["llm", "LLM"],
  ["extension", "Extension"],
];

export function LaneBar({ lane, isAll, isPlain, choose, children }) {
  return html`<div class="lanebar">
    <div class="lanechoice" role="group" aria-label="Lanes">
      ${LANES.map(([name, label]) => html`<button key=${name} type="button" aria-pressed=${lane === name} onClick=${() => choose({ lane: name })}>${label}</button>`)}
    </div>
    <label title="Show each lifecycle event in a row of its own, and what frameworks store"><input type="checkbox" checked=${isAll} onChange=${(event) => choose({ isAll: event.currentTarget.checked })} />All events</label>
    <label title="Show texts without their Markdown"><input type="checkbox" checked=${isPlain} onChange=${(event) => choose({ isPlain: event.currentTarget.checked })} />Plain text</label>
    ${children}
  </div>`;
}
