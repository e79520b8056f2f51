// Draws one event of the extension lane, and the row of a turn that stands for its lifecycle events.
import { useContext, useLayoutEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { count, cut, dateTime, money, seconds, time, visible } from "./format.js";
import { JsonTree } from "./json_tree.js";
import { Exact, OfEntry } from "./of_entry.js";
import { RawEntry } from "./raw_entry.js";
import { timeOf } from "./rows.js";
import { useStates } from "./states.js";

/** Describes an agent's event in a few words. Returns null for other events, which show their data. */
function describe(kind, data, tool) {
  const at = (position) => (position ? ` → #${position}` : "");
  const turn = data?.turnId ? `turn ${data.turnId.turnIndex}` : "";
  switch (kind) {
    case "agent.started":
      return [data.agent, data.continuation === "initial" ? "" : data.continuation, data.loopId].filter(Boolean).join(" · ");
    case "agent.ended":
      return `${data.stopReason} · ${count(data.turns)} ${data.turns === 1 ? "turn" : "turns"}${data.rejection ? ` · ${data.rejection}` : ""}`;
    case "agent.turn.started":
      return `${turn} · ${data.trigger ?? "user"}`;
    case "agent.turn.ended":
      return `${turn} · ${data.stopReason}${at(data.message)}`;
    case "agent.message.started":
      return turn;
    case "agent.message.ended":
      return `${turn}${at(data.position)}`;
    case "agent.tool.started":
    case "agent.tool.updated":
      return data.toolName;
    case "agent.tool.ended":
      return `${data.toolName}${data.isError ? ` · ${data.outcome ?? "failed"}` : ""}${at(data.position)}`;
    case "agent.progress":
      return `${data.toolName}: ${data.text}`;
    case "agent.input.rejected":
      return data.reason;
    case "agent.tool.waiting":
      return `${data.toolName} · ${data.why === "unknown" ? "result unknown" : "waits for approval"}`;
    case "agent.control.answered":
      return `#${data.control} ${data.outcome}${tool === null ? "" : ` · ${tool}`}${data.reason ? ` · ${data.reason}` : ""}`;
    case "agent.session.linked":
      return `${data.parent} → ${data.child} · ${data.agent}`;
    case "control.steer":
      return [`#${data.position}`, data.when, data.by && `by ${data.by}`].filter(Boolean).join(" · ");
    case "control.abort":
    case "control.pause":
    case "control.handoff":
    case "control.resume":
    case "control.approve":
    case "control.deny":
      return [tool, data.toolCallId, data.when, data.to, data.reason, data.by && `by ${data.by}`].filter(Boolean).join(" · ");
    default:
      return null;
  }
}

/** The same as a text, with invisible characters as codes; null also if the data do not fit the kind. */
export function wordsOf(kind, data, tool = null) {
  try {
    const words = describe(kind, data, tool);
    return words === null ? null : visible(words);
  } catch {
    return null;
  }
}

const isBadEvent = (kind, data) =>
  kind === "agent.input.rejected" ||
  (kind === "agent.control.answered" && data?.outcome === "refused") ||
  (kind === "agent.tool.ended" && data?.isError === true) ||
  (kind === "agent.ended" && (data?.stopReason === "error" || data?.stopReason === "aborted"));

const MOST_LINE = 400;

/** Draws an event in one line, which unfolds to its data. */
export function ExtensionEntry({ entry }) {
  const { sought, tool } = useContext(OfEntry);
  const [isOpen, setOpen] = useState(false);
  const { kind, data } = entry.message;
  const words = wordsOf(kind, data, tool);
  const isAgent = kind.startsWith("agent.");
  const name = html`<code class="kind">${visible(isAgent ? kind.slice("agent.".length) : kind)}</code>`;
  const when = html`<time title=${dateTime(timeOf(entry))}>${time(timeOf(entry))}</time>`;
  const line = words ?? (data === null ? "" : visible(JSON.stringify(data)));
  const toggle = (event) => {
    event.preventDefault(); // the state says whether it is open
    setOpen(!isOpen);
  };
  useLayoutEffect(() => {
    if (sought && data !== null) setOpen(true); // one line may cut the text off
  }, [sought]);
  return html`<details class=${`event ${isAgent ? "agent" : ""} ${isBadEvent(kind, data) ? "bad" : ""}`} open=${isOpen}>
    <summary class="line" title=${visible(kind)} onClick=${toggle}>${name}<span class=${words === null ? "data" : "words"}>${cut(line, MOST_LINE)}</span>${when}</summary>
    ${isOpen ? html`<div class="inside">${data === null ? null : html`<${Exact.Provider} value><${JsonTree} value=${data} isOpen /></${Exact.Provider}>`}<${RawEntry} entry=${entry} /></div>` : null}
  </details>`;
}

const MOST_NAMED = 3;

/** What a turn without an end does; null if it is not known. */
function Unended({ fold }) {
  const { isLive, isShared } = useContext(OfEntry);
  const states = useStates();
  if (fold.ended !== null || fold.loopEnded !== null) return null;
  if (isShared) return html`<span title="The fork begins within this turn. It goes on only in the session that was forked">cut by the fork</span>`;
  if (fold.waiting.size) return html`<span class="waits">${[...fold.waiting].every((call) => fold.decided.has(call)) ? states.queued : states.waiting}</span>`;
  return isLive ? html`<span class="running">runs</span>` : null;
}

/** Draws the row of a turn: what it did, how long it took and what it cost. */
export function TurnRow({ fold, isOpen, toggle }) {
  const tools = fold.tools.slice(0, MOST_NAMED);
  const more = fold.tools.length - tools.length;
  const took = fold.started !== null && fold.ended !== null ? fold.ended - fold.started : null;
  const isBad = ["error", "aborted", "guardRail"].includes(fold.loopEnded ?? fold.stopReason);
  const reason = isBad || fold.stopReason === "length" ? (fold.loopEnded ?? fold.stopReason) : null;
  const spoken = [fold.turn === null ? "loop" : `turn ${fold.turn}`, fold.tools.length ? `${fold.tools.length} ${fold.tools.length === 1 ? "tool" : "tools"}` : ""].filter(Boolean).join(" · ");
  return html`<button class=${`turnrow ${isBad || fold.failed ? "bad" : ""}`} type="button" aria-expanded=${isOpen} onClick=${() => toggle(fold.key)}
    title=${`${count(fold.events)} ${fold.events === 1 ? "event" : "events"} of ${fold.key}`}>
    <span class="turnname">${spoken}</span>
    ${tools.map((name, index) => html`<code key=${index} class="tool">${cut(visible(name), 60)}</code>`)}
    ${more > 0 ? html`<span class="note">+${more}</span>` : null}
    ${fold.failed ? html`<span class="wrong">${fold.failed} failed</span>` : null}
    ${reason ? html`<span class="wrong">${cut(visible(reason), 40)}</span>` : null}
    <span class="facts">
      ${took === null ? html`<${Unended} fold=${fold} />` : html`<span>${seconds(took)}</span>`}
      ${fold.cost ? html`<span>${money(fold.cost)}</span>` : null}
      ${fold.loopEnded && !isBad ? html`<span title="The loop ended with this turn">end</span>` : null}
    </span>
  </button>`;
}
