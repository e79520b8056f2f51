// Formats lengths of time. Pure.

/** Format seconds for people: `12 ms`, `3.4 s`, `2 min 5 s`, `1 h 20 min`. An unknown length is a dash. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  const length = Math.max(0, seconds);
  if (length < 0.9995) return `${Math.round(length * 1000)} ms`;
  if (length < 59.95) return `${length.toFixed(length < 9.95 ? 2 : 1).replace(/\.?0+$/, "")} s`;
  const whole = Math.round(length);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  if (hours > 0) return minutes ? `${hours} h ${minutes} min` : `${hours} h`;
  return rest ? `${minutes} min ${rest} s` : `${minutes} min`;
}

/** Format a place on an axis whose labels are `step` seconds apart: `0`, `250 ms`, `1.5 s`, `2:05`, `1:02:05`. */
export function onAxis(seconds, step) {
  if (seconds === 0) return "0";
  if (seconds < 1 && step < 1) return `${+(seconds * 1000).toFixed(step < 0.001 ? 2 : 0)} ms`;
  if (seconds < 60) return `${+seconds.toFixed(step < 0.01 ? 3 : step < 0.1 ? 2 : step < 1 ? 1 : 0)} s`;
  const digits = step < 0.01 ? 3 : step < 0.1 ? 2 : step < 1 ? 1 : 0;
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor((seconds % 3600) / 60);
  const rest = (seconds % 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}
