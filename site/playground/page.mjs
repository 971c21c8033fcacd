// The page: reads the text and the settings, asks the worker, shows its answers.
import { countWords, linesOf, make, showDefect, showErrors, showFindings, showFixes, showRule } from "./findings.mjs";
import { pack, unpack } from "./link.mjs";
import { showMemory, showPlan } from "./memory.mjs";
import { say, setLanguage } from "./texts.mjs";

const PAUSE = 100; // ms after the last key, before the text is checked
const LONG = 5000; // ms after which a check can be stopped
const ASKS = ["lint", "check", "plan", "fix"];
const EXAMPLES = { "mistakes.yaml": "example.mistakes", "pretrain.sh": "example.script", "train.py": "example.python" };
const THEMES = ["auto", "light", "dark"];
const part = (id) => document.getElementById(id);
const area = part("text");

const state = {
  language: navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en",
  theme: "auto",
  original: null, // the text of a file or link, whose line breaks the text area does not keep
  id: 0, // of the last question
  stopped: false, // by the user: the text is not checked again at once
  began: 0, // when that question was asked
  most: 4 * 2 ** 20, // bytes of a text; ms-tune's own limit replaces it
  page: null, // the answer to `describe_page`
  answers: {}, // the last answers, by question
  texts: new Map(), // the text of each question that is not answered yet
  message: null, // the last status, as a function, to say it again in the other language
};
let worker = null;
let timer = 0;
let alarm = 0;

// ---- the worker

function start() {
  worker?.terminate();
  state.page = null;
  const source = `import ${JSON.stringify(new URL("worker.mjs", import.meta.url).href)};`;
  const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  worker = new Worker(address, { type: "module" });
  worker.onmessage = ({ data }) => receive(data);
  worker.onerror = (event) => receive({ failed: event.message || "worker.mjs" });
}

function receive(data) {
  if (data.progress) tell(() => say(`loading.${data.progress}`));
  if (data.failed) tell(() => say("failed", { reason: data.failed }));
  if (data.ready) {
    state.page = JSON.parse(data.ready);
    state.most = state.page.most_bytes;
    fillChoices();
    if (state.stopped) tell(() => say("stopped"));
    else if (area.value === "" && state.id === 0) choose("mistakes.yaml");
    else check();
    state.stopped = false;
  }
  if (data.ask === "explain") openRule(JSON.parse(data.answer));
  else if (data.ask && data.id === state.id) show(data.ask, JSON.parse(data.answer));
}

function currentText() {
  return state.original !== null && area.value === state.original.replace(/\r\n?/g, "\n") ? state.original : area.value;
}

function settings() {
  return { name: part("name").value.trim(), release: part("release").value, chip: part("chip").value, devices: part("devices").value };
}

function check() {
  clearTimeout(timer);
  if (state.page === null) return;
  const text = currentText();
  state.id += 1;
  if (new Blob([text]).size > state.most) {
    for (const ask of ASKS) hide(ask);
    tell(() => say("too-long", { size: state.most / 2 ** 20 }));
    return;
  }
  const { name, release, chip, devices } = settings();
  const question = { language: state.language, text, name, release, chip, devices: Math.min(Number.parseInt(devices, 10) || 0, 10 ** 6), unsafe: part("unsafe").checked };
  state.texts = new Map([[state.id, text]]);
  state.began = performance.now();
  clearTimeout(alarm);
  alarm = setTimeout(() => {
    part("stop").hidden = false;
    tell(() => say("slow"));
  }, LONG);
  document.body.dataset.state = "checking";
  worker.postMessage({ id: state.id, asks: ASKS, question });
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(check, PAUSE);
}

// ---- the answers

const SECTIONS = { lint: "findings", check: "memory", fix: "fixes", plan: "plan" };

function hide(ask) {
  part(SECTIONS[ask]).hidden = true;
}

function show(ask, answer) {
  state.answers[ask] = answer;
  const section = part(SECTIONS[ask]);
  const elements = elementsFor(ask, answer);
  section.hidden = elements.length === 0;
  section.querySelector(":scope > div").replaceChildren(...elements);
  if (ask === "lint") {
    document.body.dataset.milliseconds = String(Math.round(performance.now() - state.began));
    if (answer.findings) markNumbers(answer.findings);
    tell(() => (answer.findings ? say("done", { counts: countWords(answer.findings), name: answer.name }) : say("error")));
  }
  if (ask === ASKS.at(-1)) {
    clearTimeout(alarm);
    part("stop").hidden = true;
    document.body.dataset.state = "done";
  }
}

function elementsFor(ask, answer) {
  if (answer.defect) return ask === "lint" || !state.answers.lint?.defect ? showDefect(answer.defect) : [];
  if (answer.error) return ask === "lint" || (!state.answers.lint?.error && ask === "check" && state.answers.lint?.failed?.length === 0 && state.answers.lint.skipped.length === 0) ? showErrors([answer.error]) : [];
  if (ask === "lint") return showFindings(answer, state.texts.get(state.id) ?? currentText(), { go: goTo, explain });
  if (ask === "check") return showMemory(answer);
  if (ask === "plan") return showPlan(answer);
  const fixable = state.answers.lint?.findings?.some((one) => one.fix);
  return fixable ? showFixes(answer, applyFixes) : [];
}

function applyFixes(text) {
  setText(text);
  tell(() => say("applied"));
  check();
  area.focus();
}

function explain(rule) {
  worker.postMessage({ keep: true, id: 0, asks: ["explain"], question: { language: state.language, rule } });
}

function openRule(rule) {
  const dialog = part("rule");
  dialog.querySelector("div").replaceChildren(...(rule.defect ? showDefect(rule.defect) : showRule(rule)));
  if (!dialog.open) dialog.showModal();
}

function tell(words) {
  state.message = words;
  part("status").textContent = words();
}

// ---- the text

function setText(text) {
  state.original = text;
  area.value = text;
  drawNumbers();
}

function drawNumbers(levels = new Map()) {
  const count = linesOf(area.value).length;
  const numbers = Array.from({ length: count }, (_, index) => String(index + 1));
  const pre = part("numbers").firstElementChild;
  if (levels.size === 0) {
    pre.textContent = numbers.join("\n");
    return;
  }
  const pieces = [];
  let from = 0;
  for (const [line, level] of [...levels].sort(([a], [b]) => a - b)) {
    if (line > count) continue;
    pieces.push(numbers.slice(from, line - 1).map((one) => `${one}\n`).join(""), make("b", { className: level }, numbers[line - 1]), "\n");
    from = line;
  }
  pre.replaceChildren(...pieces, numbers.slice(from).join("\n"));
}

function markNumbers(findings) {
  const order = ["info", "warning", "error"];
  const levels = new Map();
  for (const one of findings) {
    const before = levels.get(one.line);
    if (before === undefined || order.indexOf(one.severity) > order.indexOf(before)) levels.set(one.line, one.severity);
  }
  drawNumbers(levels);
}

function goTo(line) {
  const lines = area.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  area.focus();
  area.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
  const height = Number.parseFloat(getComputedStyle(area).lineHeight);
  area.scrollTop = Math.max(0, (line - 4) * height);
}

async function openFile(file) {
  if (file.size > state.most) {
    tell(() => say("too-long", { size: state.most / 2 ** 20 }));
    return;
  }
  part("name").value = file.name.replace(/[^\w.+-]/g, "_");
  part("example").value = "";
  setText(await file.text());
  check();
}

function choose(name) {
  part("name").value = name;
  setText(state.page.templates[name] ?? state.page.examples[name]);
  check();
}

// ---- the settings

function fillChoices() {
  const option = (value, words) => make("option", { value }, words);
  const keep = (select, children) => {
    const before = select.dataset.wanted ?? select.value;
    delete select.dataset.wanted;
    select.replaceChildren(...children);
    select.value = before;
    if (select.selectedIndex < 0) select.selectedIndex = 0;
  };
  const { frameworks, chips, templates } = state.page;
  const groups = Object.entries(frameworks).map(([label, releases]) => make("optgroup", { label }, releases.map((one) => option(one, `${label} ${one}`))));
  keep(part("release"), [option("", say("automatic")), ...groups]);
  keep(part("chip"), [option("", say("chip.default")), ...chips.map((one) => option(one, one))]);
  keep(part("example"), [
    option("", say("example.none")),
    ...Object.entries(EXAMPLES).map(([name, id]) => option(name, say(id))),
    make("optgroup", { label: say("example.templates") }, Object.keys(templates).map((name) => option(name, name.replace(/\.yaml$/, "")))),
  ]);
  part("version").textContent = say("version", state.page);
}

function writeTexts() {
  setLanguage(state.language);
  document.documentElement.lang = state.language;
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = say(element.dataset.text);
  const button = part("language");
  button.textContent = say("other-language");
  button.lang = state.language === "en" ? "zh" : "en";
  part("theme-name").textContent = say(`theme.${state.theme}`);
  area.setAttribute("aria-label", say("text-label"));
  part("name").placeholder = say("file-name.auto");
  part("devices").placeholder = say("automatic");
  if (state.page !== null) fillChoices();
  if (state.message !== null) part("status").textContent = state.message();
}

async function copyLink() {
  history.replaceState(null, "", await pack(currentText(), settings()));
  try {
    await navigator.clipboard.writeText(location.href);
    tell(() => say("link-copied"));
  } catch {
    tell(() => say("link-in-bar"));
  }
}

async function readLink() {
  try {
    const found = await unpack(location.hash, state.most);
    if (found === null) return;
    const { name, release, chip, devices } = found.settings;
    part("name").value = name.slice(0, 100);
    part("devices").value = devices;
    part("release").dataset.wanted = release;
    part("chip").dataset.wanted = chip;
    setText(found.text);
    if (state.page !== null) {
      fillChoices();
      check();
    }
  } catch {
    tell(() => say("link-damaged"));
  }
}

function remember(name, value) {
  try {
    localStorage.setItem(`ms-tune.${name}`, value);
  } catch { /* not permitted: the choice holds for this visit */ }
}

function recall(name, known) {
  try {
    const value = localStorage.getItem(`ms-tune.${name}`);
    if (known.includes(value)) state[name] = value;
  } catch { /* as above */ }
}

function setTheme() {
  document.documentElement.dataset.theme = state.theme;
  part("theme").setAttribute("aria-pressed", String(state.theme !== "auto"));
}

// ---- what the user does

area.addEventListener("input", () => {
  drawNumbers();
  soon();
});
area.addEventListener("scroll", () => { part("numbers").scrollTop = area.scrollTop; });
for (const id of ["name", "devices"]) part(id).addEventListener("input", soon);
for (const id of ["release", "chip", "unsafe"]) part(id).addEventListener("change", check);
part("example").addEventListener("change", ({ target }) => { if (target.value) choose(target.value); });
part("open").addEventListener("click", () => part("file").click());
part("file").addEventListener("change", ({ target }) => {
  if (target.files[0]) openFile(target.files[0]);
  target.value = "";
});
part("link").addEventListener("click", copyLink);
part("stop").addEventListener("click", () => {
  part("stop").hidden = true;
  state.id += 1;
  clearTimeout(alarm);
  state.stopped = true;
  start();
});
part("language").addEventListener("click", () => {
  state.language = state.language === "en" ? "zh" : "en";
  remember("language", state.language);
  writeTexts();
  check();
});
part("theme").addEventListener("click", () => {
  state.theme = THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length];
  remember("theme", state.theme);
  setTheme();
  writeTexts();
});
part("rule").addEventListener("click", (event) => { if (event.target === part("rule")) part("rule").close(); });
addEventListener("hashchange", readLink);
addEventListener("dragover", (event) => {
  event.preventDefault();
  part("editor").classList.add("dropping");
});
addEventListener("dragleave", (event) => { if (event.relatedTarget === null) part("editor").classList.remove("dropping"); });
addEventListener("drop", (event) => {
  event.preventDefault();
  part("editor").classList.remove("dropping");
  if (event.dataTransfer.files[0]) openFile(event.dataTransfer.files[0]);
});

recall("language", ["en", "zh"]);
recall("theme", THEMES);
setTheme();
writeTexts();
drawNumbers();
tell(() => say("loading.python"));
await readLink();
start();
