"""Test the Python API: its page unchanged, its signatures, its errors, and the cost of importing it."""

from __future__ import annotations

import doctest
import inspect
import re
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import ms_tune
from ms_tune import DryrunRequest, LintRequest, MsTuneError, PlanRequest, WhatIfRequest, errors
from ms_tune.memory.diff import compare_reports
from ms_tune.memory.plan import plan_blocks
from ms_tune.memory.what_if import replay_run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "python-api.md"
RUN = Path(__file__).parent / "data" / "memory_tracker" / "asc2"
FUNCTIONS = list(filter(inspect.isfunction, (getattr(ms_tune, name) for name in ms_tune.__all__)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder that contains a run."""
    shutil.copytree(RUN, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_the_page_is_right() -> None:
    outcome = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert outcome.attempted > 15
    assert outcome.failed == 0


def test_the_page_names_every_function() -> None:
    assert set(re.findall(r"`(\w+)\(", PAGE.read_text("utf-8"))) >= {function.__name__ for function in FUNCTIONS}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_function_is_typed_and_documented(function: typing.Any) -> None:  # noqa: ANN401 - any function of the module
    signature, text = inspect.signature(function), inspect.getdoc(function) or ""
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in signature.parameters.values())
    for name in signature.parameters:
        assert re.search(rf"^    {name}: ", text, re.MULTILINE), name
    assert "Example::\n\n    " in text
    for name in re.findall(r"^    (\w+Error): ", text, re.MULTILINE):
        assert hasattr(errors, name) or name == "ValueError"


@pytest.mark.parametrize("name", ms_tune.__all__)
def test_what_the_package_shows(name: str) -> None:
    assert name in dir(ms_tune)
    shown = getattr(ms_tune, name)
    if name.endswith("Request"):
        assert shown.__hash__ is not None  # it is immutable
        reported = "".join(inspect.getdoc(part) or "" for part in inspect.getmro(shown)[:-1])
        assert all(field in reported for field in inspect.signature(shown).parameters)
    assert name in vars(ms_tune) or getattr(ms_tune, name) is shown


def test_what_the_package_does_not_have() -> None:
    with pytest.raises(AttributeError, match="absent"):
        _ = getattr(ms_tune, "absent")  # noqa: B009 - mypy knows that there is none


def test_importing_it_imports_no_engine() -> None:
    code = "import sys, ms_tune; dir(ms_tune); print(*sorted(m for m in sys.modules if m.startswith('ms_tune')))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["ms_tune", "ms_tune.version"]


@pytest.mark.usefixtures("folder")
def test_fixes_are_written_only_where_asked_for() -> None:
    config = Path("train.yaml")
    old = "runner_config: {batch_size: 1}\nlr_schedule: {type: CosineWithWarmUpLR, learning_rate: 1e-5}\n"
    config.write_text(old)
    report = ms_tune.lint_files(config, request=LintRequest(fix="safe"))
    assert (config.read_text(), report.files[0].original, report.summary.fixed) == (old, old, 1)
    written = ms_tune.lint_files(config, request=LintRequest(fix="safe", write=True))
    assert config.read_text() == written.files[0].text == report.files[0].text != old


@pytest.mark.usefixtures("folder")
def test_the_sub_commands_of_memory() -> None:
    plan = plan_blocks(Path("run"), PlanRequest(seconds=0.2, capacity=1), lambda _progress: None)
    assert plan.is_valid
    assert plan.fits_capacity is False
    assert plan.plan.lower_bound <= plan.plan.height
    what_if = replay_run(Path("run"), WhatIfRequest(max_memory=2**35), lambda _what, _share: None)
    assert what_if.limit_by == "user"
    assert what_if.allocation_count == len(what_if.names)
    report = ms_tune.analyse_memory("run")
    assert not compare_reports(report, report).ranks[0].changes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package"), [("analyse_memory", "NumPy"), ("fit_config", "NumPy"), ("FitRequest", "NumPy")]
)
def test_a_missing_extra_is_named(name: str, package: str) -> None:
    code = f"import sys; sys.modules['numpy'] = None; from ms_tune import {name}"
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert f"MissingExtraError: 'ms_tune.{name}' requires {package}, which is not installed" in done.stderr


def test_an_unknown_config_of_dryrun_is_reported() -> None:
    with pytest.raises(MsTuneError, match="absent"):
        ms_tune.dryrun_job(DryrunRequest(Path("absent.yaml"), layers=1))
