// Draws the items of a request, and what changed between two requests.
import { useState } from "preact/hooks";
import { html } from "../html.js";
import { Arguments, ResultText, Text } from "../blocks.js";
import { Diff } from "../diff.js";
import { JsonTree } from "../json_tree.js";
import { bytes, count, cut, pretty, visible } from "../format.js";

const CHUNK = 40; // items drawn at once
const MOST_LINES = 400; // longer texts are shown whole, before and after, and not line by line

const SIGNS = { added: "+", removed: "−", replaced: "~", same: "" };

function Part({ part }) {
  switch (part.kind) {
    case "text":
      return html`<${Text} text=${String(part.text ?? "")} />`;
    case "thinking":
      return html`<div class="cx-thinking"><span class="label">thinking</span>${part.text ? html`<${Text} text=${String(part.text)} />` : " hidden by the provider"}</div>`;
    case "call":
      return html`<div class="cx-call"><span class="label">calls</span> <code class="tool">${visible(part.name ?? "tool")}</code><${Arguments} block=${{ arguments: part.value }} /></div>`;
    case "result":
    case "failure":
      return html`<div class=${`cx-result ${part.kind}`}><span class="label">${part.kind === "failure" ? "failed result" : "result"}</span> ${part.name ? html`<code>${visible(part.name)}</code>` : null}${part.isMadeUp ? html` <span class="cx-made">made up for the model: the log has no result of this call here</span>` : null}
        ${part.parts ? part.parts.map((one, index) => (one.kind === "text" ? html`<${ResultText} key=${index} text=${String(one.text)} />` : html`<${Part} key=${index} part=${one} />`)) : html`<${JsonTree} value=${part.value ?? null} isOpen />`}</div>`;
    case "media":
      return html`<div class="cx-media"><span class="label">${part.name}</span> ${part.value ? html`<code>${cut(pretty(part.value), 300)}</code>` : bytes(part.size)}</div>`;
    default:
      return html`<${Text} text=${pretty(part.value)} kind="code" />`;
  }
}

function Tool({ item }) {
  return html`<code class="tool">${visible(item.name)}</code>${item.about ? html` <span class="note">${visible(cut(String(item.about), 300))}</span>` : null}
    <details><summary>its schema</summary><${Text} text=${JSON.stringify(item.value, null, 2)} kind="code" /></details>`;
}

const Body = ({ item }) => (item.section === "tool" ? html`<${Tool} item=${item} />` : item.parts.map((part, index) => html`<${Part} key=${index} part=${part} />`));

const onlyText = (item) => (item?.parts?.length === 1 && item.parts[0].kind === "text" ? String(item.parts[0].text ?? "") : null);

function Replaced({ before, after }) {
  const [old, fresh] = [onlyText(before), onlyText(after)];
  if (old !== null && fresh !== null && old.split("\n").length + fresh.split("\n").length < MOST_LINES) return html`<${Diff} before=${old} after=${fresh} />`;
  return html`<div class="cx-old"><span class="label">before</span><${Body} item=${before} /></div><div class="cx-new"><span class="label">now</span><${Body} item=${after} /></div>`;
}

function Item({ one, showEntry }) {
  const { change, before, after } = one;
  const item = after ?? before;
  const label = item.section === "tool" ? "tool" : item.role;
  return html`<li class=${`cx-item ${item.role} ${change}`} aria-label=${`${change === "same" ? "" : `${change}: `}${label}`}>
    <header><span class="cx-sign" aria-hidden="true">${SIGNS[change]}</span><b>${label}</b>${change === "same" ? null : html`<small>${change}</small>`}
      ${item.entry && change !== "removed" && showEntry ? html`<button type="button" class="tl-entry" title=${`Show entry #${item.entry} in the log`} onClick=${() => showEntry(item.entry)}>#${item.entry}</button>` : null}</header>
    <div>${change === "replaced" ? html`<${Replaced} before=${before} after=${after} />` : html`<${Body} item=${item} />`}</div>
  </li>`;
}

/** Unchanged items in a row, folded. */
function Same({ run, showEntry }) {
  const [shown, setShown] = useState(0);
  const rest = run.length - shown;
  return html`${run.slice(0, shown).map((one, index) => html`<${Item} key=${index} one=${one} showEntry=${showEntry} />`)}
    ${rest > 0 ? html`<li class="cx-run"><button type="button" class="quiet" onClick=${() => setShown(shown + CHUNK)}>${count(rest)} unchanged ${rest === 1 ? "item" : "items"}</button></li>` : null}`;
}

/** Join unchanged items beside each other. Pure. */
export function runs(changes) {
  const found = [];
  for (const one of changes) {
    if (one.change !== "same") found.push(one);
    else if (found.at(-1)?.run) found.at(-1).run.push(one);
    else found.push({ run: [one] });
  }
  return found;
}

/** Draws changes, with what did not change folded; or all items. */
export function Changes({ changes, isWhole, showEntry, label }) {
  const [shown, setShown] = useState(CHUNK);
  const groups = isWhole ? changes : runs(changes);
  // The newest are read first: earlier ones are left out until asked for.
  const from = Math.max(0, groups.length - shown);
  return html`<ol class="cx-items" aria-label=${label}>
    ${from > 0 ? html`<li class="cx-run"><button type="button" class="quiet" onClick=${() => setShown(shown + CHUNK)}>${count(from)} earlier</button></li>` : null}
    ${groups.slice(from).map((one, index) => (one.run ? html`<${Same} key=${from + index} run=${one.run} showEntry=${showEntry} />` : html`<${Item} key=${from + index} one=${one} showEntry=${showEntry} />`))}
  </ol>`;
}

/** Draws changes in two columns, before on the left and after on the right, with what is the same folded. */
export function SideBySide({ changes, labels, showEntries }) {
  const [shown, setShown] = useState(CHUNK);
  const groups = runs(changes);
  const cell = (one, side) => {
    const item = one[side === 0 ? "before" : "after"];
    if (item === null) return html`<div class="cp-none" aria-hidden="true"></div>`;
    const change = one.change === "same" ? "same" : one.change === "replaced" ? "replaced" : side === 0 ? "removed" : "added";
    return html`<div class=${`cx-item ${item.role} ${change}`}><header><b>${item.section === "tool" ? "tool" : item.role}</b><small>${one.change === "same" ? "" : `only ${one.change === "replaced" ? "so " : ""}in ${labels[side]}`}</small>
      ${item.entry ? html`<button type="button" class="tl-entry" title=${`Show entry #${item.entry} in the log`} onClick=${() => showEntries[side](item.entry)}>#${item.entry}</button>` : null}</header><div><${Body} item=${item} /></div></div>`;
  };
  return html`<ol class="cp-rows" aria-label="Both contexts">
    ${groups.slice(0, shown).map((one, index) => (one.run ? html`<${SamePair} key=${index} run=${one.run} cell=${cell} />` : html`<li key=${index} class="cp-row">${cell(one, 0)}${cell(one, 1)}</li>`))}
    ${groups.length > shown ? html`<li class="cx-run"><button type="button" class="quiet" onClick=${() => setShown(shown + CHUNK)}>${count(groups.length - shown)} more</button></li>` : null}
  </ol>`;
}

function SamePair({ run, cell }) {
  const [shown, setShown] = useState(0);
  const rest = run.length - shown;
  return html`${run.slice(0, shown).map((one, index) => html`<li key=${index} class="cp-row">${cell(one, 0)}${cell(one, 1)}</li>`)}
    ${rest > 0 ? html`<li class="cx-run"><button type="button" class="quiet" onClick=${() => setShown(shown + CHUNK)}>${count(rest)} the same in both</button></li>` : null}`;
}
