"use strict";
// The data of the page, its texts, and small helpers that every part uses.

const Page = JSON.parse(document.getElementById("data").textContent);
const COLOURS = {
  weights: [72, 114, 184], optimizer_state: [128, 152, 206], gradients: [93, 165, 148], activations: [233, 159, 76],
  temporaries: [214, 96, 96], workspace: [164, 116, 180], communication: [122, 180, 84], constants: [160, 140, 120],
  unattributed: [150, 158, 168], ...Page.colours,
};
const State = {
  language: Page.language, place: Page.worst, tick: 0, search: "", flame: "layer", zoomed: null, blocks: null, only: null,
  found: null, // by block whether the search finds it; null where nothing is searched
};
// What a snapshot does not tell.
const NOTHING = { spans: [], by_parameter: [], activations_by_layer: [], late_frees: [], theory: { weights_bytes: 0, parameters: 0 } };
for (const each of Page.ranks) Object.assign(each, { ...NOTHING, ...each });
const unpacked = new Map(); // by place of the rank

const $ = (id) => document.getElementById(id);
const rank = () => Page.ranks[State.place];
const colour = (content, shade = 0) =>
  `rgb(${COLOURS[content].map((part) => Math.max(0, Math.min(255, part + shade))).join(",")})`;

function say(key, params = {}) {
  const text = Page.texts[key];
  return (text ? text[State.language] : key)
    .replace(/\{(\w+)\} (block|tick|step)s\b( match\b)?/g, (found, name, word, verb) =>
      String(params[name]) === "1" ? `{${name}} ${word}${verb ? " matches" : ""}` : found)
    .replace(/\{(\w+)\}/g, (_, name) => String(params[name] ?? ""));
}

function bytes(amount) {
  const sign = amount < 0 ? "−" : "";
  const size = Math.abs(amount);
  if (size >= 2 ** 30) return `${sign}${(size / 2 ** 30).toFixed(2)} GiB`;
  if (size >= 2 ** 20 / 10) return `${sign}${(size / 2 ** 20).toFixed(1)} MiB`;
  if (size >= 1024) return `${sign}${(size / 1024).toFixed(1)} KiB`;
  return `${sign}${size} B`;
}

// A moment as part of a sentence; before the first event of a snapshot there is one, too.
const when = (tick) => say(tick < 0 ? "when.start" : "when", { tick: whole(tick) });

const signed = (amount) => (amount > 0 ? "+" : "") + bytes(amount);
const whole = (number) => number.toLocaleString("en");

// An element with properties and children; texts become text nodes, so that nothing in a trace can become markup.
function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "style") Object.assign(made.style, value);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function running(differences) {
  const sums = new Float64Array(differences.length);
  let sum = 0;
  differences.forEach((difference, at) => { sums[at] = sum += difference; });
  return sums;
}

async function unpack(place) {
  if (unpacked.has(place)) return unpacked.get(place);
  const packed = Page.ranks[place].blocks;
  if (!packed) return null;
  const raw = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
  const columns = JSON.parse(await new Response(stream).text());
  const blocks = blocksOf(columns);
  unpacked.set(place, blocks);
  Page.ranks[place].blocks = null; // not needed twice
  return blocks;
}

function blocksOf(columns) {
  const start = running(columns.start);
  const count = start.length;
  const end = Float64Array.from(columns.life, (life, at) => (life < 0 ? Infinity : start[at] + life));
  const last = Float64Array.from(columns.last, (use, at) => (use < 0 ? NaN : start[at] + use));
  const size = Float64Array.from(columns.size, (code) => columns.sizes[code]);
  const content = Uint8Array.from(columns.content);
  const indices = Array.from({ length: count }, (_, at) => at);
  // From bottom to top: by content, then by age.
  const stacked = Uint32Array.from(indices.slice().sort((a, b) => content[a] - content[b] || a - b));
  const level = new Uint32Array(count);
  stacked.forEach((block, at) => { level[block] = at; });
  const byEnd = Uint32Array.from(indices.filter((at) => end[at] !== Infinity).sort((a, b) => end[a] - end[b]));
  const byAddress = Uint32Array.from(indices.slice().sort((a, b) => columns.offset[a] - columns.offset[b]));
  const offset = Float64Array.from(columns.offset, (units) => units * columns.unit);
  const curve = curveOf(start, end, size, byEnd);
  return { ...columns, count, start, end, last, size, content, stacked, level, byEnd, byAddress, offset, curve, paths: new Map() };
}

// Bytes in use after every allocation and release; releases come first where both have one tick.
function curveOf(start, end, size, byEnd) {
  const tick = new Float64Array(start.length + byEnd.length), used = new Float64Array(tick.length);
  let sum = 0, started = 0, ended = 0;
  for (let at = 0; at < tick.length; at++) {
    const release = ended < byEnd.length && (started === start.length || end[byEnd[ended]] <= start[started]);
    const block = release ? byEnd[ended++] : started++;
    sum += release ? -size[block] : size[block];
    tick[at] = release ? end[block] : start[block];
    used[at] = sum;
  }
  return { tick, used };
}

// The parts of a block's scope path or node name.
function pathOf(blocks, block) {
  const leaf = blocks.leaf[blocks.node[block]];
  if (!blocks.paths.has(leaf)) {
    const parts = [];
    for (let at = leaf; at >= 0; at = blocks.tree[at][0]) parts.unshift(blocks.tree[at][1]);
    blocks.paths.set(leaf, parts);
  }
  return blocks.paths.get(leaf);
}

function operatorOf(blocks, block) {
  const parts = pathOf(blocks, block);
  if (blocks.names[block] && parts.length === 1) return blocks.kinds[blocks.kind[block]]; // the name is told elsewhere
  return parts[parts.length - 1].replace(/-(?:op)?\d+$/, "") || blocks.kinds[blocks.kind[block]];
}

const framesOf = (blocks, block) => blocks.stacks[blocks.stack[block]].map((at) => blocks.frames[at]);
const tensorOf = (blocks, block) => blocks.tensors[blocks.tensor[block]];

// Operators of the dynamic graph may have the path "Default/BiasAdd-op0", which tells nothing.
const hasScope = (blocks, block) => pathOf(blocks, block).length > 1 && pathOf(blocks, block).slice(0, -1).join("/") !== "Default";

function whereOf(blocks, block) {
  if (blocks.names[block]) return blocks.names[block];
  const scope = pathOf(blocks, block).slice(0, -1).join("/"), frame = tellingFrame(framesOf(blocks, block));
  return hasScope(blocks, block) || !frame ? scope : `${frame[0]}:${frame[1]}`;
}

// The innermost frame of Python that is neither of an installed package nor of the standard library.
function tellingFrame(frames) {
  const own = frames.filter(([file]) => /\.py$/.test(file) && !/(?:site|dist)-packages\/|\/lib\/python3|^</.test(file));
  return own[own.length - 1] ?? null;
}

function liveAt(blocks, tick) {
  const live = [];
  for (const block of blocks.stacked) {
    if (blocks.start[block] <= tick && tick < blocks.end[block]) live.push(block);
  }
  return live;
}

// The last parts of a long scope path; the whole of it belongs into a title.
const near = (path) => { const parts = path.split("/"); return parts.length > 3 && parts[0] ? `…/${parts.slice(-3).join("/")}` : path; };

function haystack(blocks, block) {
  const frames = framesOf(blocks, block).map(([file, line, name]) => `${file}:${line} ${name}`).join(" ");
  return `${pathOf(blocks, block).join("/")} ${operatorOf(blocks, block)} ${blocks.names[block] ?? ""} ${tensorOf(blocks, block)} ${say(
    `content.${Page.contents[blocks.content[block]]}`)} ${frames}`.toLowerCase();
}

// Which blocks the search finds; those that are alike in all that is searched are looked at once.
function foundBy(blocks, search) {
  const wanted = search.trim().toLowerCase();
  if (!blocks || !wanted) return null;
  const known = new Map(), found = new Uint8Array(blocks.count);
  for (let block = 0; block < blocks.count; block++) {
    const key = `${blocks.node[block]} ${blocks.stack[block]} ${blocks.kind[block]} ${blocks.tensor[block]} ${blocks.content[block]} ${blocks.names[block] ?? ""}`;
    let hit = known.get(key);
    if (hit === undefined) known.set(key, (hit = haystack(blocks, block).includes(wanted) ? 1 : 0));
    found[block] = hit;
  }
  return found;
}

// Whether a block stands back: another kind is shown alone, or the search does not find it.
const isFaint = (blocks, block) =>
  (State.only !== null && Page.contents[blocks.content[block]] !== State.only) || (State.found !== null && !State.found[block]);
