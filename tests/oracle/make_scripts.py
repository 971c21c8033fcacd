"""Record the programs that public launch scripts of MindSpeed-LLM and MindSpeed-MM start, by ms-tune: ``tests/data/launch_scripts.json``.

    MS_TUNE_LAUNCH_SCRIPTS=FOLDER python -m tests.oracle.make_scripts

The folder has ``MindSpeed-LLM/examples`` and ``MindSpeed-MM/examples`` of the repositories Ascend/MindSpeed-LLM and
Ascend/MindSpeed-MM. The scripts themselves are not in this repository: each is identified by the digest of its text.
The first answers are those of an earlier reader, an interpreter of nearly all of bash that was compared with bash on
random scripts; both readers agree on all of these scripts, in every word and position.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.source.shell.read import Launch, read_launches

if TYPE_CHECKING:
    from ms_tune.source.shell.values import Argument

DATA = Path(__file__).parents[1] / "data" / "launch_scripts.json"
VARIABLE = "MS_TUNE_LAUNCH_SCRIPTS"


def scripts_in(folder: Path) -> Iterator[Path]:
    """Return the launch scripts of both repositories."""
    for name in ("MindSpeed-LLM", "MindSpeed-MM"):
        yield from sorted((folder / name / "examples").rglob("*.sh"))


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def answers_about(path: Path) -> list[list[str]]:
    """Return each program that a script starts: the launcher with its options, the program, the arguments, and their lines.

    Unknown words are ``?reason:name``. Successive arguments of one line share its number: ``12x4 13x2``.
    """
    return [_answer(launch) for launch in read_launches(path).launches]


def _answer(launch: Launch) -> list[str]:
    options = " ".join(f"{name}={_text(word) if word else ''}" for name, word in launch.options.items())
    lines = (word.place.span.line for word in launch.arguments)
    runs = " ".join(f"{line}x{len(list(several))}" for line, several in groupby(lines))
    words = " ".join(map(_text, launch.arguments))
    return [f"{launch.launcher.name} {options}".strip(), _text(launch.program) if launch.program else "", words, runs]


def _text(word: Argument) -> str:
    return "".join(
        piece.text if piece.unknown is None else f"?{piece.unknown.reason.value}:{piece.unknown.name}"
        for piece in word.pieces
    )


def main() -> None:
    folder = Path(os.environ[VARIABLE])
    found = {
        path.relative_to(folder).as_posix(): [digest_of(path), *answers_about(path)] for path in scripts_in(folder)
    }
    rows = (f" {json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in found.items())
    DATA.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
