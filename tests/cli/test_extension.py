"""Test the VS Code extension: it compiles, packs, and can be loaded; its settings have texts in both languages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

EXTENSION = Path(__file__).resolve().parents[2] / "editors" / "vscode"
# Loads the extension with a stand-in for VS Code, of which every part is a class without methods.
LOAD = """
const Module = require("module"), load = Module._load;
const any = new Proxy(class {}, { get: (of, name) => (name === "prototype" ? of.prototype : any), apply: () => any });
Module._load = (name, ...rest) => (name === "vscode" ? any : load(name, ...rest));
console.log(JSON.stringify(Object.keys(require(process.argv[1])).sort()));
"""


def test_every_setting_has_a_text_in_both_languages_and_is_read() -> None:
    manifest = (EXTENSION / "package.json").read_text(encoding="utf-8")
    english, chinese = (
        json.loads((EXTENSION / f"package.nls{suffix}.json").read_text(encoding="utf-8")) for suffix in ("", ".zh-cn")
    )
    assert set(re.findall(r"%(\w+)%", manifest)) == english.keys() == chinese.keys()
    code = (EXTENSION / "src" / "extension.ts").read_text(encoding="utf-8")
    settings = json.loads(manifest)["contributes"]["configuration"]["properties"]
    assert {
        f"msTune.{name}" for name in re.findall(r"""["'](path|language|chip|deviceMemory|arguments)["']""", code)
    } == set(settings)
    lock = json.loads((EXTENSION / "package-lock.json").read_text(encoding="utf-8"))
    assert not [name for name, one in lock["packages"].items() if "resolved" in one]  # it names no registry


@pytest.mark.slow
@pytest.mark.more  # half a minute of npm
def test_it_compiles_packs_and_loads(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path / "editors" / "vscode"
    ignored = shutil.ignore_patterns("node_modules", "dist", "*.vsix", "LICENSE")
    shutil.copytree(EXTENSION, folder, ignore=ignored)
    shutil.copy(EXTENSION.parents[1] / "LICENSE", tmp_path)
    installed = subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if installed.returncode:
        pytest.skip(f"the packages cannot be had: {installed.stderr[-200:]}")
    subprocess.run(["npm", "run", "package"], cwd=folder, capture_output=True, check=True)
    with zipfile.ZipFile(next(folder.glob("*.vsix"))) as packed:
        packed.extractall(tmp_path / "packed")
    names = {one.name for one in (tmp_path / "packed" / "extension").iterdir()}
    assert {"LICENSE.txt", "readme.md", "README.zh.md", "icon.png", "package.nls.zh-cn.json"} <= names
    assert "src" not in names
    main = tmp_path / "packed" / "extension" / "dist" / "extension.js"
    loaded = subprocess.run(["node", "-e", LOAD, str(main)], capture_output=True, text=True, check=True)
    assert json.loads(loaded.stdout) == ["activate", "deactivate"]
