// What a session does, in words, and whether it lacks a worker. The server derives the state: list, header and footer show
// this one, and nothing on the page derives another.
import { useContext } from "preact/hooks";
import { html } from "./html.js";
import { count, cut, visible } from "./format.js";
import { Rights, mayAnswer } from "./rights.js";

const STATES = {
  working: "works",
  waiting: "waits for you",
  queued: "waits for a worker",
  retrying: "is tried again",
  failed: "failed",
  dead: "dead",
  paused: "paused",
  handoff: "handed to a person",
  idle: "idle",
  closed: "closed",
};

const OF_OTHERS = { ...STATES, waiting: "waits for a person" };

/** The words of all states: a call waits for the user only if the token allows an answer. */
export const useStates = () => (mayAnswer(useContext(Rights)) ? STATES : OF_OTHERS);

/** The list's row of the selected session, with what its newer status says; null if nothing is known. */
export const withStatus = (head, status) => {
  if (!head || !status) return head ?? null;
  const waiting = status.waiting.filter((call) => !call.decision).length;
  return { ...head, state: head.isClosed ? "closed" : status.state, failure: status.failure, waiting };
};

/** Why a session is dead or tried again, in words; null if it is neither, or if the token may not know. */
export function failureText({ state, failure }) {
  if (!failure) return null;
  const times = `${count(failure.attempts)} ${failure.attempts === 1 ? "attempt" : "attempts"}`;
  const reason = cut(visible(failure.reason), 300);
  if (state === "dead") return `Workers gave up after ${times}: ${reason}`;
  return failure.attempts ? `${times} failed: ${reason}` : `The agent asked for a pause: ${reason}`;
}

/** Says who has decided about a call whose decision is not carried out yet: by a worker, or after a pause. */
export const decisionText = ({ decision, by }, isHalted) => `${decision === "approve" ? "Approved" : "Denied"}${by ? ` by ${visible(by)}` : ""}, waits for ${isHalted ? "Resume" : "a worker"}`;

/** Whether a message to the session would wait, because no live worker serves its agent. */
export const needsWorker = (head) => head?.hasWorker === false && !head.isClosed;

/** Draws a state as a coloured word, unless it is idle. Colours alone tell nothing. */
export function State({ state, waiting = 0, failure = null }) {
  const states = useStates();
  if (!state || state === "idle") return null;
  return html`<span class=${`badge ${state}`} data-state=${state} title=${failureText({ state, failure }) ?? undefined}>${states[state] ?? state}${state === "waiting" && waiting > 1 ? ` (${count(waiting)})` : ""}</span>`;
}
