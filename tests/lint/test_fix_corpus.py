"""Test fixes of real configs with inserted faults: all other bytes are unchanged."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.enums import ChangeKind
from ms_tune.errors import ConfigError
from ms_tune.facts.query import data_folder
from ms_tune.job.detect import recognise
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.lint.fix import apply_fixes
from ms_tune.source.yaml import SourceFile, parse_source
from tests.source.corpus import wheel_configs

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic, KeyPath
    from ms_tune.source.edit import ValueChange

CONFIGS = (*sorted(data_folder("yaml_templates").rglob("*.yaml")), *wheel_configs())
# Replacement values and inserted first lines: each is a fault in some config.
VALUES = ("1e-5", "'True'", "True", "False", "&planted True", "-1", "0", "[1, 2]", "{a: 1}", "3  # 为什么", "O2")
LINES = (
    "profile: True  # 性能",
    "save_graphs: True",
    "context : {save_graphs: True, 'deterministic': \"ON\"}",
    "auto_tune: False",
    "swap: {enable: True}",
    "training_config: {use_distributed_optimizer: True}",
    "parallel_config: {optimizer_shard: True, context_parallel_algo: ulysses_cp}",
)


@cache
def _text(path: Path) -> str:
    return path.read_bytes().decode().removeprefix("\ufeff")


@st.composite
def planted(draw: st.DrawFn) -> str:
    """Draw a real config with some values replaced, optionally with a first line and other line ends."""
    lines = _text(draw(st.sampled_from(CONFIGS))).replace("\r\n", "\n").split("\n")
    places = [number for number, line in enumerate(lines) if ": " in line and not line.lstrip().startswith("#")]
    for number in draw(st.lists(st.sampled_from(places), max_size=6, unique=True)):
        lines[number] = f"{lines[number].partition(': ')[0]}: {draw(st.sampled_from(VALUES))}"
    top = draw(st.lists(st.sampled_from(LINES), max_size=2, unique=True))
    names = {line.partition(":")[0].strip() for line in top}
    if not names & {line.partition(":")[0].strip() for line in lines}:
        lines[:0] = top
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines)


def _leaves(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, key if isinstance(key, (str, int)) else str(key)))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    else:
        yield path, (type(value), str(value))


def _places(change: ValueChange) -> Iterator[KeyPath]:
    """Return the key paths that a change may affect: its own, that of a new name, and that of a section that becomes empty."""
    yield change.path
    if change.kind is ChangeKind.RENAME_KEY:
        yield (*change.path[:-1], str(change.value))


def _within(path: KeyPath, place: KeyPath) -> bool:
    return path[: len(place)] == place or place[: len(path)] == path


@pytest.mark.slow
@given(text=planted(), unsafe=st.booleans())
def test_only_what_the_fixes_name_is_changed(text: str, *, unsafe: bool) -> None:
    try:
        source = parse_source(text, Path("config.yaml"))
    except ConfigError:
        return
    dialect = recognise(source.data).dialect
    if dialect is None:
        return
    made: list[ValueChange] = []

    def check(config: SourceFile) -> tuple[Diagnostic, ...]:
        found = lint(config, dialect, built_in(dialect))
        made.extend(change for one in found if one.fix and (one.fix.safe or unsafe) for change in one.fix.changes)
        return found

    after, fixed = apply_fixes(source, check, unsafe=unsafe)
    assert apply_fixes(after, check, unsafe=unsafe)[1].made == 0
    places = {place for change in made for place in _places(change)}
    changed = {path for path, _ in set(_leaves(source.data)) ^ set(_leaves(after.data))}
    assert all(any(_within(path, place) for place in places) for path in changed), changed
    old, new = (config.text.splitlines(keepends=True) for config in (source, after))
    touched = [line for line in difflib.ndiff(old, new) if line.startswith(("- ", "+ "))]
    meant = {line for place in places for config in (source, after) for line in _lines(config, place)}
    assert bool(touched) is bool(fixed.made)
    assert {line[2:].strip() for line in touched} <= meant
    assert ("\r\n" in after.text) is ("\r\n" in source.text)


def _lines(source: SourceFile, place: KeyPath) -> set[str]:
    """Return the lines of a key path and its value, and of the section around it if a value is added."""
    found = set()
    for path in (place, place[:-1]):
        position = source.nearest(path)
        first = (position.key or position.value).line
        last = position.value.end_line if path == place else first
        found |= {source.line(number).strip() for number in range(first, last + 1)}
    return found
