// The address space at the frozen moment: stretches that the pool has used so far, blocks in them, holes between.

const MAP = { line: 18, gap: 7, most: 40, boxes: [] };

// Stretches of addresses that were in use at any time up to the tick, with what is alive in them.
function stretches(blocks, tick) {
  const found = [];
  let open = null;
  for (const block of blocks.byAddress) {
    if (blocks.start[block] > tick || !blocks.size[block]) continue;
    const from = blocks.offset[block], to = from + blocks.size[block];
    if (!open || from > open.to) found.push((open = { from, to, live: [] }));
    open.to = Math.max(open.to, to);
    if (tick < blocks.end[block]) open.live.push(block);
  }
  return found.map((stretch) => ({ ...stretch, holes: holesIn(blocks, stretch) }));
}

function holesIn(blocks, { from, to, live }) {
  const holes = [];
  let at = from;
  for (const block of live) {
    if (blocks.offset[block] > at) holes.push([at, blocks.offset[block]]);
    at = Math.max(at, blocks.offset[block] + blocks.size[block]);
  }
  if (at < to) holes.push([at, to]);
  return holes;
}

function drawAddresses() {
  $("map-title").textContent = say("addresses", { when: when(State.tick) });
  const canvas = $("map"), blocks = State.blocks;
  MAP.boxes = [];
  if (!blocks) { canvas.height = 1; $("map-hint").textContent = ""; return; }
  const all = stretches(blocks, State.tick).sort((a, b) => b.to - b.from - (a.to - a.from));
  const holes = all.flatMap((stretch) => stretch.holes.map(([from, to]) => to - from));
  const texts = [say("addresses-hint", { free: bytes(holes.reduce((a, b) => a + b, 0)), hole: bytes(holes.reduce((a, b) => Math.max(a, b), 0)) })];
  if (rank().overlaps) texts.push(say("overlaps"));
  $("map-hint").textContent = texts.join(" ");
  const shown = all.slice(0, MAP.most), width = canvas.clientWidth || 1000, scale = devicePixelRatio;
  canvas.width = width * scale;
  canvas.height = (shown.length * (MAP.line + MAP.gap) + MAP.gap) * scale;
  canvas.style.height = `${canvas.height / scale}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const longest = Math.max(1, ...shown.map((stretch) => stretch.to - stretch.from)), soft = getComputedStyle(document.body).color;
  shown.forEach((stretch, line) => {
    const top = MAP.gap + line * (MAP.line + MAP.gap), x = (address) => ((address - stretch.from) / longest) * (width - 2) + 1;
    context.globalAlpha = 0.13;
    context.fillStyle = soft;
    context.fillRect(1, top, x(stretch.to) - 1, MAP.line);
    context.globalAlpha = 1;
    for (const block of stretch.live) {
      const left = x(blocks.offset[block]), wide = Math.max(0.4, x(blocks.offset[block] + blocks.size[block]) - left);
      context.fillStyle = colour(Page.contents[blocks.content[block]], ((block * 7) % 5) * 8 - 16);
      context.globalAlpha = isFaint(blocks, block) ? 0.2 : 1;
      context.fillRect(left, top, wide, MAP.line);
      context.globalAlpha = 1;
      MAP.boxes.push({ left, right: left + wide, top, block });
    }
    for (const [from, to] of stretch.holes) MAP.boxes.push({ left: x(from), right: x(to), top, hole: to - from });
  });
}

function pointedAtMap(event) {
  const found = MAP.boxes.filter(({ left, right, top }) =>
    event.offsetX >= left && event.offsetX <= right && event.offsetY >= top && event.offsetY <= top + MAP.line);
  if (!found.length) { $("tip").hidden = true; return; }
  const [box] = found, blocks = State.blocks;
  if (box.hole !== undefined) { showTip(event, [make("b", {}, say("hole", { size: bytes(box.hole) }))]); return; }
  const address = (BigInt(blocks.base) + BigInt(blocks.offset[box.block])).toString(16);
  showTip(event, [make("b", {}, `${say("address")} 0x${address}`), ...blockLines(blocks, box.block)]);
}
