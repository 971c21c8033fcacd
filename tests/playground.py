"""Texts that the playground is tried with, and the answers of the commands to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
_COMMAND = """
import contextlib, io, json, sys
from ms_tune.cli.main import main
def said(*words):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        main(words)
    return json.loads(out.getvalue() or "null")
answers = [[said(command, "--json", "--lang", language, name) for command in ("lint", "check", "normalize-recompute")]
           for name, language in json.load(sys.stdin)]
print(json.dumps(answers))
"""
LANGUAGES = ("en", "zh")


def inputs() -> dict[str, str]:
    """Return a dozen texts by file name: sound and wrong configs of all dialects, scripts, code, and other files."""
    files = [*(ROOT / "site" / "playground" / "examples").iterdir(), *(ROOT / "yaml_templates").rglob("*_8b_*.yaml")]
    files += [
        ROOT / "examples" / "out_of_memory.yaml",
        ROOT / "yaml_templates" / "mindformers" / "mixtral_8x7b_swap.yaml",
    ]
    texts = {file.name: file.read_text("utf-8") for file in sorted(files)}
    mistakes = texts["mistakes.yaml"]
    others = {
        "broken.yaml": mistakes.replace("seed: 42", "seed 42"),
        "twice.yaml": f"{mistakes}\nseed: 43\nrecomput_config: {{recompute: [1]}}\n# 各层：𠮷\n",
        "windows.sh": texts["pretrain.sh"].replace("\n", "\r\n"),
        "job.env": "export HCCL_BUFFSIZE=abc\nASCEND_LAUNCH_BLOCKING=1\n",
        "foreign.yaml": "services: {web: {image: nginx}}\n",
        "markup.yaml": f"{mistakes}\n<img src=x onerror=alert(1)>: '<script>alert(1)</script>'\n",
        "empty.yaml": "",
    }
    return {**texts, **others}


def answers_of_commands(folder: Path) -> dict[tuple[str, str], list[Any]]:
    """Return what `lint`, `check` and `normalize-recompute` say about each input, where no framework is installed, as in a browser."""
    for name, text in inputs().items():
        (folder / name).write_bytes(text.encode())
    packages = folder / "packages"
    packages.mkdir()
    (packages / "yaml").symlink_to(Path(yaml.__file__).parent)
    asked = [(name, language) for name in inputs() for language in LANGUAGES]
    done = subprocess.run(
        [sys.executable, "-S", "-c", _COMMAND],
        input=json.dumps(asked),
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{packages}"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(asked, json.loads(done.stdout), strict=True))
