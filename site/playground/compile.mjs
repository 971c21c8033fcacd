// node compile.mjs PYODIDE FOLDER: replaces the sources of a folder by bytecode of Pyodide's own Python, so that a browser need not compile them.
import { pathToFileURL } from "node:url";
import { resolve } from "node:path";

const [pyodide, folder] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(resolve(pyodide, "pyodide.mjs")));
const python = await loadPyodide({ indexURL: `${pyodide}/` });
python.FS.mkdir("/app");
python.FS.mount(python.FS.filesystems.NODEFS, { root: folder }, "/app");
python.runPython(`
import compileall
import re
from pathlib import Path

examples = re.compile("/examples/")
if not compileall.compile_dir("/app", quiet=1, legacy=True, rx=examples):
    raise SystemExit("not compiled")
for source in Path("/app").rglob("*.py"):
    if not examples.search(str(source)):
        source.unlink()
`);
