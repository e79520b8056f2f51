// Formats lengths of time. Pure.
import { seconds } from "../format.js";

/** Format a length in seconds. An unknown length is a dash. */
export const duration = (length) => (length === null || length === undefined ? "–" : seconds(length));

/** Format a place on an axis whose labels are `step` seconds apart: `0`, `250 ms`, `1.5 s`, `2:05`, `1:02:05`. */
export function onAxis(place, step) {
  if (place === 0) return "0";
  if (place < 1 && step < 1) return `${+(place * 1000).toFixed(step < 0.001 ? 2 : 0)} ms`;
  if (place < 60) return `${+place.toFixed(step < 0.01 ? 3 : step < 0.1 ? 2 : step < 1 ? 1 : 0)} s`;
  const digits = step < 0.01 ? 3 : step < 0.1 ? 2 : step < 1 ? 1 : 0;
  const hours = Math.floor(place / 3600);
  const minutes = Math.floor((place % 3600) / 60);
  const rest = (place % 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}
