// node answer.mjs BUILT QUESTIONS: answers the questions of a file, a JSON list, as the page's worker would; for tests.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { resolve } from "node:path";

const built = resolve(process.argv[2]);
const { loadPyodide } = await import(pathToFileURL(`${built}/pyodide/pyodide.mjs`));
const python = await loadPyodide({ indexURL: `${built}/pyodide/` });
python.FS.mkdirTree("/home/pyodide/app");
python.FS.mkdirTree("/home/pyodide/job");
python.unpackArchive(new Uint8Array(readFileSync(`${built}/ms-tune.zip`)).buffer, "zip", { extractDir: "/home/pyodide/app" });
const answer = python.runPython(`
import os, sys
sys.path.insert(0, "/home/pyodide/app")
os.chdir("/home/pyodide/job")
from engine import answer
answer
`);
const questions = JSON.parse(readFileSync(process.argv[3], "utf8"));
process.stdout.write(JSON.stringify(questions.map((question) => JSON.parse(answer(JSON.stringify(question))))));
