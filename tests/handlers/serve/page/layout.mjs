// Prints what the layout of the log estimates for logs whose rows are known: every tenth position has a row of 240 pixels.
import { pathToFileURL } from "node:url";

const [folder] = process.argv.slice(2);
const { Layout } = await import(pathToFileURL(`${folder}/layout.js`).href);

const [PAGE, HEAD, TURN, HEIGHT] = [200, 10_000, 10, 240];
const rowsTo = (page, until) => {
  const rows = [];
  for (let position = page * PAGE + 1; position <= until; position += TURN) rows.push({ position, kind: "fold" });
  return rows;
};

/** Show pages of the log as they are loaded: pairs of a page and its last loaded position. Return the layout. */
function shown(...steps) {
  const layout = new Layout();
  const loaded = new Map();
  for (const [page, until] of steps) {
    loaded.set(page, until);
    layout.set(0, HEAD, new Map([...loaded].map(([each, end]) => [each, rowsTo(each, end)])), (each) => loaded.get(each));
    layout.measure(rowsTo(page, until).map((row) => [row, HEIGHT]));
  }
  layout.set(0, HEAD, new Map([...loaded].map(([each, end]) => [each, rowsTo(each, end)])), (each) => loaded.get(each));
  return layout;
}

const last = HEAD / PAGE - 1;
const arriving = shown([last, HEAD - 120], [last, HEAD - 110], [last, HEAD]);
const found = {
  whole: shown([last, HEAD]).height,
  arriving: arriving.height,
  other: shown([last, HEAD - 120], [24, 5000]).height,
  middle: arriving.top(HEAD / 2 + 1),
  start: arriving.top(1),
  end: arriving.top(HEAD),
  at: arriving.positionAt(arriving.height / 2),
};

// The newest page lies within one long turn, and has a single row.
const long = new Layout();
const first = [{ position: HEAD - PAGE + 1, kind: "fold" }];
long.set(0, HEAD, new Map([[last, first]]), () => HEAD);
long.measure([[first[0], 24]]);
long.set(0, HEAD, new Map([[last, first]]), () => HEAD);
found.long = long.height;

// Only few of the rows were drawn, and none of a kind that is much higher.
const mixed = new Layout();
const kinds = rowsTo(24, 5000).map((row, index) => ({ ...row, kind: index < 8 ? "fold" : "llm" }));
const set = () => mixed.set(0, HEAD, new Map([[24, kinds]]), () => 5000);
set();
mixed.measure(kinds.slice(0, 8).map((row) => [row, 24]));
set();
mixed.measure(kinds.slice(8).map((row) => [row, 600]));
set();
found.mixed = mixed.height;
found.mean = (HEAD / PAGE) * (8 * 24 + 12 * 600);
console.log(JSON.stringify(found));
