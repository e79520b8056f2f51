// The list of sessions: search, filters, order, and a button for a new session.
import { useEffect, useRef } from "preact/hooks";
import { html } from "./html.js";
import { isBegun, writeNext } from "./composer.js";
import { ago, bytes, count, dateTime, money, readText } from "./format.js";
import { List, Search } from "./icons.js";
import { useShortcut } from "./keys.js";
import { go, sessionLink } from "./route.js";
import { State, needsWorker, useStates } from "./states.js";
import { VirtualList } from "./virtual_list.js";

const VALID = /^[A-Za-z0-9_-]{1,64}$/;
const ROW_REM = 3.5;
const SORTS = { activity: "Recent", created: "Newest", title: "Title", cost: "Cost" };

/** Return an unused name. With more sessions than are loaded, a random one: their names are not known. */
function freshName(rows, all) {
  const taken = new Set(rows.map((row) => row.id));
  if (all > rows.length) return `chat-${Math.random().toString(36).slice(2, 10)}`;
  for (let number = taken.size + 1; ; number += 1) {
    if (!taken.has(`chat-${number}`)) return `chat-${number}`;
  }
}

const entries = (number) => (number === 1 ? "1 entry" : `${count(number)} entries`);

function SessionRow({ row, isSelected, position, now, props }) {
  const length = isSelected ? Math.max(row.position, position) : row.position; // the log is newer than the list
  const lacks = needsWorker(row);
  const facts = [row.agent, row.origin ? `fork of ${row.origin.session}` : null, row.updated || length > 0 ? entries(length) : null].filter(Boolean).join(" · ");
  const title = [row.id, facts, row.updated ? `${dateTime(row.updated)}, ${bytes(row.sizeBytes)}` : row.isNew ? "no entries yet" : null, row.isRead === false ? "the server is still reading its entries" : null, lacks ? `no worker serves ${row.agent}` : null].filter(Boolean).join("\n");
  return html`<a ...${props} class="session" href=${sessionLink(row.id)} aria-current=${isSelected ? "page" : undefined} title=${title}>
    <span class=${row.title ? "title" : "title name"}>${row.title || row.id}</span>
    <span class="when">${row.updated ? ago(row.updated, now) : row.isNew ? "new" : ""}</span>
    <span class="facts">
      <${State} state=${row.state} waiting=${row.waiting} failure=${row.failure} />
      ${row.title ? html`<span class="name">${row.id}</span>` : null}<span class="rest">${facts}</span>
    </span>
    <span class="cost">${row.isRead === false ? html`<span class="reading">reading…</span>` : lacks ? html`<span class="lacking">no worker</span>` : row.cost === null || row.cost === undefined ? "" : money({ total: row.cost })}</span>
  </a>`;
}

function Choice({ label, value, options, onChange }) {
  return html`<select aria-label=${label} value=${value} onChange=${(event) => onChange(event.currentTarget.value)}>
    ${options.map(([name, text]) => html`<option key=${name} value=${name} selected=${name === value}>${text}</option>`)}
  </select>`;
}

/** `head` is that of the selected session, which is newer than its row; `own` is its row if it is not among those of the list. */
export function Sessions({ list, query, setQuery, selected, own, position, head, canWrite, now }) {
  const search = useRef(null);
  const isSubmitted = useRef(false); // Enter was pressed before the answer came
  const { rows, all, states, agents, progress } = list;
  const isPartial = progress !== null && (query.search !== "" || query.state !== ""); // titles and states are in the entries
  const total = rows === null ? "" : `${isPartial ? "at least " : ""}${count(all)} ${all === 1 ? "session" : "sessions"}`;
  const numbered = (text, number) => (number === undefined ? text : `${text} (${count(number)})`);
  const names = [...new Set([...Object.keys(agents), ...(query.agent ? [query.agent] : [])])].sort();
  const stateChoices = Object.entries(useStates()).map(([name, text]) => [name, numbered(text, states ? (states[name] ?? 0) : undefined)]);
  const set = (change) => setQuery({ ...query, ...change });
  const openNew = (id) => {
    writeNext(id);
    go(sessionLink(id));
  };
  const move = (step) => {
    if (!rows?.length) return;
    const at = rows.findIndex((row) => row.id === selected);
    go(sessionLink(rows[Math.max(0, Math.min(rows.length - 1, at + step))].id));
  };
  useShortcut("g s", "Sessions", "Search the sessions", () => search.current?.focus());
  useShortcut("j", "Sessions", "Next session", () => move(1));
  useShortcut("k", "Sessions", "Previous session", () => move(-1));

  const isFiltered = query.search !== "" || query.state !== "" || query.agent !== "";
  const shown = [...(rows ?? [])];
  if (selected && rows && !isFiltered && !rows.some((row) => row.id === selected)) {
    if (own && !own.isMissing) shown.unshift(own);
    else if (own === null || position > 0 || isBegun(selected)) shown.unshift({ id: selected, position: 0, updated: null, isNew: own !== null && position === 0, sizeBytes: 0 });
  }
  const wanted = query.search.trim();
  const isNew = list.isCurrent && wanted !== "" && VALID.test(wanted) && !shown.some((row) => row.id === wanted);
  const openFirst = () => {
    if (shown.length) go(sessionLink(shown[0].id));
    else if (isNew && canWrite) openNew(wanted);
  };
  const onSubmit = (event) => {
    event.preventDefault();
    isSubmitted.current = !list.isCurrent;
    if (list.isCurrent) openFirst();
  };
  useEffect(() => {
    if (!isSubmitted.current || !list.isCurrent) return;
    isSubmitted.current = false;
    openFirst();
  }, [list.isCurrent]);
  return html`<nav class="sessions" aria-label="Sessions">
    <form class="find" role="search" onSubmit=${onSubmit}>
      <span class="field"><${Search} /><input ref=${search} type="search" value=${query.search} onInput=${(event) => set({ search: event.currentTarget.value })} placeholder="Search…" aria-label="Search sessions" spellcheck=${false} autocomplete="off" maxlength="64" /></span>
      ${canWrite ? html`<button type="button" class="plus" title="Open a new session" onClick=${() => openNew(freshName(rows ?? [], all))}>+<span class="hidden"> New session</span></button>` : null}
    </form>
    <div class="filters">
      <${Choice} label="State" value=${query.state} options=${[["", "All states"], ...stateChoices]} onChange=${(state) => set({ state })} />
      ${names.length > 1 || query.agent ? html`<${Choice} label="Agent" value=${query.agent} options=${[["", "All agents"], ...names.map((name) => [name, numbered(name, isPartial ? undefined : (agents[name] ?? 0))])]} onChange=${(agent) => set({ agent })} />` : null}
      <${Choice} label="Order" value=${query.sort} options=${Object.entries(SORTS)} onChange=${(sort) => set({ sort })} />
    </div>
    <p class="hidden" role="status">${total}</p>
    ${list.error && list.error.status !== 401 && rows === null ? html`<p class="fault" role="alert">${list.error.message}</p>` : null}
    ${rows === null || (shown.length === 0 && !list.isCurrent)
      ? html`<p class="hint">Loading…</p>`
      : shown.length === 0
        ? html`<p class="hint">${isPartial ? "No session matches so far." : isFiltered ? "No session matches." : canWrite ? "No sessions yet. Press + and write a message." : "No sessions yet."}</p>`
        : html`<${VirtualList} items=${shown} selected=${selected} rowHeight=${ROW_REM} label="Sessions" onEnd=${list.more}
            draw=${(row, props) => html`<${SessionRow} row=${row.id === selected && head ? { ...row, ...head } : row} isSelected=${row.id === selected} position=${position} now=${now} props=${props} />`} />`}
    ${isNew && canWrite && rows !== null ? html`<button type="button" class="quiet" onClick=${() => openNew(wanted)}>Open ${wanted} as a new session</button>` : null}
    <p class="total"><${List} /> <span>${total}${progress ? html`<span class="progress"> · ${readText(progress)}</span>` : null}</span></p>
  </nav>`;
}
