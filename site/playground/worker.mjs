// Runs ms-tune. The page starts it from a blob, so that it has the page's Content Security Policy: nothing can leave this origin.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const here = new URL("./", import.meta.url);
const APP = "/home/pyodide/app";

let latest = null; // the newest questions about the text; those of an older one are dropped
const others = []; // questions that no newer one replaces
let wake = () => {};

self.onmessage = ({ data }) => {
  if (data.keep) others.push(data);
  else latest = data;
  wake();
};

async function load() {
  self.postMessage({ progress: "python" });
  const archive = fetch(new URL("ms-tune.zip", here)).then((response) => {
    if (!response.ok) throw new Error(`ms-tune.zip: ${response.status}`);
    return response.arrayBuffer();
  });
  archive.catch(() => {}); // reported below, once
  const python = await loadPyodide({ indexURL: new URL("pyodide/", here).href, lockFileURL: new URL("pyodide/pyodide-lock.json", here).href });
  self.postMessage({ progress: "ms-tune" });
  python.FS.mkdirTree(APP);
  python.unpackArchive(await archive, "zip", { extractDir: APP });
  return python.runPython(`
import os, sys
sys.path.insert(0, "${APP}")
os.makedirs("/home/pyodide/job")
os.chdir("/home/pyodide/job")
from engine import answer
answer
`);
}

async function run() {
  const answer = await load();
  const ask = (name, question) => answer(JSON.stringify({ ...question, ask: name }));
  self.postMessage({ ready: ask("describe_page", { language: "en" }) });
  for (;;) {
    const asked = others.shift() ?? latest;
    if (asked === null) {
      await new Promise((resolve) => { wake = resolve; });
      continue;
    }
    if (asked === latest) latest = null;
    for (const name of asked.asks) {
      self.postMessage({ id: asked.id, ask: name, answer: ask(name, asked.question) });
      await new Promise((resolve) => setTimeout(resolve)); // newer messages are received here
      if (latest !== null && !asked.keep) break;
    }
  }
}

run().catch((error) => self.postMessage({ failed: String(error) }));
