// Turns with their tokens and money, and the session's sums.
import { html } from "./html.js";
import { count, money, tokens } from "./format.js";

function Sum({ label, value, title }) {
  return html`<div class="sum" title=${title}><dt>${label}</dt><dd>${value}</dd></div>`;
}

function Totals({ usage, turns }) {
  const whole = usage.input + usage.cache_read + usage.cache_write;
  return html`<dl class="sums">
    <${Sum} label="cost" value=${money(usage.cost)} title="US dollars; – where no price is known" />
    <${Sum} label="turns" value=${count(turns)} />
    <${Sum} label="in" value=${tokens(usage.input)} title=${`${count(usage.input)} input tokens, without the cached ones`} />
    <${Sum} label="out" value=${tokens(usage.output)} title=${`${count(usage.output)} output tokens`} />
    <${Sum} label="cache read" value=${tokens(usage.cache_read)} title=${`${count(usage.cache_read)} input tokens read from the cache`} />
    <${Sum} label="cache write" value=${tokens(usage.cache_write)} title=${whole ? `${Math.round((100 * usage.cache_read) / whole)} % of the input came from the cache` : undefined} />
  </dl>`;
}

function Turn({ turn, onShow }) {
  const usage = turn.usage;
  return html`<li class=${`turn ${turn.status}`}>
    <button type="button" onClick=${() => onShow(turn)} title=${`${turn.turnId.loopId}, turn ${turn.turnId.turnIndex}: show it in the lanes`}>
      <span class="number">${turn.turnId.turnIndex}</span>
      <span class="loop">${turn.turnId.loopId}</span>
      <span class=${`status ${turn.status}`}>${turn.status}</span>
      <span class="tools">${(turn.tools ?? []).map((tool) => html`<code>${tool}</code>`)}</span>
      <span class="cost">${money(usage?.cost)}</span>
      <span class="took">
        <span title="input tokens">in ${tokens(usage?.input)}</span><span title="output tokens">out ${tokens(usage?.output)}</span>
        ${usage?.cache_read ? html`<span title="read from the cache">cached ${tokens(usage.cache_read)}</span>` : null}
        ${usage?.cache_write ? html`<span title="written to the cache">to cache ${tokens(usage.cache_write)}</span>` : null}
      </span>
    </button>
  </li>`;
}

export function Turns({ turns, usage, onShow }) {
  return html`<aside class="turns" aria-label="Turns and cost">
    <h2>Turns</h2>
    ${usage ? html`<${Totals} usage=${usage} turns=${turns.length} />` : null}
    ${turns.length === 0
      ? html`<p class="hint">A turn is one model call with its tools. Each one appears here with its tokens and cost.</p>`
      : html`<ol>${[...turns].reverse().map((turn) => html`<${Turn} key=${`${turn.turnId.loopId}#${turn.turnId.turnIndex}`} turn=${turn} onShow=${onShow} />`)}</ol>`}
  </aside>`;
}
