// Puts the parts together: language, rank, frozen moment.

function freeze(tick) {
  const ticks = rank().bands.tick;
  State.tick = Math.max(ticks[0] ?? 0, Math.min(tick, ticks[ticks.length - 1] ?? 0));
  State.zoomed = null;
  Timeline.plot?.redraw(false);
  drawMoment();
}

function drawMoment() {
  drawLive();
  drawFlame();
  drawAddresses();
}

// What the search finds, in the list and in all pictures.
function mark() {
  State.found = foundBy(State.blocks, State.search);
  Timeline.key = "";
  Timeline.plot?.redraw(false);
  drawMoment();
}

const otherLanguage = () => Object.keys(Page.languages).find((language) => language !== State.language);

function drawTexts() {
  document.documentElement.lang = State.language;
  for (const each of document.querySelectorAll("[data-t]")) each.textContent = say(each.dataset.t);
  for (const each of document.querySelectorAll("[data-p]")) each.placeholder = say(each.dataset.p);
  $("language").textContent = Page.languages[otherLanguage()];
  $("source").textContent = `${nameOf(rank())}${Page.ranks.length > 1 || rank().rank !== null ? ` · ${Page.source}` : ""}`;
  $("made-by").textContent = say("made-by", { version: Page.version, source: Page.source });
}

function drawAll() {
  drawTexts();
  drawFacts();
  drawMakeUp();
  $("over-time").hidden = rank().bands.tick.length < 2;
  if (!$("over-time").hidden) drawTimeline();
  drawRemedies();
  drawFindings();
  drawComparison();
  drawRanks();
  drawGroups();
  drawActivations();
  drawTheory();
  drawLate();
  drawMoment();
}

async function choose(place) {
  State.place = place;
  State.tick = rank().peak_tick;
  State.zoomed = null;
  State.only = null;
  State.blocks = unpacked.get(place) ?? null;
  State.found = foundBy(State.blocks, State.search);
  drawAll();
  if (State.blocks || !rank().blocks || typeof DecompressionStream !== "function") return;
  const blocks = await unpack(place);
  if (State.place !== place) return;
  State.blocks = blocks;
  State.found = foundBy(blocks, State.search);
  // Where there are no scope paths, a flame graph by layer says less than one by stack.
  const scoped = blocks.leaf.some((leaf) => leaf >= 0 && blocks.tree[leaf][0] >= 0) || Object.keys(blocks.names).length > 0;
  if (!scoped) State.flame = "stack";
  Timeline.key = "";
  Timeline.plot?.redraw(false);
  drawMoment();
  document.body.dataset.ready = "1";
}

$("language").addEventListener("click", () => { State.language = otherLanguage(); drawAll(); mark(); });
$("go-peak").addEventListener("click", () => {
  const { peak_tick: moment, bands } = rank(), ticks = bands.tick, width = (ticks[ticks.length - 1] - ticks[0]) / 20;
  look(moment - width, moment + width);
  freeze(moment);
});
$("timeline").addEventListener("wheel", () => { $("tip").hidden = true; }, { passive: true });
$("go-all").addEventListener("click", () => look(-Infinity, Infinity));
let typing = 0;
$("search").addEventListener("input", (event) => {
  State.search = event.target.value;
  clearTimeout(typing);
  typing = setTimeout(mark, 120);
});
$("flame-layer").addEventListener("click", () => { State.flame = "layer"; State.zoomed = null; drawFlame(); });
$("flame-stack").addEventListener("click", () => { State.flame = "stack"; State.zoomed = null; drawFlame(); });
$("map").addEventListener("mousemove", pointedAtMap);
$("map").addEventListener("mouseleave", () => { $("tip").hidden = true; });
let resizing = 0;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => {
    Timeline.plot?.setSize({ width: $("timeline").clientWidth, height: 380 });
    drawAddresses();
  }, 150);
});
choose(State.place);
