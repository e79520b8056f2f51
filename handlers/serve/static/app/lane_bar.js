// The switches above the lanes: which lane is shown, and whether the events of a turn are folded.
import { html } from "./html.js";

const LANES = [
  ["both", "Both", " lanes"],
  ["llm", "LLM", ""],
  ["extension", "Extension", ""],
];

/** Text that only screen readers get in a narrow window. */
const Rest = ({ children }) => html`<span class="rest">${children}</span>`;

export function LaneBar({ lane, isAll, isPlain, choose, children }) {
  return html`<div class="lanebar">
    <div class="lanechoice" role="group" aria-label="Lanes">
      ${LANES.map(([name, label, rest]) => html`<button key=${name} type="button" aria-pressed=${lane === name} onClick=${() => choose({ lane: name })}>${label}<${Rest}>${rest}</${Rest}></button>`)}
    </div>
    <label title="Show each lifecycle event in a row of its own, and what frameworks store"><input type="checkbox" checked=${isAll} onChange=${(event) => choose({ isAll: event.currentTarget.checked })} /><span>All<${Rest}> events</${Rest}></span></label>
    <label title="Show texts without their Markdown"><input type="checkbox" checked=${isPlain} onChange=${(event) => choose({ isPlain: event.currentTarget.checked })} /><span>Plain<${Rest}> text</${Rest}></span></label>
    ${children}
  </div>`;
}
