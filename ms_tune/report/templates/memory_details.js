// The list of blocks that are alive at the frozen moment.

const MOST_LINES = 300;

function drawLive() {
  const blocks = State.blocks, title = $("live-title");
  if (!blocks) {
    title.textContent = when(State.tick);
    $("matches").textContent = rank().blocks ? say(typeof DecompressionStream === "function" ? "loading" : "no-unpack") : say("no-blocks");
    $("live").replaceChildren();
    return;
  }
  const live = liveAt(blocks, State.tick), total = sizeOf(blocks, live);
  title.textContent = say("live", { when: when(State.tick), count: whole(live.length), size: bytes(total) });
  const chosen = State.only ? live.filter((block) => Page.contents[blocks.content[block]] === State.only) : live;
  const found = State.found ? chosen.filter((block) => State.found[block]) : chosen;
  const exact = curve(), at = usedAt(exact, State.tick), rest = at >= 0 && rank().block_count < rank().counted ? exact.used[at] - total : 0;
  const notes = [State.found || State.only ? say("matches", { count: whole(found.length), size: bytes(sizeOf(blocks, found)) }) : "",
    rest > 0 ? say("unlisted", { size: bytes(rest) }) : ""];
  $("matches").textContent = notes.filter(Boolean).join(" · ");
  const largest = found.slice().sort((a, b) => blocks.size[b] - blocks.size[a] || a - b).slice(0, MOST_LINES);
  const named = largest.some((block) => tensorOf(blocks, block)), used = largest.some((block) => !Number.isNaN(blocks.last[block]));
  const columns = ["size", "content", "operator", ...(named ? ["tensor"] : []), "where"];
  const head = make("tr", {}, ...columns.map((name, place) => make("th", { className: place ? "" : "n" }, say(`column.${name}`))),
    make("th", { className: "n" }, say("born")), make("th", { className: "n" }, say("freed")), used ? make("th", { className: "n" }, say("last-use")) : null);
  const lines = largest.map((block) => liveLine(blocks, block, named, used));
  $("live").replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines)));
}

const sizeOf = (blocks, chosen) => chosen.reduce((sum, block) => sum + blocks.size[block], 0);

function liveLine(blocks, block, named, used) {
  const name = Page.contents[blocks.content[block]], end = blocks.end[block], last = blocks.last[block];
  const number = (text) => make("td", { className: "n" }, text);
  return make("tr", {},
    number(bytes(blocks.size[block])),
    contentCell(name), make("td", { className: "w" }, operatorOf(blocks, block)), named ? make("td", {}, tensorOf(blocks, block)) : null,
    placeCell(whereOf(blocks, block)),
    number(momentOfBirth(blocks, block)), number(end === Infinity ? say("never") : whole(end)),
    used ? number(Number.isNaN(last) ? "" : whole(last)) : null);
}

const momentOfBirth = (blocks, block) => (blocks.start[block] < 0 ? say("earlier") : whole(blocks.start[block]));
