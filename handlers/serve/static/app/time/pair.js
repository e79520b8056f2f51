// Which two positions are compared, and where their sessions part. Pure.
import { wordsOf } from "../events.js";
import { cut } from "../format.js";

const number = (text) => (/^\d{1,15}$/.test(text ?? "") ? Number(text) : null);

/** Read the two sides from the URL's query; `position` null stands for the newest entry. */
export const readPair = (session, query, past) => ({
  left: { session, position: number(query.a) ?? past },
  right: { session: query.with && /^[A-Za-z0-9_-]{1,64}$/.test(query.with) ? query.with : session, position: number(query.b) },
});

/**
 * Return the last position that both sides share: 0 if their sessions are not related, or related in another way than
 * that one is a fork of the other, or both are forks of a third.
 */
export function sharedUntil(left, right) {
  const both = Math.min(left.position, right.position);
  if (left.id === right.id) return both;
  const [one, other] = [left.origin, right.origin];
  if (other?.session === left.id) return Math.min(other.position, both);
  if (one?.session === right.id) return Math.min(one.position, both);
  if (one && other && one.session === other.session) return Math.min(one.position, other.position, both);
  return 0;
}

const MOST_WORDS = 160;
const IDS = new Set(["turnId", "loopId", "messageId", "toolCallId"]); // long, and the same in many lines

// Without the three that have no ink: they are shown as codes.
const SPACES = /[^\S\u2028\u2029\ufeff]+/g;

/** Describe arguments as `path: a.py, lines: [1,2]`: JSON in JSON would be hard to read. */
const argumentWords = (value) =>
  Object.entries(value ?? {}).map(([name, each]) => `${name}: ${typeof each === "string" ? each.replace(SPACES, " ") : JSON.stringify(each)}`).join(", ");

/** Describe an entry in one line: `{what, words}`. */
export function entryLine(entry) {
  const message = entry.message ?? {};
  if (entry.lane !== "llm") {
    const data = message.data === null || message.data === undefined ? "" : JSON.stringify(message.data, (key, value) => (IDS.has(key) ? undefined : value));
    return { what: String(message.kind ?? message.role ?? "event"), words: cut(wordsOf(message.kind, message.data) ?? data, MOST_WORDS) };
  }
  const words = (Array.isArray(message.content) ? message.content : [])
    .map((block) => block.text ?? (block.type === "toolCall" ? `${block.name} ${argumentWords(block.arguments)}` : (block.thinking ?? `[${block.type}]`)))
    .join(" ");
  return { what: String(message.role ?? "entry"), words: cut(words || message.error_message || message.kind || "", MOST_WORDS) };
}

const NAMES = [
  ["turns", "Turns"],
  ["input", "Input tokens"],
  ["cache_read", "Cached input"],
  ["output", "Output tokens"],
  ["cost", "Cost"],
];

/** Return the rows `{name, label, left, right, difference}` of two usages; null is unknown. */
export function usageRows(left, right) {
  const value = (usage, name) => (usage === null ? null : name === "cost" ? (usage.cost ? Number(usage.cost.total) : usage.calls ? null : 0) : name === "turns" ? usage.calls : usage[name]);
  return NAMES.map(([name, label]) => {
    const [one, other] = [value(left, name), value(right, name)];
    return { name, label, left: one, right: other, difference: one === null || other === null ? null : other - one };
  });
}
