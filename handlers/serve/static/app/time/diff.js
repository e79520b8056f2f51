// Compares two lists of items, such as the messages of two requests. Pure.

const MOST_CELLS = 1_000_000; // above this, the changed middle counts as replaced as a whole

/**
 * Return what changed from `before` to `after`, as a list of `{change, before, after}` in order.
 *
 * `change` is "same", "added", "removed" or "replaced". Items are equal if their `same` is. Removed and added items
 * beside each other, with the same role, are pairs of a replaced item.
 */
export function compareItems(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start].same === after[start].same) start += 1;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before.at(-1 - end).same === after.at(-1 - end).same) end += 1;
  const same = (one, other) => ({ change: "same", before: one, after: other });
  return [
    ...after.slice(0, start).map((item, index) => same(before[index], item)),
    ...middle(before.slice(start, before.length - end), after.slice(start, after.length - end)),
    ...(end ? after.slice(-end).map((item, index) => same(before[before.length - end + index], item)) : []),
  ];
}

function middle(before, after) {
  const kept = before.length * after.length <= MOST_CELLS ? common(before, after) : [];
  const found = [];
  let [from, to] = [0, 0];
  for (const [one, other] of [...kept, [before.length, after.length]]) {
    found.push(...changed(before.slice(from, one), after.slice(to, other)));
    if (one < before.length) found.push({ change: "same", before: before[one], after: after[other] });
    [from, to] = [one + 1, other + 1];
  }
  return found;
}

/** The longest common subsequence, as pairs of places. */
function common(before, after) {
  const [rows, columns] = [before.length + 1, after.length + 1];
  const lengths = new Uint32Array(rows * columns);
  for (let row = rows - 2; row >= 0; row -= 1) {
    for (let column = columns - 2; column >= 0; column -= 1) {
      lengths[row * columns + column] =
        before[row].same === after[column].same
          ? lengths[(row + 1) * columns + column + 1] + 1
          : Math.max(lengths[(row + 1) * columns + column], lengths[row * columns + column + 1]);
    }
  }
  const pairs = [];
  for (let row = 0, column = 0; row < rows - 1 && column < columns - 1; ) {
    if (before[row].same === after[column].same) pairs.push([row++, column++]);
    else if (lengths[(row + 1) * columns + column] >= lengths[row * columns + column + 1]) row += 1;
    else column += 1;
  }
  return pairs;
}

function changed(removed, added) {
  const found = [];
  let place = 0;
  for (; place < removed.length && place < added.length && removed[place].role === added[place].role; place += 1) {
    found.push({ change: "replaced", before: removed[place], after: added[place] });
  }
  for (const item of removed.slice(place)) found.push({ change: "removed", before: item, after: null });
  for (const item of added.slice(place)) found.push({ change: "added", before: null, after: item });
  return found;
}

/** Count the changes: `{same, added, removed, replaced}`. */
export function tally(changes) {
  const counts = { same: 0, added: 0, removed: 0, replaced: 0 };
  for (const { change } of changes) counts[change] += 1;
  return counts;
}
