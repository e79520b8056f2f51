// The view "Compare": two positions of a session, or a session and its fork.
import { useMemo, useState } from "preact/hooks";
import { html } from "../html.js";
import { getEntriesPage, getForks, getHead } from "../api.js";
import { count, money, tokens, visible } from "../format.js";
import { may } from "../rights.js";
import { go, sessionLink } from "../route.js";
import { ForkHere } from "./fork.js";
import { useAnswer, useTimeline } from "./hooks.js";
import { SideBySide } from "./items.js";
import { summed, turnAt, usageAt } from "./moment.js";
import { entryLine, readPair, sharedUntil, usageRows } from "./pair.js";
import { compareSeen, seenAt } from "./seen.js";
import { PROVIDERS } from "./providers.js";

const WAIT_MS = 250;
const MOST_ENTRIES = 200; // drawn for one side; the log shows the rest

export function CompareView({ session, feed, timeline, position, route, access }) {
  const { provider = "" } = route.query;
  const asked = readPair(session, route.query, position);
  const isOther = asked.right.session !== session;
  const last = feed?.position ?? 0;
  const { answer: heads, fault } = useAnswer(last > 0 ? `${session} ${asked.right.session}` : null, async () => {
    const [one, other] = await Promise.all([getHead(session), getHead(asked.right.session)]);
    return { one, other };
  });
  const theirs = useTimeline(isOther ? asked.right.session : null, 0);
  const other = isOther ? theirs : timeline;
  const turns = timeline?.turns ?? [];
  const to = (query) => go(sessionLink(session, "compare", null, { ...route.query, past: null, ...query }), true);
  if (fault) return html`<p class="trouble" role="alert">${fault.message}</p>`;
  if (!heads || heads.one.id !== session || heads.other.id !== asked.right.session || !timeline) return html`<p class="waiting" role="status">${feed?.hasCaughtUp && last === 0 ? "The session has no entries yet." : "Loading…"}</p>`;

  const lastOf = isOther ? heads.other.position : last;
  const origin = heads.other.origin?.session === session ? heads.other.origin.position : null;
  const left = { id: session, origin: heads.one.origin, position: within(asked.left.position ?? (isOther ? last : beforeLastTurn(turns, last)), last) };
  const right = { id: asked.right.session, origin: heads.other.origin, position: within(asked.right.position ?? lastOf, lastOf) };
  const split = sharedUntil(left, right);
  const labels = isOther ? [session, right.id] : [`#${count(left.position)}`, `#${count(right.position)}`];
  const show = (id) => (at) => go(sessionLink(id, "log", at));
  return html`<div class="compare">
    <div class="tl-head cp-head">
      <${Side} label="Left" id=${session} last=${last} at=${left.position} onAt=${(a) => to({ a })} access=${access} />
      <${Side} label="Right" id=${right.id} last=${lastOf} at=${right.position} onAt=${(b) => to({ b })} access=${access}>
        <${Others} session=${session} selected=${right.id} origin=${heads.one.origin?.session ?? null} onSelect=${(id) => to({ with: id === session ? null : id, b: null, a: null })} />
      </${Side}>
    </div>
    <div class="cx-scroll" tabindex="0" role="region" aria-label="The comparison">
      <p class="cp-split">${split === 0 && isOther ? "The sessions share no entries that this page knows of." : html`Both share the entries up to <b>#${count(split)}</b>${origin === null ? "" : ", where the fork begins"}.`}</p>
      <${Usage} left=${usageOf(timeline, left.position, isOther ? split : 0)} right=${usageOf(other, right.position, isOther ? split : 0)} labels=${labels} since=${isOther ? split : 0} />
      <h3>Entries that differ</h3>
      <div class=${isOther ? "cp-pair" : ""}>
        ${isOther || left.position > split ? html`<${Entries} session=${session} after=${split} until=${left.position} label=${labels[0]} onShow=${show(session)} />` : null}
        ${isOther || right.position > split ? html`<${Entries} session=${right.id} after=${split} until=${right.position} label=${labels[1]} onShow=${show(right.id)} />` : null}
        ${!isOther && left.position === right.position ? html`<p class="hint">Both sides are the same position.</p>` : null}
      </div>
      <${Contexts} left=${left} right=${right} labels=${labels} provider=${provider} model=${turns.find((one) => one.model)?.model ?? null} onProvider=${(name) => to({ provider: name || null })} showEntries=${[show(session), show(right.id)]} />
    </div>
  </div>`;
}

const within = (position, last) => Math.min(Math.max(position, 1), Math.max(last, 1));

const beforeLastTurn = (turns, last) => Math.max(1, (turns.at(-1)?.startedPosition ?? last) - 1);

/** The usage up to a position, of the turns after `since`; null while it is unknown. */
function usageOf(timeline, position, since) {
  if (!timeline || timeline.first === null) return null;
  if (since === 0) return usageAt(timeline, position);
  return summed(timeline.turns.filter((turn) => turn.startedPosition > since).map((turn) => turnAt(turn, position)).filter((turn) => turn !== null));
}

function Side({ label, id, last, at, onAt, access, children }) {
  const [typed, setTyped] = useState(null);
  const submit = () => {
    if (typed !== null && /^\d+$/.test(typed)) onAt(Number(typed));
    setTyped(null);
  };
  return html`<fieldset class="cp-side"><legend>${label}</legend>
    ${children ?? html`<code title=${id}>${id}</code>`}
    <label>at # <input type="number" min="1" max=${last} value=${typed ?? at} aria-label=${`${label}: position`} onInput=${(event) => setTyped(event.currentTarget.value)} onChange=${submit} /></label>
    <span class="note">of ${count(last)}</span>
    ${may(access, "fork") ? html`<${ForkHere} session=${id} position=${at} />` : null}
  </fieldset>`;
}

/** Chooses the session on the right: this one, the one that it was forked from, its forks, or any other by its id. */
function Others({ session, selected, origin, onSelect }) {
  const [isOpen, setOpen] = useState(false); // its forks are asked for when the user opens the list
  const { answer } = useAnswer(isOpen ? session : null, () => getForks(session).catch(() => ({ forks: [] })));
  const [isTyping, setTyping] = useState(false);
  const forks = (answer?.forks ?? []).map((fork) => fork.id ?? fork.session);
  const known = [session, ...(origin ? [origin] : []), ...forks];
  const choose = (event) => {
    const { value } = event.currentTarget;
    if (value === "") setTyping(true);
    else onSelect(value);
  };
  const typed = (event) => {
    const { value } = event.currentTarget;
    setTyping(false);
    if (/^[A-Za-z0-9_-]{1,64}$/.test(value)) onSelect(value);
  };
  if (isTyping) return html`<input class="cp-id" aria-label="Id of the other session" placeholder="session id" maxlength="64" onChange=${typed} onBlur=${() => setTyping(false)} ref=${(box) => box?.focus()} />`;
  return html`<select aria-label="Session on the right" value=${selected} onFocus=${() => setOpen(true)} onChange=${choose}>
    ${[...new Set([...known, selected])].map((id) => html`<option key=${id} value=${id}>${id === session ? "this session" : id === origin ? `${id} (forked from)` : forks.includes(id) ? `${id} (fork)` : id}</option>`)}
    <option value="">another session…</option>
  </select>`;
}

function Usage({ left, right, labels, since }) {
  const text = (name, value) => (value === null ? "–" : name === "cost" ? money({ total: value }) : tokens(value));
  const signed = (name, value) => (value === null ? "–" : value === 0 ? "same" : `${value > 0 ? "+" : "−"}${text(name, Math.abs(value))}`);
  return html`<table class="cp-usage"><caption>${since ? `Usage since #${count(since)}` : "Usage so far"}</caption>
    <thead><tr><th scope="col"><span class="hidden">What</span></th><th scope="col">${labels[0]}</th><th scope="col">${labels[1]}</th><th scope="col">Difference</th></tr></thead>
    <tbody>${usageRows(left, right).map((row) => html`<tr key=${row.name}><th scope="row">${row.label}</th><td>${text(row.name, row.left)}</td><td>${text(row.name, row.right)}</td><td class=${row.difference ? "cp-diff" : ""}>${signed(row.name, row.difference)}</td></tr>`)}</tbody>
  </table>`;
}

function Entries({ session, after, until, label, onShow }) {
  const size = Math.max(0, until - after);
  const end = Math.min(until, after + MOST_ENTRIES);
  const { answer, fault } = useAnswer(size > 0 ? `${session} ${after} ${end}` : null, (signal) => getEntriesPage(session, after, end, signal), WAIT_MS);
  const entries = size > 0 ? (answer?.entries ?? null) : [];
  const shown = entries?.at(-1)?.position ?? end;
  return html`<section class="cp-entries" aria-label=${`Entries only in ${label}`}>
    <h4>only in <code>${label}</code> <span class="note">${count(size)}</span></h4>
    ${fault ? html`<p class="fault" role="alert">${fault.message}</p>` : null}
    ${entries === null ? html`<p class="hint">Loading…</p>` : entries.length === 0 ? html`<p class="hint">none</p>` : html`<ol>${entries.map((entry) => html`<${Line} key=${entry.position} entry=${entry} onShow=${onShow} />`)}</ol>`}
    ${entries?.length && shown < until ? html`<button type="button" class="quiet" onClick=${() => onShow(shown + 1)}>${count(until - shown)} more in the log</button>` : null}
  </section>`;
}

function Line({ entry, onShow }) {
  const { what, words } = entryLine(entry);
  return html`<li class=${entry.lane === "llm" ? "llm" : "extension"}><button type="button" class="tl-entry" title=${`Show entry #${entry.position} in the log`} onClick=${() => onShow(entry.position)}>#${entry.position}</button><code>${visible(what)}</code><span>${visible(words)}</span></li>`;
}

function Contexts({ left, right, labels, provider, model, onProvider, showEntries }) {
  const key = `${left.id} ${left.position} ${right.id} ${right.position} ${provider} ${model}`;
  const { answer, fault, isLoading } = useAnswer(
    key,
    async (signal) => Promise.all([seenAt(left.id, left.position, provider || null, model, signal), seenAt(right.id, right.position, provider || null, model, signal)]),
    WAIT_MS,
  );
  const found = useMemo(() => (answer ? compareSeen(...answer) : null), [answer]);
  const differ = found ? found.items.filter((one) => one.change !== "same").length : 0;
  return html`<section aria-label="Contexts" aria-busy=${isLoading}>
    <h3>What the model would see ${found ? html`<small class="note">${differ === 0 ? "the same messages" : `${count(differ)} messages differ`}</small>` : null}
      <select aria-label="Provider" value=${provider} onChange=${(event) => onProvider(event.currentTarget.value)}>${PROVIDERS.map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select></h3>
    ${fault ? html`<p class="fault" role="alert">${fault.message}</p>` : null}
    ${found ? html`<${SideBySide} changes=${found.items} labels=${labels} showEntries=${showEntries} />` : fault ? null : html`<p class="hint">Loading…</p>`}
  </section>`;
}
