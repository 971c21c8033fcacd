// The flame graph of the frozen moment: by layer of the model (scope path or parameter) or by Python stack.

const FLAME_LINE = 20, FLAME_LEAST = 0.0012;

function flamePath(blocks, block) {
  if (State.flame === "stack") {
    const frames = framesOf(blocks, block).map(([file, line, name]) => `${name} (${file.split("/").slice(-2).join("/")}:${line})`);
    return frames.length ? [...frames, operatorOf(blocks, block)] : [say("no-stack"), operatorOf(blocks, block)];
  }
  if (blocks.names[block]) return [say("by-name"), ...blocks.names[block].split(".")];
  const parts = pathOf(blocks, block);
  if (hasScope(blocks, block)) return [...parts.slice(0, -1), operatorOf(blocks, block)];
  const calls = framesOf(blocks, block).filter(([, , name]) => name === "construct" || name === "forward");
  const layers = calls.map(([file, line, name]) => `${name} (${file.split("/").slice(-2).join("/")}:${line})`);
  return layers.length ? [...layers, operatorOf(blocks, block)] : [say("no-layer"), operatorOf(blocks, block)];
}

function flameTree(blocks) {
  const root = { name: when(State.tick), size: 0, strong: false, parts: new Map(), content: new Map(), parent: null };
  for (const block of liveAt(blocks, State.tick)) {
    const size = blocks.size[block], content = Page.contents[blocks.content[block]];
    let at = root;
    const strong = !isFaint(blocks, block);
    const add = (node) => { node.size += size; node.strong ||= strong; node.content.set(content, (node.content.get(content) ?? 0) + size); };
    add(at);
    for (const name of flamePath(blocks, block).filter(Boolean)) {
      if (!at.parts.has(name)) at.parts.set(name, { name, size: 0, strong: false, parts: new Map(), content: new Map(), parent: at });
      at = at.parts.get(name);
      add(at);
    }
  }
  return root;
}

function mainContent(node) {
  return [...node.content].reduce((best, each) => (each[1] > best[1] ? each : best))[0];
}

function drawFlame() {
  $("flame-title").textContent = say("flame", { when: when(State.tick) });
  $("flame-layer").setAttribute("aria-pressed", String(State.flame === "layer"));
  $("flame-stack").setAttribute("aria-pressed", String(State.flame === "stack"));
  const holder = $("flame");
  if (!State.blocks) { holder.replaceChildren(); return; }
  const root = flameTree(State.blocks);
  if (!root.size) { holder.replaceChildren(); return; }
  let focus = root;
  for (const name of State.zoomed ?? []) focus = focus.parts.get(name) ?? focus;
  const made = [];
  let deepest = 0;
  const place = (node, left, width, depth, path) => {
    if (width < FLAME_LEAST) return;
    deepest = Math.max(deepest, depth);
    made.push(flameBox(node, left, width, depth, path, root.size));
    let at = left;
    for (const part of [...node.parts.values()].sort((a, b) => b.size - a.size)) {
      const share = (part.size / node.size) * width;
      place(part, at, share, depth + 1, [...path, part.name]);
      at += share;
    }
  };
  const above = [];
  for (let node = focus.parent; node; node = node.parent) above.unshift(node);
  above.forEach((node, depth) => made.push(flameBox(node, 0, 1, depth, pathTo(node), root.size)));
  place(focus, 0, 1, above.length, pathTo(focus));
  holder.style.height = `${(Math.max(deepest, above.length) + 1) * FLAME_LINE}px`;
  holder.replaceChildren(...made);
}

function pathTo(node) {
  const path = [];
  for (let at = node; at.parent; at = at.parent) path.unshift(at.name);
  return path;
}

function flameBox(node, left, width, depth, path, all) {
  const text = `${node.name} · ${bytes(node.size)} · ${((100 * node.size) / all).toFixed(1)} %`;
  const parts = [...node.content].sort((a, b) => b[1] - a[1]).map(([name, size]) => `${say(`content.${name}`)}: ${bytes(size)}`);
  return make("button", {
    type: "button", className: "f", title: [text, ...parts].join("\n"), textContent: width > 0.02 ? text : "",
    style: {
      left: `${100 * left}%`, width: `${100 * width}%`, top: `${depth * FLAME_LINE}px`,
      background: colour(mainContent(node), 30 + ((depth * 13) % 26)), opacity: node.strong ? "" : "0.25",
    },
    onclick: () => { State.zoomed = path; drawFlame(); },
  });
}
