"""Test the completions that the shell offers when the user presses Tab."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("argcomplete")
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "among", "not_among"),
    [
        ("ms-tune ", {"check", "lint", "normalize-recompute", "profile"}, {"what-if"}),
        ("ms-tune norm", {"normalize-recompute"}, {"lint"}),
        ("ms-tune fit --exp", {"--explain", "--export-table"}, {"--table"}),
        ("ms-tune dryrun --engine ", {"local", "ray"}, {"check"}),
        ("ms-tune rule negative-re", {"negative-recompute"}, {"rule"}),
        ("ms-tune init qwen3_3", {"qwen3_32b"}, {"llama2_7b"}),
        ("ms-tune memory what-if --exp", {"--expandable"}, {"--explain"}),
    ],
)
def test_tab_offers(tmp_path: Path, line: str, among: set[str], not_among: set[str]) -> None:
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    script = "from ms_tune.cli.main import entry_point; entry_point()"
    subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, **asked, "PYTHONPATH": str(ROOT)}, check=False
    )
    offered = {one.strip() for one in answer.read_text(encoding="utf-8").split("\n")}
    assert among <= offered
    assert not offered & not_among
