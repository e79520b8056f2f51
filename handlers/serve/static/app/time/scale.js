// Maps times to places on a time axis on which idle time takes little room. Pure.

const IDLE_SHARE = 0.15; // largest part of the axis that all idle time takes together

/** Return the intervals `[start, end]` joined where they overlap, in order. */
export function united(intervals) {
  const joined = [];
  for (const [start, end] of [...intervals].sort((one, other) => one[0] - other[0])) {
    const last = joined.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else joined.push([start, end]);
  }
  return joined;
}

/**
 * Make an axis from busy intervals in seconds. `place(time)` returns seconds from its start, `time(place)` the inverse.
 * With `isWhole`, idle time keeps its length.
 */
export function makeAxis(intervals, isWhole = false) {
  const busy = united(intervals);
  const gaps = busy.slice(1).map((one, index) => one[0] - busy[index][1]);
  const work = busy.reduce((sum, [start, end]) => sum + end - start, 0);
  const most = isWhole ? Infinity : (Math.max(work, 0.001) * IDLE_SHARE) / Math.max(gaps.length, 1);
  // Knots of a piecewise linear map.
  const times = [];
  const places = [];
  const idle = [];
  let place = 0;
  busy.forEach(([start, end], index) => {
    if (index > 0) {
      const gap = gaps[index - 1];
      const shown = Math.min(gap, most);
      if (shown < gap) idle.push({ from: place, to: place + shown, seconds: gap });
      place += shown;
    }
    times.push(start);
    places.push(place);
    place += end - start;
    times.push(end);
    places.push(place);
  });
  return {
    length: place,
    idle,
    place: (time) => mapped(times, places, time),
    time: (at) => mapped(places, times, at),
  };
}

function mapped(from, to, value) {
  if (from.length === 0) return 0;
  let low = 0;
  let high = from.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (from[middle] < value) low = middle + 1;
    else high = middle;
  }
  if (from[low] === value || low === 0) return to[low] + Math.min(0, value - from[0]);
  if (value > from.at(-1)) return to.at(-1) + value - from.at(-1);
  const [a, b] = [from[low - 1], from[low]];
  return to[low - 1] + ((value - a) / (b - a)) * (to[low] - to[low - 1]);
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400];

/** Return about `most` round places between two places, for the labels of the axis. */
export function ticks(from, to, most) {
  const wanted = (to - from) / Math.max(most, 1);
  if (!(wanted > 0)) return [];
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step =
    wanted < 1
      ? [1, 2, 5, 10].map((each) => each * power).find((each) => each >= wanted * 0.999)
      : (STEPS.find((each) => each >= wanted) ?? Math.ceil(wanted / 86_400) * 86_400);
  const found = [];
  for (let index = Math.ceil(from / step); index * step <= to && found.length < 100; index += 1) found.push(index * step);
  return found;
}

/** Zoom a window `[from, to]` of an axis around a place, within the axis. */
export function zoomed([from, to], around, factor, length) {
  const width = Math.min(Math.max((to - from) * factor, Math.min(0.001, length)), length);
  const share = to > from ? (around - from) / (to - from) : 0.5;
  return panned([around - share * width, around + (1 - share) * width], 0, length);
}

/** Move a window of an axis, within the axis. */
export function panned([from, to], by, length) {
  const width = to - from;
  const start = Math.min(Math.max(from + by, 0), Math.max(0, length - width));
  return [start, start + width];
}
