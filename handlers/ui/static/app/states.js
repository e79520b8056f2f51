// What a session does, in words, and whether it lacks a worker.
import { html } from "./html.js";
import { count } from "./format.js";

export const STATES = {
  working: "works",
  waiting: "waits for you",
  queued: "waits for a worker",
  failed: "failed",
  paused: "paused",
  idle: "idle",
  closed: "closed",
};

/** Whether a message to the session would wait, because no live worker serves its agent. */
export const needsWorker = (head) => head?.hasWorker === false && !head.isClosed;

/** Draws a state as a coloured word. Colours alone tell nothing. */
export function State({ state, waiting = 0 }) {
  if (!state) return null;
  return html`<span class=${`badge ${state}`} data-state=${state}>${STATES[state] ?? state}${state === "waiting" && waiting > 1 ? ` (${count(waiting)})` : ""}</span>`;
}
