// Loads what a model saw, and keeps the newest answers: a past position always has the same context.
import { getContext, getTurnRequest } from "../api.js";
import { compareItems, tally } from "./diff.js";
import { isResult, readRequest } from "./requests.js";

const MOST_KEPT = 4;
const kept = new Map();

async function cached(key, get) {
  if (kept.has(key)) {
    const found = kept.get(key);
    kept.delete(key);
    kept.set(key, found); // the newest is last
    return found;
  }
  const answer = await get();
  const found = { ...answer, ...placed(readRequest(answer.request), answer) };
  kept.set(key, found);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
  return found;
}

/** Return the request of a position; null for the position 0, at which there is nothing. The log may name no model yet. */
export const seenAt = (session, position, provider, model, signal) =>
  position > 0 ? cached(`${session} ${position} ${provider} ${model}`, () => getContext(session, position, provider, model, signal)) : null;

export const sentIn = (session, turn, signal) => cached(`${session} turn ${turn}`, () => getTurnRequest(session, turn, signal));

/** Name the entry of each message, where the provider has as many messages as the log, joined or not, and mark what was made up. */
function placed(found, answer) {
  const talk = found.items.filter((item) => item.section === "message");
  const from = answer.messages ?? [];
  const side = (role) => (role === "assistant" ? "assistant" : "user");
  const joined = from.filter((one, index) => index === 0 || side(one.role) !== side(from[index - 1].role) || side(one.role) === "assistant");
  const origin = [from, joined].find((list) => list.length === talk.length);
  if (origin) talk.forEach((item, index) => (item.entry = origin[index].position));
  // Each provider gets one part for each result, in the order of the log.
  const results = talk.flatMap((item) => item.parts.filter(isResult));
  const answers = from.filter((one) => one.role === "toolResult");
  if (results.length === answers.length) results.forEach((part, index) => (part.isMadeUp = answers[index].isMadeUp));
  return found;
}

/** Compare two answers: `{items, tools, isChanged, counts, toolCounts}`. Without a `before`, everything is new. */
export function compareSeen(before, after) {
  const items = compareItems(before?.items ?? [], after.items);
  const tools = compareItems(before?.tools ?? [], after.tools);
  const isChanged = before !== null && JSON.stringify(before.options) !== JSON.stringify(after.options);
  return { items, tools, isChanged, counts: tally(items), toolCounts: tally(tools) };
}
