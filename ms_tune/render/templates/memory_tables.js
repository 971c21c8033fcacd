// Facts, findings, ranks, and the tables of the peak.

function drawFacts() {
  const { peak, peakTick, footprint, limit, rows, steps, dropped, promptPeak, holes } = rank();
  const fact = (value, label, note = "", bad = false) =>
    make("div", { className: bad ? "fact bad" : "fact" }, make("b", {}, value), make("span", {}, label),
      note ? make("small", {}, ` · ${note}`) : null);
  $("facts").replaceChildren(...[
    fact(bytes(peak), say("peak"), say("tick", { tick: whole(peakTick) }), limit !== null && peak > limit),
    fact(bytes(footprint), say("footprint")),
    limit === null ? null : fact(bytes(limit), say("limit")),
    fact(bytes(holes[0]), say("holes"), say("largest-hole", { size: bytes(holes[1]) })),
    fact(bytes(promptPeak), say("prompt")),
    fact(whole(rows), say("blocks")),
    fact(whole(steps.length), say("steps")),
    dropped ? fact(whole(dropped), say("dropped"), "", true) : null,
  ].filter(Boolean));
}

function stripe(contents, most) {
  const parts = Object.entries(contents).filter(([, size]) => size > 0);
  return make("div", { className: "stripe" }, ...parts.map(([name, size]) => make("i", {
    title: `${say(`content.${name}`)}: ${bytes(size)}`, style: { background: colour(name), width: `${(100 * size) / most}%` },
  })));
}

function table(heads, lines) {
  const head = make("tr", {}, ...heads.map(([text, kind]) => make("th", { className: kind }, text)));
  return make("div", { className: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines)));
}

const cell = (text, kind = "") => make("td", { className: kind }, text);

function drawFindings() {
  const mine = Page.findings.filter((finding) => finding.rank === null || Page.ranks.length === 1 || finding.rank === rank().rank);
  const lines = mine.map((finding) => make("tr", {},
    make("td", { className: finding.severity }, `${say(`severity.${finding.severity}`)} ${finding.id}`),
    make("td", { className: "w" }, make("b", {}, finding.title[State.language]), make("br"), finding.message[State.language]),
    cell(finding.help[State.language], "w"), cell(finding.bytes ? bytes(finding.bytes) : "", "n")));
  const heads = [["", ""], [say("finding"), ""], [say("do"), ""], [say("column.size"), "n"]];
  const ratios = rank().gradientsRatio === null ? null : make("p", { className: "hint" }, say("theory", {
    gradients: rank().gradientsRatio.toFixed(2), optimizer: rank().optimizerRatio.toFixed(2) }));
  $("findings").replaceChildren(...[make("h2", {}, say("findings")),
    lines.length ? table(heads, lines) : make("p", {}, say("no-findings")), ratios].filter(Boolean));
}

const nameOf = (each) => (each.rank === null ? Page.source.split("/").pop() : say("rank", { rank: each.rank })) +
  (each.stage === null || each.stage === undefined ? "" : ` · ${say("stage", { stage: each.stage })}`);

function drawRanks() {
  const section = $("ranks");
  section.hidden = Page.ranks.length < 2;
  const most = Math.max(1, ...Page.ranks.map((each) => each.peak));
  const lines = Page.ranks.map((each, place) => make("tr", { className: place === State.place ? "go on" : "go", onclick: () => choose(place) },
    cell(nameOf(each)), cell(bytes(each.peak), "n"), cell(bytes(each.footprint), "n"), make("td", { className: "w" }, stripe(each.contents, most))));
  const heads = [[say("column.rank"), ""], [say("column.peak"), "n"], [say("column.footprint"), "n"], [say("column.content"), ""]];
  section.replaceChildren(make("h2", {}, say("ranks")), make("p", { className: "hint" }, say("ranks-hint")), table(heads, lines));
  $("ranks-nav").replaceChildren(...(Page.ranks.length < 2 ? [] : Page.ranks.map((each, place) => make("button", {
    type: "button", "aria-pressed": String(place === State.place), textContent: nameOf(each), onclick: () => choose(place) }))));
}

function drawGroups() {
  for (const [id, column] of [["layers", "layer"], ["parameters", "parameter"]]) {
    const groups = rank()[id], most = Math.max(1, ...groups.map((group) => group[1]));
    const lines = groups.map(([key, size, count, contents]) => make("tr", {},
      cell(bytes(size), "n"), cell(whole(count), "n"), cell(key || say("outside"), "w"), make("td", {}, stripe(contents, most))));
    const heads = [[say("column.size"), "n"], [say("column.count"), "n"], [say(`column.${column}`), ""], [say("column.content"), ""]];
    $(id).hidden = !groups.length;
    $(id).replaceChildren(make("h2", {}, say(id)), table(heads, lines));
  }
}

function drawActivations() {
  const { activations, recomputeSaving } = rank(), section = $("activations");
  section.hidden = !activations.length;
  const most = Math.max(1, ...activations.map(([, size]) => size));
  const lines = activations.map(([layer, size, count]) => make("tr", {},
    cell(layer, "w"), cell(bytes(size), "n"), cell(whole(count), "n"), make("td", {}, stripe({ activations: size }, most))));
  const heads = [[say("column.layer"), ""], [say("column.size"), "n"], [say("column.count"), "n"], ["", ""]];
  section.replaceChildren(make("h2", {}, say("activations")),
    make("p", { className: "hint" }, say("activations-hint", { size: bytes(recomputeSaving) })), table(heads, lines));
}

function drawComparison() {
  const section = $("compare");
  section.hidden = !Page.comparison;
  if (!Page.comparison) return;
  const parts = Page.comparison.flatMap((pair) => {
    const name = pair.rank === null ? Page.source.split("/").pop() : say("rank", { rank: pair.rank });
    const lines = pair.changes.map(([operator, where, content, before, after]) => make("tr", {},
      cell(signed(after - before), after > before ? "n grow" : "n shrink"), cell(bytes(before), "n"), cell(bytes(after), "n"),
      make("td", {}, make("i", { className: "key", style: { background: colour(content) } }), say(`content.${content}`)),
      cell(operator, "w"), cell(where, "w")));
    const heads = [["change", "n"], ["before", "n"], ["after", "n"], ["content", ""], ["operator", ""], ["where", ""]]
      .map(([key, kind]) => [say(`column.${key}`), kind]);
    const change = { rank: name, before: bytes(pair.before), after: bytes(pair.after), change: signed(pair.after - pair.before) };
    return [make("p", {}, say("compare-peaks", change)), table(heads, lines)];
  });
  section.replaceChildren(make("h2", {}, say("compare")), ...parts);
}
