// Facts, findings, ranks, and the tables of the peak.

function drawFacts() {
  const { peak_bytes: peak, footprint_bytes: footprint, verdict, rows_dropped: dropped, holes_at_peak: holes, about } = rank();
  const fact = (value, label, note = "", kind = "") =>
    make("div", { className: `fact ${kind}` }, make("b", {}, value), make("span", {}, label),
      note ? make("small", {}, ` · ${note}`) : null);
  const own = rank().facts?.map(({ value, label, note }) => fact(value, label[State.language], note?.[State.language]));
  $("facts").replaceChildren(...[
    make("div", { className: `fact verdict ${verdict.kind}` }, make("b", {}, verdict.word[State.language]),
      ...verdict.lines.map((line, at) => make(at ? "small" : "span", {}, line[State.language]))),
    about ? make("div", { className: "fact tight" }, make("span", {}, about[State.language])) : null,
    ...(own ?? [fact(bytes(peak), say("peak"), when(rank().peak_tick)),
      fact(bytes(footprint), say("footprint"), say("fragments", { size: bytes(Math.max(0, footprint - peak)) })),
      fact(bytes(holes.largest_bytes), say("largest-hole"), say("holes", { size: bytes(holes.free_bytes) })),
      fact(bytes(rank().peak_if_freed_after_last_use), say("prompt")),
      fact(whole(rank().rows - rank().host_rows), say("blocks")),
      fact(whole(rank().steps), say("steps"))]),
    dropped ? fact(whole(dropped), say("dropped"), "", "bad") : null,
  ].filter(Boolean));
}

// The peak by category, as one bar.
function drawMakeUp() {
  const { categories_at_peak: contents, peak_bytes: peak } = rank();
  const parts = Object.entries(contents).filter(([, size]) => size > 0).map(([name, size]) => {
    const share = size / Math.max(1, peak), label = `${say(`content.${name}`)} ${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
    return make("i", { title: `${label} · ${bytes(size)}`, style: { background: colour(name, 25), width: `${100 * share}%` } }, share > 0.09 ? label : "");
  });
  $("make-up").replaceChildren(make("h2", {}, say("make-up")), make("div", { className: "stripe" }, ...parts));
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

const contentCell = (name) =>
  make("td", { className: "o" }, make("i", { className: "key", style: { background: colour(name) } }), say(`content.${name}`));
// A long path is broken between its parts.
const broken = (path) => path.split(/(?<=[/_=])/).flatMap((part, at) => (at ? [make("wbr"), part] : [part]));
const placeCell = (path) => make("td", { className: "w", title: path }, ...broken(near(path)));

function drawRemedies() {
  const { remedies, held_at_peak: held, remedies_hint: hint } = rank(), section = $("remedies");
  section.hidden = !held.length;
  const [comma, opened, closed] = State.language === "zh" ? ["，", "（", "）"] : [", ", " (", ")"];
  const parts = held.slice(0, 4).map(({ phase, category: content, bytes: size }) =>
    `${say(`content.${content}`)}${phase === "unknown" ? "" : `${opened}${say(`phase.${phase}`)}${closed}`} ${bytes(size)}`);
  const lines = remedies.map((remedy) => make("tr", {}, cell(bytes(remedy.bytes_freed), "n"), cell(bytes(remedy.peak_after_bytes), "n"),
    make("td", { className: "w" }, ...broken(remedy.title[State.language])), cell(remedy.price[State.language], "w"),
    make("td", { className: "w" }, ...broken(remedy.how[State.language] ?? remedy.how)),
    make("td", {}, stripe({ temporaries: remedy.bytes_freed }, remedy.bytes_freed + remedy.peak_after_bytes))));
  const heads = [["frees", "n"], ["leaves", "n"], ["remedy", ""], ["price", ""], ["how", ""]].map(([key, kind]) => [say(`column.${key}`), kind]);
  section.replaceChildren(make("h2", {}, say("remedies")), make("p", { className: "hint" }, hint?.[State.language] ?? say("remedies-hint")),
    make("p", {}, say("held", { parts: parts.join(comma) })),
    lines.length ? table([...heads, ["", ""]], lines) : make("p", { className: "hint" }, say("no-remedies")));
}

function drawFindings() {
  const mine = Page.findings.filter((finding) => finding.rank === null || Page.ranks.length === 1 || finding.rank === rank().rank);
  const cards = mine.map((finding) => make("article", { className: `card ${finding.severity}` },
    make("header", {}, make("span", {}, finding.title[State.language]),
      make("span", { className: "tag" }, [say(`severity.${finding.severity}`), finding.id, finding.bytes ? bytes(finding.bytes) : ""].filter(Boolean).join(" · "))),
    make("p", {}, finding.message[State.language]),
    make("p", { className: "advice" }, `${say("do")}: ${finding.help[State.language]}`),
    finding.stack.length ? make("details", {}, make("summary", {}, say("stack")), make("pre", {}, finding.stack.map(({ file, line, function: name }) => `${file}:${line} ${name}`).join("\n"))) : null));
  $("findings").replaceChildren(make("h2", {}, say("findings")),
    cards.length ? make("div", { className: "cards" }, ...cards) : make("p", { className: "fine" }, `✓ ${say("no-findings")}`));
}

function drawTheory() {
  const { weights_bytes: weights, parameters: count, ...states } = rank().theory, section = $("theory");
  section.hidden = !Object.keys(states).length;
  const lines = Object.entries(states).map(([name, { bytes: measured, expected_bytes: expected, shards }]) => make("tr", {}, contentCell(name), cell(bytes(measured), "n"),
    cell(bytes(expected), "n"), cell(expected ? (measured / expected).toFixed(2) : "–", "n"), cell(shards ? say("shards", { count: shards }) : "")));
  const heads = [["content", ""], ["size", "n"], ["theory", "n"], ["ratio", "n"], ["remark", ""]].map(([key, kind]) => [say(`column.${key}`), kind]);
  section.replaceChildren(make("h2", {}, say("theory")),
    make("p", { className: "hint" }, say("theory-hint", { weights: bytes(weights), count: whole(count) })), table(heads, lines));
}

function drawLate() {
  const { late_frees: late } = rank(), section = $("late");
  section.hidden = !late.length;
  const most = Math.max(1, ...late.map((each) => each.bytes_ticks));
  const lines = late.map(({ category: name, operator, where, count, bytes: size, bytes_ticks: waste }) => make("tr", {}, contentCell(name), cell(operator, "w"), placeCell(where),
    cell(whole(count), "n"), cell(bytes(size), "n"), make("td", {}, stripe({ [name]: waste }, most))));
  const heads = [["content", ""], ["operator", ""], ["where", ""], ["count", "n"], ["size", "n"]].map(([key, kind]) => [say(`column.${key}`), kind]);
  section.replaceChildren(make("h2", {}, say("late")), make("p", { className: "hint" }, say("late-hint")), table([...heads, [say("waste"), ""]], lines));
}

const nameOf = (each) => (each.rank === null ? Page.source.split("/").pop() : say("rank", { rank: each.rank })) +
  (each.stage === null || each.stage === undefined ? "" : ` · ${say("stage", { stage: each.stage })}`);

function drawRanks() {
  const section = $("ranks");
  section.hidden = Page.ranks.length < 2;
  const most = Math.max(1, ...Page.ranks.map((each) => each.peak_bytes));
  const lines = Page.ranks.map((each, place) => make("tr", { className: place === State.place ? "go on" : "go", onclick: () => choose(place) },
    cell(nameOf(each)), cell(bytes(each.peak_bytes), "n"), cell(bytes(each.footprint_bytes), "n"), make("td", { className: "w" }, stripe(each.categories_at_peak, most))));
  const heads = [[say("column.rank"), ""], [say("column.peak"), "n"], [say("column.footprint"), "n"], [say("column.content"), ""]];
  section.replaceChildren(make("h2", {}, say("ranks")), make("p", { className: "hint" }, say("ranks-hint")), table(heads, lines));
  $("ranks-nav").replaceChildren(...(Page.ranks.length < 2 ? [] : Page.ranks.map((each, place) => make("button", {
    type: "button", "aria-pressed": String(place === State.place), textContent: nameOf(each), onclick: () => choose(place) }))));
}

function drawGroups() {
  for (const [id, column] of [["layers", "layer"], ["parameters", "parameter"]]) {
    const groups = rank()[`by_${column}`], most = Math.max(1, ...groups.map((group) => group.bytes));
    const lines = groups.map(({ key, bytes: size, count, categories: contents }) => make("tr", {},
      cell(bytes(size), "n"), cell(whole(count), "n"), make("td", { className: "w" }, ...broken(key || say(Page.colours ? `content.${Object.keys(contents)[0]}` : "outside"))), make("td", {}, stripe(contents, most))));
    const heads = [[say("column.size"), "n"], [say("column.count"), "n"], [say(`column.${column}`), ""], [say("column.content"), ""]];
    $(id).hidden = !groups.length;
    $(id).replaceChildren(make("h2", {}, say(id)), table(heads, lines));
  }
}

function drawActivations() {
  const { activations_by_layer: activations } = rank(), section = $("activations");
  section.hidden = !activations.some(({ layer }) => layer);
  const most = Math.max(1, ...activations.map((each) => each.bytes));
  const lines = activations.map(({ layer, bytes: size, count }) => make("tr", {},
    cell(layer || say("outside"), "w"), cell(bytes(size), "n"), cell(whole(count), "n"), make("td", {}, stripe({ activations: size }, most))));
  const heads = [[say("column.layer"), ""], [say("column.size"), "n"], [say("column.count"), "n"], ["", ""]];
  section.replaceChildren(make("h2", {}, say("activations")),
    make("p", { className: "hint" }, say("activations-hint")), table(heads, lines));
}

function drawComparison() {
  const section = $("compare");
  section.hidden = !Page.comparison;
  if (!Page.comparison) return;
  const parts = Page.comparison.flatMap((pair) => {
    const name = pair.rank === null ? Page.source.split("/").pop() : say("rank", { rank: pair.rank });
    const lines = pair.changes.map(({ operator, where, category: content, before_bytes: before, after_bytes: after }) => make("tr", {},
      cell(signed(after - before), after > before ? "n grow" : "n shrink"), cell(bytes(before), "n"), cell(bytes(after), "n"),
      contentCell(content), cell(operator, "w"), placeCell(where)));
    const heads = [["change", "n"], ["before", "n"], ["after", "n"], ["content", ""], ["operator", ""], ["where", ""]]
      .map(([key, kind]) => [say(`column.${key}`), kind]);
    const change = { rank: name, before: bytes(pair.before_bytes), after: bytes(pair.after_bytes), change: signed(pair.after_bytes - pair.before_bytes) };
    const most = Math.max(1, pair.before_bytes, pair.after_bytes);
    const sides = [["before", pair.was, pair.before_bytes], ["now", pair.now, pair.after_bytes]].map(([key, contents, size]) =>
      make("tr", {}, cell(say(key)), cell(bytes(size), "n"), make("td", { className: "w" }, stripe(contents, most))));
    return [make("p", {}, say("compare-peaks", change)), table([], sides), make("p", {}), table(heads, lines)];
  });
  section.replaceChildren(make("h2", {}, say("compare")), ...parts);
}
