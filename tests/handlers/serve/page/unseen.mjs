// Prints the ranges of the characters that the page writes as their codes.
import { pathToFileURL } from "node:url";

const [folder] = process.argv.slice(2);
const { visible } = await import(pathToFileURL(`${folder}/format.js`).href);

const ranges = [];
for (let number = 0; number <= 0x10ffff; number += 1) {
  if (number !== 10 && visible(String.fromCodePoint(number)) === String.fromCodePoint(number)) continue;
  if (ranges.at(-1)?.[1] === number - 1) ranges.at(-1)[1] = number;
  else ranges.push([number, number]);
}
console.log(JSON.stringify(ranges));
