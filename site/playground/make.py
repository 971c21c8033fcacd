"""Build the playground: ``python site/playground/make.py [FOLDER]``, then serve that folder, such as with ``python -m http.server``.

It needs Node.js with npm, and ms-tune with PyYAML in this Python. Once npm has Pyodide in its cache it needs no network.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = (
    "index.html",
    "style.css",
    "page.mjs",
    "findings.mjs",
    "memory.mjs",
    "link.mjs",
    "texts.mjs",
    "worker.mjs",
    "icon.svg",
)
PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
MOST_BYTES = 20 * 10**6  # of the whole folder
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of all files in the archive: a build gives the same bytes again


def main(folder: Path) -> None:
    """Build the page into a folder, which is replaced."""
    pyodide = install_pyodide()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "pyodide").mkdir(parents=True)
    for name in PAGE:
        shutil.copy(HERE / name, folder)
    for name in PYODIDE:
        shutil.copy(pyodide / name, folder / "pyodide")
    with tempfile.TemporaryDirectory() as scratch:
        _lay_out(Path(scratch))
        subprocess.run(["node", HERE / "compile.mjs", pyodide, scratch], check=True)
        _write_archive(Path(scratch), folder / "ms-tune.zip")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if size > MOST_BYTES:
        message = f"{size:,} bytes are too much for a page"
        raise SystemExit(message)
    print(f"{folder}: {size / 10**6:.1f} MB; serve it with: python -m http.server --directory {folder}")


def install_pyodide() -> Path:
    """Return the folder of Pyodide in the version of the lock file; npm installs it if it is missing.

    Raises:
        OSError: npm is missing.
        subprocess.CalledProcessError: npm has no Pyodide in its cache, and no network.
    """
    found = HERE / "node_modules" / "pyodide"
    wanted = json.loads((HERE / "package-lock.json").read_text("utf-8"))["packages"]["node_modules/pyodide"]["version"]
    about = found / "package.json"
    if not about.is_file() or json.loads(about.read_text("utf-8"))["version"] != wanted:
        subprocess.run(["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund"], cwd=HERE, check=True)
    return found


def _lay_out(scratch: Path) -> None:
    """Copy all that runs in the browser: the package as in a wheel, PyYAML without its compiled part, the page's engine."""
    left_out = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "_data")
    shutil.copytree(ROOT / "ms_tune", scratch / "ms_tune", ignore=left_out)
    shutil.copytree(Path(yaml.__file__).parent, scratch / "yaml", ignore=left_out)
    shutil.copytree(ROOT / "yaml_templates", scratch / "ms_tune" / "_data" / "yaml_templates")
    shutil.copytree(HERE / "examples", scratch / "examples")
    shutil.copy(HERE / "engine.py", scratch)
    _parse_checklists(scratch / "ms_tune" / "_data" / "checklists")


def _parse_checklists(folder: Path) -> None:
    """Write the checklists as JSON only, as ``hatch_build.py`` does for a wheel."""
    sys.path.insert(0, str(ROOT))
    from ms_tune.lint.checklist import content_key  # noqa: PLC0415 - the package of this checkout
    from ms_tune.lint.rows import read_rows, rows_as_json  # noqa: PLC0415 - as above

    shutil.copytree(ROOT / "checklists", folder)
    for path in (*folder.glob("*.yaml"), *folder.glob("code/*.yaml")):
        content = path.read_bytes()
        path.with_suffix(".json").write_text(rows_as_json(content_key(content), *read_rows(content)), encoding="utf-8")
        path.unlink()


def _write_archive(scratch: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(one for one in scratch.rglob("*") if one.is_file()):
            entry = zipfile.ZipInfo(file.relative_to(scratch).as_posix(), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "playground")
