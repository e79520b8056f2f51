// Prints the rows of a waterfall at each position, by the page and by logs that end there, where the two differ.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, file] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${folder}/time/${name}.js`).href);
const [{ timelineAt }, { allRows }] = await Promise.all([load("moment"), load("spans")]);

const ended = JSON.parse(readFileSync(file, "utf8")); // at index N, the timeline of a log with N + 1 entries
const last = ended.at(-1);
const facts = ({ turn, hasChildren, ...row }) => row; // later children are shown too
// The page says that a call runs from its approval on until it is reported as ended, the log from when a worker has read the
// approval until the result.
const tools = last.turns.flatMap((turn) => turn.tools);
const between = new Set(tools.flatMap((tool) => [tool.result, ...tool.waits.map((wait) => wait.command)]));
const rows = allRows(last).map((row) => row.key);
const differ = [];
let open = 0;
for (const [index, timeline] of ended.entries()) {
  const position = index + 1;
  const shown = allRows(timelineAt(last, position));
  if (between.has(position)) continue;
  const known = shown.filter((row) => row.from <= position).map(facts);
  const wanted = allRows(timeline).map(facts);
  open += known.filter((row) => row.end === null).length;
  for (const key of new Set([...known, ...wanted].map((row) => row.key))) {
    const [page, log] = [known, wanted].map((all) => all.find((row) => row.key === key));
    if (!page || !log) differ.push(`#${position} ${key}: only of the ${page ? "page" : "log"}`);
    else for (const name of Object.keys(log)) if ((name !== "to" || log.end !== null) && JSON.stringify(page[name]) !== JSON.stringify(log[name])) differ.push(`#${position} ${key}: ${name} ${JSON.stringify(page[name])}, in the log ${JSON.stringify(log[name])}`);
  }
  if (JSON.stringify(shown.map((row) => row.key)) !== JSON.stringify(rows)) differ.push(`#${position}: other rows`);
}
console.log(JSON.stringify({ rows: rows.length, open, differ }));
