// Runs as a worker of code.js: cuts code into tokens, by a library with the rules of its languages. They are small, and some
// need others. There are texts for which their patterns take for ever, so the page waits for a bounded time.
import { tokenizer } from "../vendor/@speed-highlight/core/tokenize.js";
import bash from "../vendor/@speed-highlight/core/languages/bash.js";
import c from "../vendor/@speed-highlight/core/languages/c.js";
import css from "../vendor/@speed-highlight/core/languages/css.js";
import docker from "../vendor/@speed-highlight/core/languages/docker.js";
import go from "../vendor/@speed-highlight/core/languages/go.js";
import html from "../vendor/@speed-highlight/core/languages/html.js";
import http from "../vendor/@speed-highlight/core/languages/http.js";
import ini from "../vendor/@speed-highlight/core/languages/ini.js";
import java from "../vendor/@speed-highlight/core/languages/java.js";
import js from "../vendor/@speed-highlight/core/languages/js.js";
import jsdoc from "../vendor/@speed-highlight/core/languages/jsdoc.js";
import json from "../vendor/@speed-highlight/core/languages/json.js";
import lua from "../vendor/@speed-highlight/core/languages/lua.js";
import make from "../vendor/@speed-highlight/core/languages/make.js";
import md from "../vendor/@speed-highlight/core/languages/md.js";
import pl from "../vendor/@speed-highlight/core/languages/pl.js";
import plain from "../vendor/@speed-highlight/core/languages/plain.js";
import py from "../vendor/@speed-highlight/core/languages/py.js";
import regex from "../vendor/@speed-highlight/core/languages/regex.js";
import rs from "../vendor/@speed-highlight/core/languages/rs.js";
import sql from "../vendor/@speed-highlight/core/languages/sql.js";
import todo from "../vendor/@speed-highlight/core/languages/todo.js";
import toml from "../vendor/@speed-highlight/core/languages/toml.js";
import ts from "../vendor/@speed-highlight/core/languages/ts.js";
import uri from "../vendor/@speed-highlight/core/languages/uri.js";
import xml from "../vendor/@speed-highlight/core/languages/xml.js";
import yaml from "../vendor/@speed-highlight/core/languages/yaml.js";

const RULES = new Map(Object.entries({ bash, c, css, docker, go, html, http, ini, java, js, jsdoc, json, lua, make, md, pl, plain, py, regex, rs, sql, todo, toml, ts, uri, xml, yaml })); // a text names some of them
const MOST_TOKENS = 2_500;

/** Return `[text, type]` pairs; null if they are too many or the rules do not fit the text. */
function tokensOf(text, name) {
  const found = [];
  const run = tokenizer(text, RULES.get(name), (piece, type = null) => {
    if (!piece) return;
    const last = found.at(-1);
    if (last && (last[1] === type || !piece.trim())) last[0] += piece;
    else found.push([piece, type]);
  });
  for (let step = run.next(); !step.done; ) step = run.next(RULES.get(step.value));
  // The library must not lose text.
  return found.length <= MOST_TOKENS && found.reduce((sum, [piece]) => sum + piece.length, 0) === text.length ? found : null;
}

onmessage = ({ data: { text, name } }) => {
  let tokens = null;
  try {
    tokens = tokensOf(text, name);
  } catch {
    // The rules do not fit the text.
  }
  postMessage(tokens);
};
postMessage("ready");
