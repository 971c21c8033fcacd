"""Test options that ``msrun`` and ``torchrun`` refuse, compared with msrun's own parser."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_tune.facts.launchers import launcher
from ms_tune.lint.environment.settings import parse_shell
from tests.lint.code import lint_environment

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic

ID = "MST843"


def lint_script(text: str) -> list[Diagnostic]:
    return [one for one in lint_environment(parse_shell(text, Path("launch.sh"))) if one.id == ID]


def lint_options(line: str) -> list[str]:
    """Return the findings about the launcher's options in a script of one line."""
    return [str(one.message.params.get("name", "more")) for one in lint_script(f"{line}\n")]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("msrun --worker_nums=8 --local_worker_num=8 train.py", ["--worker_nums"]),
        ("msrun --local=8 train.py --worker_nums 8", []),  # cut short, and the program's own
        ("msrun --worker_num=eight train.py", ["--worker_num"]),
        ("msrun --worker_num=4 train.py", ["more"]),  # 8 per machine by default
        ("msrun --worker_num=$N --local_worker_num=16 train.py", []),  # only a run could show it
        ("torchrun --nproc_per_nodes=8 train.py", ["--nproc_per_nodes"]),
        ("torchrun --nproc-per-node 8 train.py", []),
        ("msrun --worker_nums=8 pretrain_gpt.py", []),  # a check of its dialect reports that
        ("python train.py --worker_nums 8", []),
    ],
)
def test_what_a_launcher_refuses(line: str, names: list[str]) -> None:
    assert lint_options(line) == names


def test_it_is_reported_where_the_value_is() -> None:
    (finding,) = lint_script("N=x\nmsrun --worker_num=$N train.py\n")
    assert (finding.location.line, finding.location.column) == (1, 3)


VALUES = ["8", "16", "0", "-1", "x", "8.0", "1_0", "True", "False", "3", "4", "", "+2", "yes"]


@pytest.mark.slow
def test_against_the_parser_of_the_installed_msrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that its parser refuses is reported, and nothing that it accepts, except two counts that are compared later."""
    if importlib.util.find_spec("mindspore") is None:
        pytest.skip("MindSpore is not installed")
    from mindspore.parallel.cluster import run  # noqa: PLC0415 - slow, and only here

    draw, seen = random.Random(1), [0, 0]  # noqa: S311 - cases, no secrets
    names = [name for name in launcher("msrun").values if not name.startswith("bind_")]
    for _ in range(300):
        spelled = [
            draw.choice([name, name, f"{name}s", name[:-1], name[: len(name) // 2]]) for name in draw.sample(names, 2)
        ]
        words = [f"--{name}={draw.choice(VALUES)}" for name in spelled]
        monkeypatch.setattr(sys, "argv", ["msrun", *words, "train.py", "--x", "1"])
        refused = False
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                run.get_args()
            except (SystemExit, SyntaxError):  # `--join=` raises the latter
                refused = True
        ours = [name for name in lint_options(f"msrun {' '.join(words)} train.py --x 1") if name != "more"]
        ours = [name for name in ours if not (name == "--worker_num" and not refused)]  # none at all is refused later
        assert bool(ours) == refused, words
        seen[refused] += 1
    assert min(seen) > 30
