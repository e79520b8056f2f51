// The view "Context": what the model saw at a position, and what changed since the turn before.
import { useMemo, useState } from "preact/hooks";
import { html } from "../html.js";
import { CopyButton } from "../copy.js";
import { JsonTree } from "../json_tree.js";
import { count, money, tokens } from "../format.js";
import { go, sessionLink } from "../route.js";
import { useAnswer } from "./hooks.js";
import { Changes } from "./items.js";
import { turnOf } from "./moment.js";
import { PROVIDERS } from "./providers.js";
import { compareSeen, seenAt, sentIn } from "./seen.js";

const WAIT_MS = 250; // while the user scrubs, only the position at rest is asked for
/** The position that the request of a turn was made at. */
const askedAt = (turn) => turn.calls.at(-1)?.position ?? turn.startedPosition;

export function ContextView({ session, feed, timeline, position, route, showEntry }) {
  const { provider = "", turn: named = null } = route.query;
  const at = position ?? feed?.position ?? 0;
  const turns = timeline?.turns ?? [];
  const turn = named === null ? turnOf(turns, at) : (turns.find((one) => one.turnId === named) ?? null);
  const before = turn === null ? null : (turns[turn.index - timeline.first - 1] ?? null);
  const [isWhole, setWhole] = useState(false);
  const [isJson, setJson] = useState(false);
  const base = before === null ? 0 : askedAt(before);
  const isReady = timeline !== null && at > 0;
  const model = turn?.model ?? turns.find((one) => one.model)?.model ?? null;
  const key = !isReady ? null : named !== null ? `${session} ${named} ${before?.turnId}` : `${session} ${base} ${at} ${provider} ${model}`;
  const { answer, fault, isLoading } = useAnswer(
    key,
    async (signal) => {
      if (named !== null) return { after: await sentIn(session, named, signal), before: before?.turnId ? await sentIn(session, before.turnId, signal).catch(() => null) : null };
      return { after: await seenAt(session, at, provider || null, model, signal), before: await contextBefore(session, base, provider, model, signal) };
    },
    WAIT_MS,
  );
  const found = useMemo(() => (answer ? { ...compareSeen(answer.before, answer.after), ...answer } : null), [answer]);
  const to = (query) => go(sessionLink(session, "context", route.at, { ...route.query, ...query }), true);
  if (!isReady && !timeline?.fault) return html`<p class="waiting" role="status">${feed?.hasCaughtUp && at === 0 ? "The session has no entries yet." : "Loading…"}</p>`;
  return html`<div class="context">
    <div class="tl-head cx-head">
      <div class="cx-tools">
        <label>Provider <select value=${provider} disabled=${named !== null} onChange=${(event) => to({ provider: event.currentTarget.value || null })}>${PROVIDERS.map(([name, label]) => html`<option key=${name} value=${name}>${label}</option>`)}</select></label>
        ${turn?.turnId && turn.calls.length ? html`<label title="The request that the log records for the turn, with its tools and options"><input type="checkbox" checked=${named !== null} onChange=${() => to({ turn: named === null ? turn.turnId : null })} /> Recorded request</label>` : null}
        <label><input type="checkbox" checked=${isWhole} onChange=${() => setWhole(!isWhole)} /> Unchanged too</label>
      </div>
      <div class="cx-tools">
        <button type="button" aria-pressed=${isJson} onClick=${() => setJson(!isJson)}>JSON</button>
        ${found ? html`<${CopyButton} text=${() => JSON.stringify(found.after.request, null, 2)} label="Copy JSON" />` : null}
      </div>
    </div>
    <div class="cx-scroll" tabindex="0" role="region" aria-label="What the model saw" aria-busy=${isLoading}>
      <${Facts} at=${named === null ? at : null} turn=${turn} before=${before} found=${found} isSent=${named !== null} />
      ${fault ? html`<p class="trouble" role="alert">${fault.message}</p>` : null}
      ${found === null ? (fault ? null : html`<p class="hint">Loading…</p>`) : isJson ? html`<${JsonTree} value=${found.after.request} isOpen />` : html`<${Request} found=${found} isWhole=${isWhole} showEntry=${showEntry} />`}
    </div>
  </div>`;
}

/** A provider may refuse the earlier context, such as one without a message: then everything is new. */
const contextBefore = (session, base, provider, model, signal) => (base > 0 ? seenAt(session, base, provider || null, model, signal).catch(() => null) : null);

function Tally({ counts, what }) {
  const parts = [
    ["added", "+", counts.added],
    ["removed", "−", counts.removed],
    ["replaced", "~", counts.replaced],
  ].filter(([, , number]) => number > 0);
  const all = counts.same + counts.added + counts.replaced;
  return html`<li><b>${count(all)}</b> ${what}${parts.map(([name, sign, number]) => html` <span key=${name} class=${`cx-count ${name}`} title=${name}>${sign}${count(number)}</span>`)}</li>`;
}

function Facts({ at, turn, before, found, isSent }) {
  const usage = turn?.usage;
  return html`<div class="cx-facts">
    <p>${isSent ? html`The request of <b>turn ${turn?.turnIndex ?? turn?.index}</b>${found && !found.after.isExact ? ", formed again: the log does not name its API" : ", as it was sent"}` : html`What a model would get after entry <b>#${count(at)}</b>`}${before ? html`, against <b>turn ${before.turnIndex ?? before.index}</b>` : ""}.</p>
    <ul class="tl-facts">
      ${found ? html`<${Tally} counts=${found.counts} what="messages" />` : null}
      ${found?.tools.length ? html`<${Tally} counts=${found.toolCounts} what="tools" />` : null}
      ${found?.after.model ? html`<li>${found.after.provider} · <code>${found.after.model}</code></li>` : null}
      ${usage ? html`<li title="of this turn"><b>${tokens(usage.input + usage.cache_read + usage.cache_write)}</b> in${usage.cache_read ? html`, ${tokens(usage.cache_read)} cached` : null}</li><li><b>${tokens(usage.output)}</b> out</li><li><b>${money(usage.cost)}</b></li>` : null}
    </ul>
    ${found?.after.warnings.length ? html`<details class="cx-warn"><summary>${count(found.after.warnings.length)} left out or changed for this provider</summary><ul>${found.after.warnings.slice(0, 100).map((one, index) => html`<li key=${index}>${one}</li>`)}</ul></details>` : null}
  </div>`;
}

function Request({ found, isWhole, showEntry }) {
  const isTools = found.tools.length > 0;
  return html`<div class="cx-request">
    <${Changes} changes=${found.items} isWhole=${isWhole} showEntry=${showEntry} label="Messages" />
    ${isTools ? html`<h3>Tools</h3><${Changes} changes=${found.tools} isWhole=${isWhole} label="Tools" />` : null}
    <h3>Options ${found.isChanged ? html`<small class="cx-count replaced">changed</small>` : null}</h3>
    <${JsonTree} value=${found.after.options} isOpen />
  </div>`;
}
