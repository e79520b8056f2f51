// The list of sessions, and the form for a new one.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { ago, bytes, count, dateTime } from "./format.js";

const VALID = /^[A-Za-z0-9_-]{1,64}$/;
const ACTIVE_SECONDS = 10;

/** Whether a message to the session would wait, because no live worker serves its agent. */
export const needsWorker = (head) => head?.hasWorker === false && !head.isClosed;

function freshName(taken) {
  for (let number = taken.size + 1; ; number += 1) {
    if (!taken.has(`chat-${number}`)) return `chat-${number}`;
  }
}

export function Sessions({ heads, selected, position, onSelect, now }) {
  const [name, setName] = useState("");
  const [fault, setFault] = useState(null);
  const known = new Set((heads ?? []).map((head) => head.id));

  const open = (event) => {
    event.preventDefault();
    const id = name.trim() || freshName(known);
    if (!VALID.test(id)) {
      setFault("Use letters, digits, - and _, at most 64 characters.");
      return;
    }
    setFault(null);
    setName("");
    onSelect(id);
  };

  const rows = [...(heads ?? [])];
  if (selected && heads && !known.has(selected)) rows.unshift({ id: selected, position: 0, updated: null, sizeBytes: 0 });
  // The lanes are newer than the list, which is polled.
  const length = (head) => (head.id === selected ? Math.max(head.position, position) : head.position);
  return html`<nav class="sessions" aria-label="Sessions">
    <form class="new" onSubmit=${open}>
      <input value=${name} onInput=${(event) => setName(event.currentTarget.value)} placeholder="New session…" aria-label="Name of a new session" aria-invalid=${fault !== null} spellcheck=${false} autocomplete="off" maxlength="64" />
      <button type="submit" title="Open a new session; without a name, one is chosen">+<span class="hidden"> New session</span></button>
    </form>
    ${fault ? html`<p class="fault" role="alert">${fault}</p>` : null}
    ${heads === null
      ? null
      : rows.length === 0
        ? html`<p class="hint">No sessions yet. Name one above, or press + and write a message.</p>`
        : html`<ul>
            ${rows.map(
              (head) => html`<li key=${head.id}>
                <button type="button" class="session" aria-current=${head.id === selected ? "true" : undefined} onClick=${() => onSelect(head.id)} title=${head.updated ? `${head.agent} · ${dateTime(head.updated)} · ${bytes(head.sizeBytes)}` : "no entries yet"}>
                  <span class=${`dot ${head.updated && now - head.updated < ACTIVE_SECONDS ? "active" : ""}`}></span>
                  <span class="name">${head.id}</span>
                  <span class="when">${head.updated ? ago(head.updated, now) : "new"}</span>
                  ${needsWorker(head) ? html`<span class="lacking">no worker serves this agent</span>` : null}
                  <span class="size">${length(head) === 1 ? "1 entry" : `${count(length(head))} entries`}${head.agent ? ` · ${head.agent}` : ""}${head.isClosed ? " · closed" : ""}${head.origin ? ` · fork of ${head.origin.session} at ${head.origin.position}` : ""}</span>
                </button>
              </li>`,
            )}
          </ul>`}
  </nav>`;
}
