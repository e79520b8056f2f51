// What the user chose to see of a log, kept in the browser.

const KEY = "lanebus.log";
const LANES = ["both", "llm", "extension"];

export function keptChoice() {
  let kept = null;
  try {
    kept = JSON.parse(localStorage.getItem(KEY));
  } catch {
    // Storage is off, or has something else: the choice is the usual one.
  }
  return { lane: LANES.includes(kept?.lane) ? kept.lane : "both", isAll: kept?.isAll === true, isPlain: kept?.isPlain === true };
}

export function keepChoice({ lane, isAll, isPlain }) {
  try {
    localStorage.setItem(KEY, JSON.stringify({ lane, isAll, isPlain }));
  } catch {
    // Storage is off: the choice lasts as long as the page.
  }
}
