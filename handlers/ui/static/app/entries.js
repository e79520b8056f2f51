// Draws one entry in its lane: the LLM lane on the left, the extension lane on the right.
import { Component } from "preact";
import { html } from "./html.js";
import { Blocks, Json, Text, ToolCall } from "./blocks.js";
import { count, dateTime, money, pretty, time, tokens } from "./format.js";

const ROLES = {
  user: "user",
  assistant: "assistant",
  toolResult: "tool result",
  system: "system",
  developer: "developer",
  context: "context",
};

const CONTEXT = {
  compaction: (entry) => `compacted${entry.firstKept ? `, kept from #${entry.firstKept}` : ""}${entry.tokensBefore ? `, ${tokens(entry.tokensBefore)} tokens before` : ""}`,
  loopCompaction: (entry) => `loop ${entry.loopId} compacted`,
  prune: (entry) => `left out ${entry.pruned.map((position) => `#${position}`).join(", ")}${entry.memo ? `: ${entry.memo}` : ""}`,
  branchSummary: (entry) => `returned from a branch${entry.branch ? ` that ended at #${entry.branch}` : ""}`,
  leafMove: (entry) => (entry.to ? `continues after #${entry.to}` : "continues from the start"),
  modelChange: (entry) => `model is now ${entry.provider}/${entry.model}`,
  thinkingLevelChange: (entry) => `thinking level is now ${entry.level}`,
  label: (entry) => (entry.label ? `#${entry.target} is labelled “${entry.label}”` : `label of #${entry.target} removed`),
};

const turnName = (turn) => (turn ? `turn ${turn.turnIndex}` : null);

function Spent({ message }) {
  const usage = message.usage;
  const parts = [];
  if (message.stopReason) parts.push(html`<span class=${`stop ${message.stopReason}`} title=${message.rawStopReason ?? "stop reason"}>${message.stopReason}</span>`);
  if (usage) {
    parts.push(html`<span title="input tokens">in ${tokens(usage.input)}</span>`);
    parts.push(html`<span title="output tokens">out ${tokens(usage.output)}</span>`);
    if (usage.reasoning) parts.push(html`<span title="reasoning, a part of the output">thought ${tokens(usage.reasoning)}</span>`);
    if (usage.cache_read) parts.push(html`<span title="input tokens read from the cache">cached ${tokens(usage.cache_read)}</span>`);
    if (usage.cache_write) parts.push(html`<span title="input tokens written to the cache">to cache ${tokens(usage.cache_write)}</span>`);
    if (usage.cost) parts.push(html`<span title=${usage.cost.source ?? "cost"}>${money(usage.cost)}</span>`);
  }
  return parts.length ? html`<footer class="spent">${parts}</footer>` : null;
}

/** Draws an entry that is forged or cannot be decoded. Such entries are always shown. */
function Unreadable({ message }) {
  return html`<article class="message bad" aria-label="unreadable entry">
    <header><span class="role">unreadable</span></header>
    <div class="failure"><${Text} text=${message.error} /></div>
    ${message.raw ? html`<${Text} text=${message.raw} kind="code" />` : null}
  </article>`;
}

function LlmEntry({ entry }) {
  const message = entry.message;
  if (message.role === "unreadable") return html`<${Unreadable} message=${message} />`;
  const isFailed = message.isError || message.stopReason === "error" || message.stopReason === "aborted";
  const facts = [message.toolName, message.model, message.name, turnName(message.turnId)].filter(Boolean);
  return html`<article class=${`message ${message.role} ${isFailed ? "bad" : ""}`} aria-label=${`${ROLES[message.role] ?? message.role}, position ${entry.position}`}>
    <header>
      <span class="role">${ROLES[message.role] ?? message.role}</span>
      ${facts.map((fact) => html`<span class="fact">${fact}</span>`)}
      <time title=${dateTime(entry.time)}>${time(entry.time)}</time>
    </header>
    ${message.role === "context"
      ? html`<div class="steer">${(CONTEXT[message.kind] ?? ((it) => pretty(it)))(message)}</div>
          ${message.summary ? html`<${Text} text=${message.summary} />` : null}`
      : html`<${Blocks} blocks=${message.content ?? []} kind=${message.role === "toolResult" ? "code" : undefined} />`}
    ${message.role === "toolResult" && message.structured !== undefined && !(message.content ?? []).length
      ? html`<${Json} value=${message.structured} />`
      : null}
    ${message.error_message ? html`<div class="failure"><${Text} text=${message.error_message} /></div>` : null}
    ${message.role === "assistant" ? html`<${Spent} message=${message} />` : null}
  </article>`;
}

/** Describes an agent's event in a few words. Returns null for other events, which show their data. */
function describe(kind, data) {
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
      return `#${data.control} ${data.outcome}${data.reason ? ` · ${data.reason}` : ""}`;
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
      return [data.toolCallId, data.when, data.to, data.reason, data.by && `by ${data.by}`].filter(Boolean).join(" · ");
    default:
      return null;
  }
}

function ExtensionEntry({ entry }) {
  if (entry.message.role === "unreadable") return html`<${Unreadable} message=${entry.message} />`;
  const { kind, data } = entry.message;
  let words = null;
  try {
    words = describe(kind, data);
    if (words !== null) words = String(words);
  } catch {
    // The data do not fit the kind: they are shown as JSON.
  }
  const isAgent = kind.startsWith("agent.");
  const isBad = kind === "agent.input.rejected" || (kind === "agent.control.answered" && data?.outcome === "refused") || (kind === "agent.tool.ended" && data?.isError === true);
  const name = html`<code class="kind">${isAgent ? kind.slice("agent.".length) : kind}</code>`;
  const when = html`<time title=${dateTime(entry.time)}>${time(entry.time)}</time>`;
  if (data === null) return html`<div class=${`event ${isAgent ? "agent" : ""}`}><div class="line">${name}${when}</div></div>`;
  const line = JSON.stringify(data);
  return html`<details class=${`event ${isAgent ? "agent" : ""} ${isBad ? "bad" : ""}`}>
    <summary class="line" title=${kind}>${name}<span class=${words === null ? "data" : "words"}>${(words ?? line).slice(0, 400)}</span>${when}</summary>
    <${Text} text=${JSON.stringify(data, null, 2)} kind="code" />
  </details>`;
}

/** A row of the grid. A row is drawn once, because an entry never changes. An entry that cannot be drawn is shown as JSON. */
export class Row extends Component {
  static getDerivedStateFromError() {
    return { isBroken: true };
  }

  shouldComponentUpdate(next, state) {
    return next.entry !== this.props.entry || state.isBroken !== this.state.isBroken;
  }

  render({ entry }, { isBroken }) {
    if (isBroken) {
      return html`<li class="row broken" data-position=${entry.position}>
        <div class="cell left"></div>
        <div class="spine"><span>${String(entry.position)}</span></div>
        <div class="cell right"><article class="message bad" aria-label="malformed entry">
          <header><span class="role">malformed</span></header>
          <div class="text code">${JSON.stringify(entry.message).slice(0, 4000)}</div>
        </article></div>
      </li>`;
    }
    if (entry.gap) {
      return html`<li class="row gap"><p>Entries before #${entry.gap.firstKept} were trimmed and cannot be shown.</p></li>`;
    }
    const isLlm = entry.lane === "llm";
    return html`<li class=${`row ${isLlm ? "llm" : "extension"}`} data-position=${entry.position}>
      <div class="cell left">${isLlm ? html`<${LlmEntry} entry=${entry} />` : null}</div>
      <div class="spine" title=${`position ${entry.position}, by ${entry.producer}`}><span>${entry.position}</span></div>
      <div class="cell right">${isLlm ? null : html`<${ExtensionEntry} entry=${entry} />`}</div>
    </li>`;
  }
}

/** Draws the message that a model is writing, until the complete message replaces it. */
export class PreviewRow extends Component {
  static getDerivedStateFromError() {
    return { isBroken: true };
  }

  render({ preview }, { isBroken }) {
    if (isBroken) return html`<li class="row llm preview" data-message=${String(preview.id)}><div class="cell left"><div class="failure">This preview cannot be drawn.</div></div></li>`;
    return html`<${Preview} preview=${preview} />`;
  }
}

function Preview({ preview }) {
  return html`<li class="row llm preview" data-message=${preview.id}>
    <div class="cell left">
      <article class=${`message assistant ${preview.cut ? "bad" : "speaking"}`} aria-label="the model is writing">
        <header>
          <span class="role">assistant</span><span class="fact">${preview.cut ? "cut" : "writing"}</span>
          ${preview.turnId ? html`<span class="fact">${turnName(preview.turnId)}</span>` : null}
        </header>
        ${preview.blocks.map((block, index) => {
          if (!block) return null;
          if (block.kind === "thinking") return html`<div class="thinking live" key=${index}><span class="label">thinking</span><div class="text prose">${block.text}</div></div>`;
          if (block.kind === "toolCall") return html`<${ToolCall} key=${index} name=${block.name ?? "…"}><div class="text code">${block.text}</div></${ToolCall}>`;
          return html`<div class="text prose" key=${index}>${block.text}</div>`;
        })}
        ${preview.cut ? html`<div class="failure">${preview.cut}</div>` : html`<span class="caret" aria-hidden="true"></span>`}
      </article>
    </div>
    <div class="spine"><span>live</span></div>
    <div class="cell right"></div>
  </li>`;
}
