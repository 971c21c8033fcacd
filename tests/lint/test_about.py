"""Check that a check with declared keys or oddities finds nothing without them: without the declaration, it would find the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from ms_tune.enums import CHECKED_DIALECTS, Dialect
from ms_tune.errors import MsTuneError
from ms_tune.facts.query import data_folder, served
from ms_tune.lint.checklist import Check, built_in
from ms_tune.lint.engine import concerns, job_of, run_checks
from ms_tune.source.yaml import SourceFile, load_source, parse_source, yaml_text

FOLDER = "MS_TUNE_ABOUT_CONFIGS"  # names a folder of further configs
ROUNDS = int(os.environ.get("MS_TUNE_ORACLE_CASES", "2000")) // 1000
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "7"))


def is_gated(check: Check) -> bool:
    """Return whether a check declares the keys that it is about, or examines the values of some."""
    tests = check.entry["test"]
    keys = bool(check.keys) and any(
        "refuse" not in one or "about" in one for one in (tests if isinstance(tests, list) else [tests])
    )
    return keys or bool(check.odd)


DIALECTS = [one for one in CHECKED_DIALECTS if any(is_gated(check) for check in built_in(one))]


def always(check: Check) -> Check:
    """Return the check without that condition."""
    return Check({**check._row, "keys": [], "odd": []}, check._entry)


def texts(dialect: Dialect) -> Iterator[tuple[Path, str]]:
    for check in built_in(dialect):
        yield Path("bad.yaml"), check.bad
        yield Path("good.yaml"), check.good
    folder = data_folder("yaml_templates") / dialect.value.replace("-", "_")
    more = Path(os.environ[FOLDER]) if FOLDER in os.environ else None
    for path in sorted([*folder.glob("*.yaml"), *(more.rglob("*.yaml") if more else ())]):
        yield path, path.read_text(encoding="utf-8", errors="replace")


def without_some(value: Any, random: Random) -> Any:  # noqa: ANN401 - values of a config
    """Return the values without a few random keys at any depth."""
    if isinstance(value, dict):
        return {key: without_some(inner, random) for key, inner in value.items() if random.random() > 0.15}
    return [without_some(inner, random) for inner in value] if isinstance(value, list) else value


def variants(path: Path, text: str, random: Random) -> Iterator[SourceFile]:
    try:
        source = parse_source(text, path)
        yield source
        for _ in range(ROUNDS):
            yield parse_source(yaml_text(without_some(source.data, random)), path)
    except (MsTuneError, yaml.YAMLError):
        return


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_check_is_about_hides_nothing(dialect: Dialect) -> None:
    random = Random(SEED)  # noqa: S311 - the same cases every time
    # A row matches written settings only: without any written setting it refuses nothing.
    about = list(filter(is_gated, built_in(dialect)))
    hidden: dict[str, str] = {}
    for path, text in texts(dialect):
        for source in variants(path, text, random):
            version = random.choice(served(dialect))
            made = [check for check in about if concerns(check, dialect, version, None)]
            job = job_of(source, dialect, version)
            seen = [(one.id, one.path) for one in run_checks(made, job)]
            every = [(one.id, one.path) for one in run_checks(map(always, made), job)]
            for one in every:
                if one not in seen:
                    hidden.setdefault(one[0], f"{path}, {version}:\n{source.text}")
    assert hidden == {}


def test_a_gate_that_hides_is_seen() -> None:
    source = load_source(data_folder("yaml_templates") / "mindformers" / "qwen3_0_6b.yaml")
    (check,) = [one for one in built_in(Dialect.MINDFORMERS) if one.name == "dead-setting"]
    assert always(check).keys == []
    job = job_of(source, Dialect.MINDFORMERS, "1.9")
    assert run_checks([always(check)], job) == run_checks([check], job)
