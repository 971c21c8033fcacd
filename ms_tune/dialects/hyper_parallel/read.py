"""Read configs of HyperParallel's Trainer: every section is a dataclass, whose fields its loader compares strictly.

The fields are those of the user's own copy, if the file lies in one or it is installed; else those of the generation
(``config/resolver.py`` at 0e81ad83, ``config/manager.py`` at 643fe63c). A section with a ``_target_`` takes the target's arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from ms_tune.diagnostics import KeyPath, dotted
from ms_tune.dialects.check_context import per_job
from ms_tune.enums import Dialect
from ms_tune.facts.keys import Key, by_section
from ms_tune.facts.query import load, order
from ms_tune.records import Any, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.dialects import JobView

TARGET = "_target_"
FIRST_STRICT = "G3"  # the fields of earlier generations were inferred from examples


class FieldTables(Record):
    """The fields of each section."""

    sections: Mapping[KeyPath, Mapping[str, Key]]
    open_sections: frozenset[KeyPath]  # those that take other keys
    is_certain: bool  # whether all fields are known, so that the loader surely refuses others
    copy: str = ""  # the user's own copy that they are from, if any


@cache
def tables_of(generation: str) -> FieldTables:
    """Return the fields of a generation."""
    open_sections = frozenset(map(tuple, facts()["open"]))
    sections = by_section(Dialect.HYPER_PARALLEL, generation)
    return FieldTables(sections, open_sections, is_certain=order(generation) >= order(FIRST_STRICT))


@per_job
def declared_fields(job: JobView) -> FieldTables:
    """Return the fields that the job's loader knows."""
    copy = job.checkout
    own = copy.config_fields if copy is not None else None
    if copy is None or own is None:
        return tables_of(job.release.version)
    return FieldTables(own, frozenset(), is_certain=True, copy=str(copy.root))


def facts() -> dict[str, Any]:
    """Return the keys that moved between generations (``moved``), keys of forks (``elsewhere``), and packages (``targets``)."""
    return load(f"keys_{Dialect.HYPER_PARALLEL.value}")


def walk_fields(
    values: object, tables: FieldTables, section: KeyPath = ()
) -> Iterator[tuple[KeyPath, Key | None, Any]]:
    """Yield the path of each key in sections with known fields, its field (None: unknown) and value, outer keys first.

    Keys of forks, targets and their arguments are left out, except fields that moved.
    """
    if not isinstance(values, dict):
        return
    known = tables.sections[section]
    is_open = section in tables.open_sections or TARGET in values
    for name, value in values.items():
        path = (*section, str(name))
        key = known.get(str(name))
        is_passed_on = is_open and dotted(path) not in facts()["moved"]
        if key is None and (is_passed_on or (dotted(path) in facts()["elsewhere"] and not tables.copy)):
            continue
        yield path, key, value
        if key is not None and path in tables.sections:
            yield from walk_fields(value, tables, path)


def find_targets(values: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield the path and text of every ``_target_``."""
    for key, value in (
        values.items() if isinstance(values, dict) else enumerate(values if isinstance(values, list) else ())
    ):
        here = (*path, key if isinstance(key, int) else str(key))
        if key == TARGET and isinstance(value, str):
            yield here, value
        yield from find_targets(value, here)


def is_target_of(target: str, generation: str) -> bool:
    """Return whether a target's package is one of a generation, or not HyperParallel's own."""
    found = [
        span for package, span in facts()["targets"].items() if target == package or target.startswith(f"{package}.")
    ]
    return all(
        order(first) <= order(generation) and (last is None or order(generation) <= order(last))
        for first, last in found
    )
