// The turns of a session with tokens and cost, and the session's totals.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { count, money, tokens, visible } from "./format.js";
import { sessionLink } from "./route.js";
import { useStates } from "./states.js";
import { statusOf } from "./time/spans.js";

function Sum({ label, value, title }) {
  return html`<div class="sum" title=${title}><dt>${label}</dt><dd>${value}</dd></div>`;
}

function Totals({ usage, turns }) {
  const whole = usage.input + usage.cache_read + usage.cache_write;
  const hit = whole ? `${Math.round((100 * usage.cache_read) / whole)} % of the input came from the cache` : undefined;
  const unpriced = usage.calls_of_unknown_cost;
  const price = unpriced ? `US dollars; the cost of ${count(unpriced)} of ${count(usage.calls)} calls is unknown` : "US dollars";
  return html`<dl class="sums">
    <${Sum} label="cost" value=${money(usage.cost)} title=${price} />
    <${Sum} label="turns" value=${count(turns)} />
    <${Sum} label="in" value=${tokens(usage.input)} title=${`${count(usage.input)} input tokens, without cached ones`} />
    <${Sum} label="out" value=${tokens(usage.output)} title=${`${count(usage.output)} output tokens`} />
    <${Sum} label="cache read" value=${tokens(usage.cache_read)} title=${hit} />
    <${Sum} label="cache write" value=${tokens(usage.cache_write)} title=${`${count(usage.cache_write)} input tokens written to the cache`} />
    ${usage.countedFrom ? html`<${Sum} label="from entry" value=${count(usage.countedFrom)} title="Earlier entries were trimmed uncounted" />` : null}
  </dl>`;
}

function Turn({ turn, onShow }) {
  const usage = turn.usage;
  const status = statusOf(turn);
  const { waiting, queued } = useStates();
  return html`<li class="turn">
    <button type="button" onClick=${() => onShow(turn)} title="Show this turn in the lanes">
      <span class="number">${turn.turnIndex ?? turn.index}</span>
      <span class="loop" title=${turn.loopId ?? turn.model}>${turn.loopId ?? turn.model ?? "no loop"}</span>
      <span class=${`status ${status}`}>${{ waiting, queued }[status] ?? status}</span>
      <span class="tools">${turn.tools.map((tool, index) => html`<code key=${index} class=${tool.isError ? "bad" : ""} title=${tool.outcome ?? ""}>${visible(tool.name)}</code>`)}</span>
      <span class="cost">${money(usage?.cost)}</span>
      <span class="took">
        ${usage
          ? html`<span title="input tokens">in ${tokens(usage.input)}</span><span title="output tokens">out ${tokens(usage.output)}</span>
              ${usage.cache_read ? html`<span title="read from the cache">cached ${tokens(usage.cache_read)}</span>` : null}
              ${usage.cache_write ? html`<span title="written to the cache">to cache ${tokens(usage.cache_write)}</span>` : null}`
          : null}
      </span>
    </button>
  </li>`;
}

const PAGE = 50; // turns drawn at first, and with each "Show more": each has a dozen elements

/** Draws the newest turns, newest first. The server sends at most 200. */
export function Turns({ count: all, turns: loaded, usage, isAllowed, origin, onShow, isOpen, onClose }) {
  const [most, setMost] = useState(PAGE);
  const turns = loaded ?? [];
  const nothing = () => {
    if (!isAllowed) return "Turns and cost are shown to tokens that may read both lanes.";
    if (loaded === null) return "Loading…";
    return origin ? null : "A turn is one model call with its tools. Each one appears here with its tokens and cost.";
  };
  return html`<aside class=${`turns ${isOpen ? "open" : ""}`} id="panel" aria-label="Turns and cost" tabindex="0">
    <header><h2>Turns</h2><button type="button" class="icon close" aria-label="Close turns" onClick=${onClose}>✕</button></header>
    ${usage ? html`<${Totals} usage=${usage} turns=${all} />` : null}
    ${origin ? html`<p class="hint">Those of the fork. Turns up to #${count(origin.position)} count in <a href=${sessionLink(origin.session)}>${origin.session}</a>.</p>` : null}
    ${turns.length === 0
      ? html`<p class="hint">${nothing()}</p>`
      : html`<ol>${turns.slice(-most).reverse().map((turn) => html`<${Turn} key=${turn.index} turn=${turn} onShow=${onShow} />`)}</ol>`}
    ${turns.length > most ? html`<button type="button" class="quiet more" onClick=${() => setMost(most + PAGE)}>Show more turns</button>` : null}
    ${all > turns.length && turns.length <= most ? html`<p class="hint">and ${count(all - turns.length)} earlier ones</p>` : null}
  </aside>`;
}
