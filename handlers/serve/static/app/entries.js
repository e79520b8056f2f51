// Draws one entry in its lane: the LLM lane on the left, the extension lane on the right.
import { Component } from "preact";
import { useContext, useState } from "preact/hooks";
import { html } from "./html.js";
import { Blocks, Text, ToolCall } from "./blocks.js";
import { ExtensionEntry, TurnRow } from "./events.js";
import { placeOf } from "./find.js";
import { dateTime, money, pretty, time, tokens, visible } from "./format.js";
import { JsonTree } from "./json_tree.js";
import { Markdown } from "./markdown.js";
import { OfEntry } from "./of_entry.js";
import { RawEntry } from "./raw_entry.js";
import { seesBothLanes } from "./rights.js";
import { sessionLink } from "./route.js";
import { timeOf } from "./rows.js";

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

/** The name of the entry's turn, which opens its bar in the timeline. */
function TurnLink({ turn }) {
  const { session, position, access } = useContext(OfEntry);
  if (!access || !seesBothLanes(access)) return html`<span class="fact">${turnName(turn)}</span>`;
  return html`<a class="fact toturn" href=${sessionLink(session, "timeline", position)} title="Show it in the timeline">${turnName(turn)}</a>`;
}

function LlmEntry({ entry }) {
  const [isRaw, setRaw] = useState(false);
  const message = entry.message;
  if (message.role === "unreadable") return html`<${Unreadable} message=${message} />`;
  const isRedriven = message.metadata?.["lanebus.redriven"] === true; // an empty answer: no model was called
  const isFailed = !isRedriven && (message.isError || message.stopReason === "error" || message.stopReason === "aborted");
  const role = isRedriven ? "redriven" : (ROLES[message.role] ?? message.role);
  const facts = [message.toolName, message.model, message.name].filter(Boolean);
  return html`<article class=${`message ${message.role} ${isFailed ? "bad" : ""}`} aria-label=${`${role}, position ${entry.position}`}>
    <header>
      <span class="role">${role}</span>
      ${facts.map((fact) => html`<span class="fact">${visible(fact)}</span>`)}
      ${message.turnId ? html`<${TurnLink} turn=${message.turnId} />` : null}
      <time title=${dateTime(timeOf(entry))}>${time(timeOf(entry))}</time>
      <button class="rawswitch" type="button" aria-pressed=${isRaw} title="The entry as JSON" onClick=${() => setRaw(!isRaw)}>{ }</button>
    </header>
    ${isRaw ? html`<${RawEntry} entry=${entry} isOpen />` : null}
    ${message.role === "context"
      ? html`<div class="steer">${(CONTEXT[message.kind] ?? ((it) => pretty(it)))(message)}</div>
          ${message.summary ? html`<${Text} text=${message.summary} />` : null}`
      : html`<${Blocks} blocks=${message.content ?? []} kind=${message.role === "toolResult" ? "code" : undefined} />`}
    ${message.role === "toolResult" && message.structured !== undefined && !(message.content ?? []).length
      ? html`<${JsonTree} value=${message.structured} />`
      : null}
    ${message.error_message ? html`<div class=${isRedriven ? "steer" : "failure"}><${Text} text=${message.error_message} /></div>` : null}
    ${message.role === "assistant" && !isRedriven ? html`<${Spent} message=${message} />` : null}
  </article>`;
}

const DRAWN = ["entry", "digest", "isOpen", "tool", "day", "isTarget", "isPlain", "isLive", "isShared", "sought", "isUnseen", "access", "isLater"];

/**
 * A row of the grid. It is drawn again only if something about it changed, as an entry never does. An entry that cannot
 * be drawn is shown as JSON.
 */
export class Row extends Component {
  static getDerivedStateFromError() {
    return { isBroken: true };
  }

  shouldComponentUpdate(next, state) {
    return DRAWN.some((name) => next[name] !== this.props[name]) || state.isBroken !== this.state.isBroken;
  }

  render({ entry, day, fold, isOpen, tool, isTarget, isPlain, isLive, isShared, isLater, sought, isUnseen, access, session, toggle }, { isBroken }) {
    const isLlm = entry.lane === "llm";
    const { position } = entry;
    const link = html`<div class="spine"><a href=${sessionLink(session, "log", position)} title=${`Link to entry ${position}, by ${entry.producer}`}><span>${String(position)}</span></a></div>`;
    const title = day === null ? null : html`<p class="day">${day}</p>`;
    if (isBroken) {
      return html`<li class="row broken" data-position=${position}>
        ${title}
        <div class="cell left"></div>
        ${link}
        <div class="cell right"><article class="message bad" aria-label="malformed entry">
          <header><span class="role">malformed</span></header>
          <div class="text code">${shortJson(entry.message)}</div>
        </article></div>
      </li>`;
    }
    const around = { session, position, tool, access, isPlain, isLive, isShared, sought };
    const found = isUnseen ? html`<${FoundIn} message=${entry.message} sought=${sought} />` : null;
    const events = fold === null ? null : html`<${TurnRow} fold=${fold} isOpen=${isOpen} toggle=${toggle} />`;
    return html`<${OfEntry.Provider} value=${around}><li class=${["row", isLlm ? "llm" : "extension", isTarget ? "target" : "", isLater ? "later" : ""].filter(Boolean).join(" ")} data-position=${position} aria-current=${isTarget ? "location" : undefined}>
      ${title}
      <div class="cell left">${isLlm ? [html`<${LlmEntry} entry=${entry} />`, found] : null}</div>
      ${link}
      <div class="cell right">${events}${isLlm || !isOpen ? null : [html`<${AnyEvent} entry=${entry} />`, found]}</div>
    </li></${OfEntry.Provider}>`;
  }
}

const AROUND = 80; // characters shown before and after the text that the user looks for

/** Says where the text is that the user looks for, if what is drawn of the entry does not show it. */
function FoundIn({ message, sought }) {
  const wanted = sought.toLowerCase();
  const place = placeOf(message, wanted);
  if (place === null) return null;
  const { path, text } = place;
  const at = text.toLowerCase().indexOf(wanted);
  const from = Math.max(0, at - AROUND);
  const until = at + wanted.length + AROUND;
  return html`<p class="foundin">Found in <code>${visible(path.join(" › "))}</code>: <q>${from > 0 ? "…" : ""}${visible(text.slice(from, until))}${until < text.length ? "…" : ""}</q></p>`;
}

function shortJson(value) {
  try {
    return JSON.stringify(value).slice(0, 4000);
  } catch {
    return "The entry is nested too deeply to be shown.";
  }
}

function AnyEvent({ entry }) {
  return entry.message.role === "unreadable" ? html`<${Unreadable} message=${entry.message} />` : html`<${ExtensionEntry} entry=${entry} />`;
}

/** Draws the message that a model is writing, until the complete message replaces it. */
export class PreviewRow extends Component {
  static getDerivedStateFromError() {
    return { isBroken: true };
  }

  render({ preview, isLeft }, { isBroken }) {
    if (isBroken) return html`<li class="row llm preview" data-message=${String(preview.id)}><div class="cell left"><div class="failure">This preview cannot be drawn.</div></div></li>`;
    return html`<${Preview} preview=${preview} isLeft=${isLeft} />`;
  }
}

const MOST_LIVE = 8000; // characters shown of a block that is being written; it is shown as a whole at its end

function Preview({ preview, isLeft }) {
  return html`<li class="row llm preview" data-message=${preview.id}>
    <div class="cell left">
      <article class=${`message assistant ${preview.cut ? "bad" : "speaking"}`} aria-label=${isLeft ? "the model was writing" : "the model is writing"}>
        <header>
          <span class="role">assistant</span><span class="fact">${preview.cut ? "cut" : isLeft ? "was writing" : "writing"}</span>
          ${preview.turnId ? html`<span class="fact">${turnName(preview.turnId)}</span>` : null}
        </header>
        ${preview.blocks.map((block, index) => {
          if (!block) return null;
          if (block.kind === "thinking") return html`<div class="thinking live" key=${index}><span class="label">thinking</span><div class="text prose">${block.text.slice(-MOST_LIVE)}</div></div>`;
          if (block.kind === "toolCall") return html`<${ToolCall} key=${index} name=${block.name ?? "…"}><div class="text code">${visible(block.text.slice(-MOST_LIVE))}</div></${ToolCall}>`;
          return html`<div class="text prose" key=${index}><${Markdown} text=${block.text.slice(-MOST_LIVE)} /></div>`;
        })}
        ${preview.cut ? html`<div class="failure">${preview.cut}</div>` : isLeft ? null : html`<span class="caret" aria-hidden="true"></span>`}
      </article>
    </div>
    <div class="spine"><span>live</span></div>
    <div class="cell right"></div>
  </li>`;
}
