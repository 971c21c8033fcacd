"""Check that every command treats ``.bash`` files like ``.sh`` files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.cli import dryrun
from ms_tune.dryrun.command_tasks import name_of
from ms_tune.lint.runner import SUFFIXES
from ms_tune.source import SCRIPTS
from ms_tune.text import Language


@pytest.mark.parametrize("suffix", SCRIPTS)
def test_dryrun_runs_a_script_and_lint_finds_it(suffix: str) -> None:
    name = f"pretrain{suffix}"
    parsed = dryrun.build_parser(Language.EN).parse_args([name])
    assert (parsed.config, parsed.command) == (None, ("bash", name))
    assert name_of(("bash", name)) == name
    assert suffix in SUFFIXES


def test_no_other_module_says_which_they_are() -> None:
    package = Path(dryrun.__file__).parents[1]
    texts = {path: path.read_text("utf-8") for path in package.rglob("*.py")}
    assert [path.relative_to(package).as_posix() for path, text in texts.items() if '".bash"' in text] == [
        "source/__init__.py"
    ]
