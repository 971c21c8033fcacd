// The estimate of `check` and the plan of the layers, as pictures and as text.
import { make } from "./findings.mjs";
import { say } from "./texts.mjs";

const GIB = 2 ** 30;
const STATES = { over: "error", unsure: "warning", below: "good" };
const MANY = 64; // stages drawn

/** Return the elements for the answer to `check`: the verdict, a bar for each stage, the other lines of the command's screen. */
export function showMemory(answer) {
  const [verdict, ...rest] = answer.screen;
  const state = answer.estimate ? STATES[answer.estimate.outlook] : "none";
  const bars = answer.estimate ? showStages(answer.estimate) : [];
  return [
    make("p", { className: `verdict ${state}` }, verdict),
    ...bars,
    make("div", { className: "screen" }, rest.map((line) => make("p", {}, line))),
  ];
}

function showStages(estimate) {
  const limit = estimate.limit_bytes;
  const high = estimate.range_bytes[1];
  const whole = Math.max(limit, high, ...estimate.stages.map((one) => one.peak_bytes)) * 1.04;
  const width = (bytes) => `${((100 * bytes) / whole).toFixed(2)}%`;
  const rows = estimate.stages.slice(0, MANY).map((one) => {
    const fill = make("i", { className: one.peak_bytes > limit ? STATES[estimate.outlook] : "good" });
    fill.style.width = width(one.peak_bytes);
    const mark = make("u", {});
    mark.style.left = width(limit);
    const words = say("stage-memory", { stage: one.stage, need: (one.peak_bytes / GIB).toFixed(1), limit: (limit / GIB).toFixed(1) });
    return make("li", {}, make("span", {}, words), make("span", { className: "bar", "aria-hidden": "true" }, fill, mark));
  });
  return [make("ul", { className: "bars" }, rows), make("p", { className: "note" }, say("of-limit"))];
}

/** Return the elements for the answer to `plan`: a square for each layer, and the same as a table. */
export function showPlan(answer) {
  return answer.jobs.flatMap((job) => {
    const head = job.program ? [make("h3", {}, job.program)] : [];
    if (!job.plan) return [...head, make("p", {}, say("no-plan-because", { unknown: job.not_evaluable?.unknown || job.not_evaluable?.argument }))];
    const problems = job.plan.problems.map((one) => make("div", { className: `card ${one.severity}` },
      make("p", {}, make("b", { className: "level" }, say(`level.${one.severity}`)), " ", one.message),
      one.hint ? make("p", { className: "remark" }, one.hint) : null));
    if (job.plan.layers.length === 0) return [...head, ...problems, make("p", {}, say("no-plan"))];
    return [...head, showMap(job.plan.layers), showLegend(job.plan.layers), showTable(job.plan.layers), ...problems];
  });
}

const modeOf = (layer) => (layer.recompute === "none" && layer.swap.length > 0 ? "swap" : layer.recompute);
const placeOf = (layer, chunks) => (chunks ? say("stage-chunk", layer) : say("stage", layer));

function groupBy(layers, key) {
  const groups = new Map();
  for (const layer of layers) groups.set(key(layer), [...(groups.get(key(layer)) ?? []), layer]);
  return [...groups.values()];
}

function showMap(layers) {
  const chunks = layers.some((one) => one.chunk > 0);
  const places = groupBy(layers, (one) => `${one.stage} ${one.chunk}`).sort(([a], [b]) => a.stage - b.stage || a.chunk - b.chunk);
  return make("ul", { className: "map" }, places.slice(0, 4 * MANY).map((group) => make("li", {},
    make("span", {}, placeOf(group[0], chunks)),
    make("span", { className: "layers" }, group.map((one) => make("i", { className: `mode-${modeOf(one)}`, title: say("layer", { layer: one.layer, mode: say(`mode.${modeOf(one)}`) }) }))),
    make("span", { className: "note" }, `${group.length}`))));
}

function showLegend(layers) {
  const modes = [...new Set(layers.map(modeOf))];
  return make("p", { className: "legend" }, modes.map((mode) => make("span", {}, make("i", { className: `mode-${mode}` }), " ", say(`mode.${mode}`))));
}

function showTable(layers) {
  const alike = (one) => JSON.stringify([one.stage, one.chunk, one.recompute, one.select_patterns, one.comm_patterns, one.swap]);
  const chunks = layers.some((one) => one.chunk > 0);
  const runs = [];
  for (const layer of layers) {
    const last = runs.at(-1);
    if (last && alike(last.at(-1)) === alike(layer)) last.push(layer);
    else runs.push([layer]);
  }
  const patterns = (one) => [...one.select_patterns, ...one.comm_patterns, ...one.swap.map((swap) => swap.target || "*")].join(", ");
  const numbers = (run) => (run.length === 1 ? `${run[0].layer}` : `${run[0].layer}–${run.at(-1).layer}`);
  const rows = runs.map((run) => [placeOf(run[0], chunks), numbers(run), say(`mode.${modeOf(run[0])}`), patterns(run[0])]);
  const heads = ["place", "layers", "mode", "patterns"].map((name) => make("th", { scope: "col" }, say(`column.${name}`)));
  return make("details", {}, make("summary", {}, say("plan-table")),
    make("div", { className: "scroll", tabIndex: 0 }, make("table", {}, make("thead", {}, make("tr", {}, heads)),
      make("tbody", {}, rows.map((cells) => make("tr", {}, cells.map((cell) => make("td", {}, cell))))))));
}
