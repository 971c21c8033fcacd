// Findings under their lines, fixes as a diff, the explanation of a check. Texts of users are only ever text nodes.
import { say } from "./texts.mjs";

const AROUND = 2; // lines shown before and after a finding
const FIRST = 100; // findings shown at once
const LONGEST = 400; // characters of a line

/** Create an element; strings among its children become text nodes, null is left out. */
export function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.flat().filter((each) => each !== null && each !== undefined));
  return element;
}

export const linesOf = (text) => text.split(/\r\n|\r|\n/);

export function countWords(findings) {
  const counted = ["error", "warning", "info"].map((level) => [level, findings.filter((one) => one.severity === level).length]);
  const words = counted.filter(([, count]) => count > 0).map(([level, count]) => say(`count.${level}`, { count }));
  return words.length > 0 ? words.join(say("comma")) : say("count.none");
}

export function showErrors(errors) {
  return errors.map((one) => make("div", { className: "card error" },
    make("p", {}, make("b", { className: "level" }, say("error")), " ", one.message),
    one.hint ? make("p", { className: "remark" }, make("b", {}, say("error.hint")), " ", one.hint) : null));
}

export function showDefect(trace) {
  return [make("div", { className: "card error" }, make("p", {}, say("defect")), make("pre", { tabIndex: 0 }, trace))];
}

/** Return the elements for the answer to `lint`: each finding below the line that it is about. */
export function showFindings(answer, text, { go, explain }) {
  const errors = showErrors(answer.failed);
  const remarks = [...answer.notes, ...answer.skipped].map((note) => make("p", { className: "note" }, note));
  if (answer.findings.length === 0) return [...errors, ...remarks, errors.length + remarks.length === 0 ? make("p", {}, say("no-findings")) : null].filter(Boolean);
  const listing = make("div", { className: "listing" });
  const show = (most) => listing.replaceChildren(...showLines(answer.findings.slice(0, most), linesOf(text), go, explain),
    ...(answer.findings.length > most
      ? [make("button", { type: "button", onclick: () => show(Infinity) }, say("more-findings", { count: answer.findings.length - most }))]
      : []));
  show(FIRST);
  return [...errors, ...remarks, listing];
}

function showLines(findings, lines, go, explain) {
  const byLine = new Map();
  for (const one of findings) byLine.set(one.line, [...(byLine.get(one.line) ?? []), one]);
  const elements = [];
  let last = 0; // the last line that is shown
  const code = (number, marked) => elements.push(make("div", { className: "code" },
    make("button", { type: "button", className: "number", tabIndex: marked ? 0 : -1, "aria-label": say("go-to-line", { line: number }), onclick: () => go(number) }, String(number)),
    make("code", {}, markedLine(lines[number - 1] ?? "", number, marked ?? []))));
  const numbers = [...byLine.keys()].sort((a, b) => a - b);
  numbers.forEach((number, index) => {
    const from = Math.max(number - AROUND, last + 1);
    if (from > last + 1) elements.push(make("div", { className: "gap", "aria-hidden": "true" }, "⋯"));
    for (let before = from; before < number; before += 1) code(before);
    code(number, byLine.get(number));
    elements.push(...byLine.get(number).map((one) => showFinding(one, explain)));
    last = Math.min(number + AROUND, (numbers[index + 1] ?? Infinity) - 1, lines.length);
    for (let after = number + 1; after <= last; after += 1) code(after);
  });
  return elements;
}

/** Mark the places of findings in a line; columns count characters, not UTF-16 units, from 1. */
function markedLine(line, number, findings) {
  const letters = Array.from(line);
  const spans = findings
    .map((one) => ({ start: one.column - 1, end: one.end_line === number ? one.end_column - 1 : letters.length, level: one.severity }))
    .sort((a, b) => a.start - b.start);
  const first = spans[0]?.start ?? 0;
  let at = letters.length > LONGEST ? Math.max(0, first - 40) : 0; // a long line is shown from its first finding on
  const end = Math.min(letters.length, at + LONGEST);
  const parts = at > 0 ? ["…"] : [];
  for (const span of spans) {
    const [start, stop] = [Math.max(span.start, at), Math.min(Math.max(span.end, span.start + 1), end)];
    if (start >= stop) continue;
    parts.push(letters.slice(at, start).join(""), make("mark", { className: span.level }, letters.slice(start, stop).join("")));
    at = stop;
  }
  return [...parts, letters.slice(at, end).join(""), end < letters.length ? "…" : ""];
}

function showFinding(one, explain) {
  const remarks = [
    one.consequence && ["consequence", one.consequence.text],
    one.help && ["help", one.help],
    one.fix ? ["fix", one.fix.safe ? one.fix.title : say("fix.unsafe", { title: one.fix.title })] : one.unfixable && ["no-fix", one.unfixable],
  ];
  return make("article", { className: `card ${one.severity}` },
    make("p", {},
      make("b", { className: "level" }, say(`level.${one.severity}`)), " ",
      make("button", { type: "button", className: "rule", onclick: () => explain(one.name) }, `${one.id} ${one.name}`)),
    make("p", { className: "message" }, one.message),
    make("dl", {}, remarks.filter(Boolean).flatMap(([label, words]) => [make("dt", {}, say(label)), make("dd", {}, words)])),
    one.related.length > 0 ? make("ul", {}, one.related.map((other) => make("li", {}, `${say("go-to-line", { line: other.line })}: ${other.message}`))) : null);
}

/** Return the elements for the answer to `fix`. */
export function showFixes(answer, apply) {
  if (answer.count === 0) return [make("p", {}, say("no-fixes"))];
  const kinds = { "+": "added", "-": "removed", "@": "place" };
  const lines = answer.diff.slice(2).map((line) => make("span", { className: kinds[line[0]] ?? "" }, `${line}\n`));
  return [make("pre", { className: "diff", tabIndex: 0 }, lines), make("button", { type: "button", className: "main", onclick: () => apply(answer.text) }, say("apply"))];
}

/** Return the elements of the dialog for the answer to `explain`. */
export function showRule(rule) {
  const example = (label, code) => (code ? [make("h3", {}, say(label)), make("pre", { tabIndex: 0 }, code)] : []);
  return [
    make("h2", { id: "rule-title" }, rule.title),
    make("p", { className: "note" }, `${rule.id} ${rule.name}`),
    make("h3", {}, say("why")), make("p", {}, rule.why),
    make("h3", {}, say("how-to-fix")), make("p", {}, rule.help),
    ...example("bad", rule.bad), ...example("good", rule.good),
  ];
}
