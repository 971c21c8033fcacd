"""Compare the harvested stops of MindSpeed-LLM, MindSpeed and Megatron-LM with the code that they are from.

What the checklist refuses must stop the real programs: ``MS_TUNE_ORACLE_SEED`` makes other programs, and
``MS_TUNE_ORACLE_CASES`` more for each row.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from random import Random
from textwrap import dedent

import pytest

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from tests.oracle.make_megatron import SOURCES
from tests.oracle.make_stops import FIGURES, ID, SERVED, harvest, lint_errors, programs
from tests.oracle.megatron_layers import run
from tests.oracle.stops import stops_of

needs_sources = pytest.mark.skipif(SOURCES not in os.environ, reason=f"{SOURCES} names no sources of MindSpeed-LLM")
_SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "7"))
_CASES = int(os.environ.get("MS_TUNE_ORACLE_CASES", "0"))
_SAMPLE = 60  # programs for each release in the suite
_SHARE = 0.25  # of all stops that speak of arguments, at least so many are rows; other checks report more
_READ = json.loads(FIGURES.read_text("utf-8"))

# Statements of a feature of a made-up release, and the condition that is read; empty if it is out of reach.
STATEMENTS = [
    ("if args.a and args.b == 'x': raise ValueError('no')", "argument.a and argument.b == 'x'"),
    ("assert args.n in (1, 2), 'no'", "argument.n not in (1, 2)"),
    ("self.incompatible_check(args, 'a')", "argument.feature and argument.a"),
    ("self.dependency_check(args, 'a')", "argument.feature and (not argument.a)"),
    ("if not args.a: return\n        assert args.n % 2 == 0", "argument.a and argument.n % 2 != 0"),
    ("if args.a: raise ValueError('x')\n        elif args.b: raise ValueError('no')", "argument.b"),
    ("size = args.n // 2\n        assert size > args.m", "argument.n // 2 <= argument.m"),
    ("assert getattr(args, 'gone', False) or not args.a", "argument.a"),
    ("assert not (args.a and args.b.split(','))", ""),
    ("assert args.world_size > 1", ""),
    ("for one in args.b:\n            assert one", ""),
    ("assert not args.b.split(',') and not args.a", "argument.a"),
    ("self.own(args)", "argument.m is None"),
]


@pytest.mark.parametrize(("statement", "condition"), STATEMENTS)
def test_a_release_is_served_by_reading_its_sources(tmp_path: Path, statement: str, condition: str) -> None:
    source = f"""\
    class Feature(Base):
        def __init__(self):
            super().__init__("Feature")

        def own(self, args):
            assert args.m is not None, "m"

        def validate_args(self, args):
            {statement.replace(chr(10), chr(10) + "    ")}
    """
    (tmp_path / "feature.py").write_text(dedent(source), "utf-8")
    found = list(stops_of(tmp_path, ["feature.py"], frozenset(("a", "b", "n", "m", "feature"))))
    assert found[-1].condition == condition
    assert bool(found[-1].reason) == (not condition)


def test_most_stops_are_reported() -> None:
    for release in SERVED:
        count = Counter(_READ[release])
        total = count.pop("stops")
        assert sum(count.values()) == total
        reported = sum(number for name, number in count.items() if name.startswith("served"))
        assert reported >= _SHARE * total, release


@needs_sources
@pytest.mark.slow
@pytest.mark.parametrize("release", SERVED)
def test_what_is_refused_stops_the_program(release: str, capsys: pytest.CaptureFixture[str]) -> None:
    stops = harvest(Path(os.environ[SOURCES]), release)
    assert len(stops) == _READ[release]["stops"]
    made = programs(stops, release, _SEED, lambda _: _CASES or 4, {})
    asked = made if _CASES else Random(_SEED).sample(made, _SAMPLE)  # noqa: S311 - no secret
    reported = [lint_errors(one.words, release) for one in asked]
    lines = run(Path(os.environ[SOURCES]) / release, [one.words for one in asked], "config", "quick")
    stopped = ["stopped" in json.loads(line) if line else True for line in lines]
    found = sum(bool(ids) for ids, stop in zip(reported, stopped, strict=True) if stop)
    with capsys.disabled():
        print(f"\n{release}, seed {_SEED}: {found} of {sum(stopped)} stops reported")  # noqa: T201 - the figure is the point
    wrong = [one.words for one, ids, stop in zip(asked, reported, stopped, strict=True) if ID in ids and not stop]
    assert not wrong, wrong
    assert found >= _SHARE * sum(stopped)


def test_the_rows_name_options_and_sources() -> None:
    check = next(one for one in built_in(Dialect.MEGATRON) if one.id == ID)
    assert len(check.tests) > 100
    assert all({"release", "options", "said", "file"} == test["let"].keys() for test in check.tests)
