"""Write ``releases`` of ``ms_tune/facts/data/stack.json``: the documented versions for each release of MindSpeed-Core-MS.

Run by hand, with ``MS_TUNE_CORE_MS_SOURCES`` naming a folder that has ``r0.3.0``, ``r0.4.0``, ...: ``python -m
tests.oracle.make_stack``. It reads the branches that the conversion script clones, and the release of MindSpore from
README.md, if there is a number.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from ms_tune.facts import query

SOURCES = "MS_TUNE_CORE_MS_SOURCES"
RELEASES = (
    "r0.3.0",
    "r0.4.0",
    "r0.5.0",
)  # the first release that clones its requirements; earlier ones clone the newest versions
_SCRIPTS = ("auto_convert.sh llm", "auto_convert_llm.sh")
_PARTS = ("MindSpeed-LLM", "MindSpeed", "Megatron-LM", "MSAdapter")
_CLONED = re.compile(r"git clone \S*/(?P<part>[\w-]+)\.git -b (?P<branch>\S+)")
_MINDSPORE = re.compile(r"^\|\s*MindSpore\s*\|\s*\[(\d[\d.]*)\]", re.MULTILINE)


def make_rows(sources: Path) -> dict[str, dict[str, str]]:
    """Return the rows, by release."""
    return {release: _row(sources / release) for release in RELEASES}


def _row(tree: Path) -> dict[str, str]:
    script = next(one for one in _SCRIPTS if (tree / one.partition(" ")[0]).is_file())
    text = (tree / script.partition(" ")[0]).read_text("utf-8")
    cloned = {one["part"]: one["branch"] for one in _CLONED.finditer(text)}
    row = {"script": script, **{part: cloned[part] for part in _PARTS}}
    found = _MINDSPORE.search((tree / "README.md").read_text("utf-8"))
    return {**row, "MindSpore": found[1]} if found else row


def written(content: dict[str, Any]) -> str:
    """Return the data file's text: one part and release per line."""
    rows = []
    for key, value in content.items():
        if isinstance(value, list) and isinstance(value[0], dict):
            lines = ",\n".join(f"  {json.dumps(one)}" for one in value)
            rows.append(f" {json.dumps(key)}: [\n{lines}\n ]")
        elif isinstance(value, dict) and all(isinstance(one, dict) for one in value.values()):
            lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in value.items())
            rows.append(f" {json.dumps(key)}: {{\n{lines}\n }}")
        else:
            rows.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    path = Path(query.__file__).with_name("data") / "stack.json"
    kept = json.loads(path.read_text("utf-8"))
    path.write_text(written({**kept, "releases": make_rows(Path(os.environ[SOURCES]))}), "utf-8")
