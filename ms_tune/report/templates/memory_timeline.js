// The timeline: uPlot draws axes, cursor and lines; single blocks are painted below them, pixel column by pixel column.

const PHASES = { forward: "#e99f4c", backward: "#4872b8", update: "#5da594", step: "#999", unknown: "#0000" };
const Timeline = { plot: null, image: null, key: "", detail: true, timer: 0 };

// The curve at every event where all blocks are in the page, else at the points of the chart.
function curve() {
  const complete = State.blocks && State.blocks.count === rank().counted;
  return complete ? State.blocks.curve : { tick: rank().bands.tick, used: Timeline.totals };
}

// The place of the last event that is not after the tick, or -1.
function usedAt(bands, tick) {
  let low = 0, high = bands.tick.length - 1, found = -1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (bands.tick[middle] <= tick) { found = middle; low = middle + 1; } else high = middle - 1;
  }
  return found;
}

function timelineData() {
  const { bands, limit_bytes: limit, footprint_bytes: footprint } = rank();
  const names = Page.contents.filter((name) => bands.used[name]);
  const sums = new Float64Array(bands.tick.length);
  const stacked = names.map((name) => Array.from(bands.used[name], (used, at) => (sums[at] += used)));
  const lines = [footprint ? bands.footprint : bands.tick.map(() => null)];
  const near = limit !== null && limit < 2 * footprint;
  lines.push(bands.tick.map(() => (near ? limit : null)));
  lines.push(otherCurve(bands.tick));
  return { names, data: [bands.tick, ...stacked.reverse(), ...lines], totals: sums };
}

// The curve of the run that this one is compared with, stretched to the same length.
function otherCurve(ticks) {
  const pair = (Page.comparison ?? []).find((each) => each.rank === rank().rank) ?? null;
  if (!pair || !pair.curve.tick.length || !ticks.length) return ticks.map(() => null);
  const from = pair.curve.tick, ratio = (from[from.length - 1] - from[0]) / Math.max(1, ticks[ticks.length - 1] - ticks[0]);
  return ticks.map((tick) => pair.curve.used[Math.max(0, usedAt(pair.curve, from[0] + (tick - ticks[0]) * ratio))]);
}

function drawTimeline() {
  Timeline.plot?.destroy();
  Timeline.image = null;
  const { names, data, totals } = timelineData();
  Timeline.totals = totals;
  const ink = getComputedStyle(document.body).color;
  const stepped = uPlot.paths.stepped({ align: 1 });
  const band = (name) => ({
    label: name, stroke: () => (Timeline.image ? "transparent" : colour(name)), width: 0.5, points: { show: false },
    fill: () => (Timeline.image ? "transparent" : colour(name)), paths: stepped,
  });
  const line = (stroke, dash) => ({ stroke, dash, width: 1.3, points: { show: false }, paths: stepped, fill: null });
  const axis = { stroke: ink, grid: { stroke: "#8884", width: 1 }, ticks: { stroke: "#8886" } };
  const holder = $("timeline");
  Timeline.plot = new uPlot({
    width: holder.clientWidth || 1000, height: 380,
    series: [{}, ...names.slice().reverse().map(band), line(ink, [5, 4]), line("#d33", [8, 4]), line("#c2f", [])],
    scales: { x: { time: false }, y: { range: (_, __, most) => [0, Math.max(most, highest(range()), 1) * 1.04] } },
    axes: [
      { ...axis, label: say("ticks"), labelSize: 18, values: (_, ticks) => ticks.map(whole) },
      { ...axis, size: 84, values: (_, values) => values.map(bytes), splits: (_, __, low, high) => quarters(low, high) },
    ],
    cursor: { drag: { x: true, y: false }, points: { show: false }, bind: { mousedown: (u, t, go) => (e) => pressed(e, go) } },
    hooks: { drawAxes: [paintBlocks], draw: [paintMarks], setScale: [() => { Timeline.key = ""; }] },
  }, data, holder);
  const over = Timeline.plot.over;
  over.addEventListener("wheel", wheel, { passive: false });
  over.addEventListener("mousemove", pointed);
  over.addEventListener("mouseleave", () => { $("tip").hidden = true; });
  drawLegend(names);
}

// The most bytes in use in a range of ticks: a chart of few points may have none of them in it.
function highest([low, high]) {
  const exact = curve();
  let most = 0;
  for (let at = Math.max(0, usedAt(exact, low)); at < exact.tick.length && exact.tick[at] <= high; at++) {
    if (exact.used[at] > most) most = exact.used[at];
  }
  return most;
}

function quarters(low, high) {
  const rough = (high - low) / 5, power = 2 ** Math.floor(Math.log2(Math.max(rough, 1)));
  const step = rough / power > 1.5 ? 2 * power : power;
  return Array.from({ length: Math.floor(high / step) + 1 }, (_, at) => at * step);
}

function drawLegend(names) {
  const keys = names.map((name) => make("button", {
    type: "button", title: say("only"), "aria-pressed": String(State.only === name),
    onclick: () => { State.only = State.only === name ? null : name; Timeline.key = ""; drawLegend(names); Timeline.plot.redraw(false); drawLive(); drawAddresses(); },
  }, make("i", { className: "key", style: { background: colour(name) } }), `${say(`content.${name}`)} ${bytes(rank().categories_at_peak[name])}`));
  $("legend").replaceChildren(...keys);
  const dash = (style, text) => make("span", {}, make("i", { className: "dash", style }), text);
  const phases = [...new Set(rank().spans.map(({ phase }) => phase))].filter(Boolean).map((phase) =>
    make("span", {}, make("i", { className: "key", style: { background: PHASES[phase] ?? "#888" } }), say(`phase.${phase}`)));
  const { limit_bytes: limit, footprint_bytes: footprint } = rank();
  $("lines").replaceChildren(...[footprint ? dash({ borderColor: "currentColor" }, say("footprint")) : null,
    limit !== null && limit < 2 * footprint ? dash({ borderColor: "#d33" }, say("limit")) : null,
    Page.comparison ? dash({ borderColor: "#c2f", borderStyle: "solid" }, say("before")) : null,
    ...(phases.length ? [make("span", {}, `${say("spans")}:`), ...phases] : [])].filter(Boolean));
}

// --- moving about ---

function range() {
  const scale = Timeline.plot?.scales.x, ticks = rank().bands.tick;
  return scale && scale.min !== null ? [scale.min, scale.max] : [ticks[0], ticks[ticks.length - 1]];
}

function look(low, high) {
  const ticks = rank().bands.tick, first = ticks[0], last = ticks[ticks.length - 1];
  const width = Math.max(4, Math.min(high - low, last - first));
  const from = Math.max(first, Math.min(low, last - width));
  Timeline.detail = false; // coarse while moving
  Timeline.plot.setScale("x", { min: from, max: from + width });
  clearTimeout(Timeline.timer);
  Timeline.timer = setTimeout(() => { Timeline.detail = true; Timeline.key = ""; Timeline.plot?.redraw(false); }, 140);
}

function wheel(event) {
  event.preventDefault();
  const [low, high] = range(), at = Timeline.plot.posToVal(event.offsetX, "x");
  const factor = Math.exp(Math.sign(event.deltaY) * 0.25);
  look(at - (at - low) * factor, at + (high - at) * factor);
}

function pressed(event, go) {
  const begin = [event.clientX, event.clientY], [low, high] = range();
  const perPixel = (high - low) / Timeline.plot.over.clientWidth;
  const move = (moved) => look(low - (moved.clientX - begin[0]) * perPixel, high - (moved.clientX - begin[0]) * perPixel);
  const release = (released) => {
    document.removeEventListener("mousemove", move);
    const still = Math.abs(released.clientX - begin[0]) < 4 && Math.abs(released.clientY - begin[1]) < 4;
    if (still && !event.shiftKey) freeze(Math.floor(Timeline.plot.posToVal(event.offsetX, "x")));
  };
  document.addEventListener("mouseup", release, { once: true });
  if (event.shiftKey) document.addEventListener("mousemove", move);
  else go(event);
}

// --- what is under the pointer ---

function blockUnder(blocks, tick, value) {
  let sum = 0;
  for (const block of blocks.stacked) {
    if (blocks.start[block] <= tick && tick < blocks.end[block] && (sum += blocks.size[block]) > value) return block;
  }
  return -1;
}

function pointed(event) {
  const plot = Timeline.plot, tick = Math.floor(plot.posToVal(event.offsetX, "x")), value = plot.posToVal(event.offsetY, "y");
  const exact = curve(), at = usedAt(exact, tick);
  if (at < 0) return;
  const block = State.blocks ? blockUnder(State.blocks, tick, value) : -1;
  const head = make("b", {}, `${when(tick)} · ${bytes(exact.used[at])}`);
  showTip(event, block < 0 ? [head] : [head, ...blockLines(State.blocks, block, tick)]);
}

function blockLines(blocks, block) {
  const name = Page.contents[blocks.content[block]], end = blocks.end[block], last = blocks.last[block];
  const pairs = [
    [say("column.size"), bytes(blocks.size[block])], [say("column.content"), say(`content.${name}`)],
    [say("column.tensor"), tensorOf(blocks, block)], [say("column.where"), whereOf(blocks, block)],
    [say("born"), momentOfBirth(blocks, block)], [say("freed"), end === Infinity ? say("never") : whole(end)],
    [say("last-use"), Number.isNaN(last) ? "" : whole(last)],
    ["", end !== Infinity && end - last > 1 ? say("idle", { ticks: whole(end - last) }) : ""],
  ].filter(([, text]) => text);
  const list = make("dl", {}, ...pairs.flatMap(([label, text]) => [make("dt", {}, label), make("dd", {}, text)]));
  const key = make("i", { className: "key", style: { background: colour(name) } });
  return [make("span", {}, key, operatorOf(blocks, block) || say("unknown")), list];
}

function showTip(event, children) {
  const tip = $("tip");
  tip.replaceChildren(...children);
  tip.hidden = false;
  const left = Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8);
  const top = event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 12 : event.clientY + 18;
  Object.assign(tip.style, { left: `${Math.max(4, left)}px`, top: `${Math.max(4, top)}px` });
}

// --- painting ---

function paintBlocks(plot) {
  const blocks = State.blocks;
  if (!blocks || !blocks.count) return;
  const { left, top, width, height } = plot.bbox, [low, high] = range(), most = plot.scales.y.max;
  const key = [low, high, most, width, height, Timeline.detail].join();
  if (key !== Timeline.key || !Timeline.image) {
    const columns = Math.max(1, Math.round(Timeline.detail ? width : width / 4));
    Timeline.image = blockImage(blocks, low, high, most, columns, Math.round(height));
    Timeline.key = key;
  }
  plot.ctx.imageSmoothingEnabled = false;
  plot.ctx.drawImage(Timeline.image, left, top, width, height);
}

// In each column the moment with most memory is shown, as in the curve: a spike is never lost between two pixels.
function momentOf(column, low, perColumn, exact) {
  const from = low + column * perColumn, to = from + perColumn;
  let best = from + perColumn / 2, most = -1;
  for (let at = usedAt(exact, from) + 1; at < exact.tick.length && exact.tick[at] < to; at++) {
    if (exact.used[at] > most) { most = exact.used[at]; best = exact.tick[at]; }
  }
  return Math.floor(best);
}

function blockImage(blocks, low, high, most, columns, rows) {
  const canvas = new OffscreenCanvas(columns, rows), context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows), pixels = new Uint32Array(image.data.buffer);
  const words = new Uint32Array((blocks.count >> 5) + 1), exact = curve();
  const set = (block) => { const at = blocks.level[block]; words[at >> 5] |= 1 << (at & 31); };
  const clear = (block) => { const at = blocks.level[block]; words[at >> 5] &= ~(1 << (at & 31)); };
  const [strong, pale] = [255, 45].map((alpha) => Page.contents.map((name) => [-16, -8, 0, 9, 17].map((by) => {
    const [red, green, blue] = COLOURS[name].map((part) => Math.max(0, Math.min(255, part + by)));
    return (alpha << 24) | (blue << 16) | (green << 8) | red;
  })));
  let started = 0, ended = 0, marks = [];
  for (let column = 0; column < columns; column++) {
    const tick = momentOf(column, low, (high - low) / columns, exact);
    while (started < blocks.count && blocks.start[started] <= tick) set(started++);
    while (ended < blocks.byEnd.length && blocks.end[blocks.byEnd[ended]] <= tick) clear(blocks.byEnd[ended++]);
    let sum = 0, bottom = rows;
    marks = [];
    for (let word = 0; word < words.length; word++) {
      let bits = words[word];
      while (bits) {
        const block = blocks.stacked[(word << 5) + 31 - Math.clz32(bits & -bits)];
        bits &= bits - 1;
        sum += blocks.size[block];
        const upper = Math.max(0, Math.round(rows - (sum / most) * rows)), faint = isFaint(blocks, block);
        if (State.found && !faint) marks.push([Math.max(0, Math.min(bottom, rows) - 1), block]); // lower than a pixel, and yet seen
        if (upper < bottom) {
          const shade = (faint ? pale : strong)[blocks.content[block]][(block * 7) % 5];
          for (let row = upper; row < bottom; row++) pixels[row * columns + column] = shade;
          bottom = upper;
        }
      }
    }
    for (const [row, block] of marks) pixels[row * columns + column] = strong[blocks.content[block]][(block * 7) % 5];
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

function paintMarks(plot) {
  const { left, top, width, height } = plot.bbox, context = plot.ctx, [low, high] = range();
  const at = (tick) => plot.valToPos(tick, "x", true);
  const within = (tick) => tick >= low && tick <= high;
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  for (const { phase, start: from, end: to } of rank().spans) {
    if (to < low || from > high) continue;
    context.fillStyle = PHASES[phase] ?? "#888";
    context.fillRect(at(from), top, Math.max(1, at(to) - at(from)), 5 * devicePixelRatio);
  }
  const vertical = (tick, style, dash, thick) => {
    context.strokeStyle = style;
    context.setLineDash(dash);
    context.lineWidth = thick * devicePixelRatio;
    context.beginPath();
    context.moveTo(at(tick), top);
    context.lineTo(at(tick), top + height);
    context.stroke();
  };
  rank().step_ends.filter(within).forEach((tick) => vertical(tick, "#888a", [3, 4], 1));
  if (within(State.tick)) vertical(State.tick, "#d0f", [], 1.5);
  context.restore();
}
