// Charts of cost, tokens and cache hits over the turns of a session. The library is loaded when they are first shown.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { count, money, tokens } from "../format.js";
import { dollars } from "./spans.js";

/** Return the columns of the charts: one value for each turn with a usage. Pure. */
export function columns(turns) {
  const known = turns.filter((turn) => turn.usage !== null);
  let total = 0;
  const whole = (usage) => usage.input + usage.cache_read + usage.cache_write;
  return {
    turns: known,
    at: known.map((turn) => turn.index),
    cost: known.map(({ usage }) => (total += dollars(usage) ?? 0)),
    each: known.map(({ usage }) => dollars(usage)),
    input: known.map(({ usage }) => whole(usage)),
    output: known.map(({ usage }) => usage.output),
    hit: known.map(({ usage }) => (whole(usage) ? (100 * usage.cache_read) / whole(usage) : null)),
  };
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A colour of the page as the canvas needs it: the browser resolves light-dark() for elements only. */
function resolved(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found || colour(name);
}

const HEIGHT = 120;

function useScheme() {
  const [scheme, setScheme] = useState(0);
  useEffect(() => {
    const next = () => setScheme((old) => old + 1);
    const media = matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", next);
    const observer = new MutationObserver(next); // the user's own choice
    observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => {
      media.removeEventListener("change", next);
      observer.disconnect();
    };
  }, []);
  return scheme;
}

function Chart({ label, data, series, format, text, onIndex, range }) {
  const box = useRef(null);
  const plot = useRef(null);
  const [fault, setFault] = useState(null);
  const scheme = useScheme();
  useEffect(() => {
    let isOver = false;
    const draw = async () => {
      try {
        const { default: uPlot } = await import("uplot");
        if (isOver) return;
        setFault(null);
        plot.current = new uPlot(options(uPlot), data, box.current);
      } catch {
        if (!isOver) setFault("The charts cannot be loaded.");
      }
    };
    const options = (uPlot) => {
      const axis = { stroke: resolved("--muted"), grid: { stroke: resolved("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
      return {
        width: box.current.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        scales: { x: { time: false }, y: { range: range ?? ((_, low, high) => [Math.min(0, low ?? 0), (high || 1) * 1.1]) } },
        axes: [
          { ...axis, size: 22, values: (_, all) => all.map((one) => (Number.isInteger(one) ? one : "")) },
          { ...axis, size: 56, values: (_, all) => all.map(format) },
        ],
        series: [{}, ...series.map(({ name, stroke, fill }) => ({ label: name, stroke: resolved(stroke), fill: fill ? resolved(fill) : undefined, width: 1.75, points: { show: data[0].length < 40, size: 5 }, spanGaps: true, paths: uPlot.paths.stepped && fill ? uPlot.paths.stepped({ align: 1 }) : undefined }))],
        cursor: { y: false, drag: { x: false, y: false } },
        hooks: { setCursor: [(one) => onIndex(one.cursor.idx ?? null)] },
      };
    };
    draw();
    const observer = new ResizeObserver(() => box.current && plot.current?.setSize({ width: box.current.clientWidth, height: HEIGHT }));
    observer.observe(box.current);
    return () => {
      isOver = true;
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [scheme]);
  useEffect(() => plot.current?.setData(data), [data]);
  return html`<figure class="tl-chart">
    <figcaption><b>${label}</b> <span>${text}</span></figcaption>
    ${fault ? html`<p class="fault">${fault}</p>` : null}
    <div ref=${box} role="img" aria-label=${`${label}: ${text}`}></div>
  </figure>`;
}

/** Cost, tokens and cache hits, one point for each turn. A click goes to the turn's entry. */
export function Charts({ turns, timeline, onTurn }) {
  const [index, setIndex] = useState(null);
  const found = columns(turns);
  if (found.at.length === 0) return html`<p class="hint">No turn has reported its usage yet.</p>`;
  const at = index === null || index >= found.at.length ? found.at.length - 1 : index;
  const turn = found.turns[at];
  const from = timeline.first > 0 ? ` since turn ${count(timeline.first)}` : "";
  const one = `turn ${count(turn.index)}`;
  const onClick = () => index !== null && found.turns[index] && onTurn(found.turns[index]);
  return html`<div class="tl-charts" role="region" aria-label="Charts" tabindex="0" onClick=${onClick}>
    <${Chart} label=${`Cost${from}`} data=${[found.at, found.cost]} series=${[{ name: "cost", stroke: "--llm", fill: "--llm-tint" }]} format=${(value) => money({ total: value })}
      text=${`${money({ total: found.cost[at] })} up to ${one}, which cost ${found.each[at] === null ? "an unknown amount" : money({ total: found.each[at] })}`} onIndex=${setIndex} />
    <${Chart} label="Tokens" data=${[found.at, found.input, found.output]} series=${[{ name: "input", stroke: "--llm" }, { name: "output", stroke: "--ext" }]} format=${tokens}
      text=${`${tokens(found.input[at])} in, ${tokens(found.output[at])} out in ${one}`} onIndex=${setIndex} />
    <${Chart} label="Cache hits" data=${[found.at, found.hit]} series=${[{ name: "hits", stroke: "--ext", fill: "--ext-tint" }]} format=${(value) => `${value} %`} range=${() => [0, 100]}
      text=${found.hit[at] === null ? `none in ${one}` : `${Math.round(found.hit[at])} % of the input of ${one}`} onIndex=${setIndex} />
  </div>`;
}
