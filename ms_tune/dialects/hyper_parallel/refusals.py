"""Fields that HyperParallel's loader refuses: ``ConfigResolutionError`` in every process, before anything is built.

``config/resolver.py`` at 0e81ad83: unknown and missing fields, values of other types; an int is taken for a float, a bool
never for an int, null only where a field is optional. Inferred rules are warnings.
"""

from __future__ import annotations

from collections.abc import Iterator

from ms_tune.diagnostics import KeyPath, dotted
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.hyper_parallel.read import (
    TARGET,
    FieldTables,
    declared_fields,
    facts,
    find_targets,
    is_target_of,
    tables_of,
    walk_fields,
)
from ms_tune.errors import closest
from ms_tune.facts.keys import Key
from ms_tune.facts.query import REQUIRED
from ms_tune.records import Any
from ms_tune.units import is_number

_REPORTED = 1000
_SECTIONS = 3  # a file with fewer may be a part of a config
_PYTHON = {"int": (int,), "float": (int, float), "str": (str,), "list": (list,), "dict": (dict,)}
_SWITCHES = {True: ("on", "yes", "true"), False: ("off", "no", "false")}  # words that YAML 1.1 reads as a bool


def find_unknown_fields(context: CheckContext) -> Iterator[Violation]:
    """Report keys unknown to their section, with the new place of those that moved."""
    tables = declared_fields(context.job)
    walked = list(walk_fields(context.source.data, tables))
    unknown = [(path, value) for path, key, value in walked if key is None]
    for path, value in unknown[:_REPORTED]:
        moved = list(_find_moved(path, value))
        is_passed_on = context.source.get((*path[:-1], TARGET)) is not None  # to a target
        yield from (one._replace(is_certain=tables.is_certain and not is_passed_on) for one in moved)
        if not moved:
            among = tables.sections[path[:-1]].keys() - {one[-1] for one, *_ in walked if one[:-1] == path[:-1]}
            others = sorted(str(one[-1]) for one, _ in unknown if one[:-1] == path[:-1])
            reason = f"{spell(path[:-1])}: unknown configuration fields: {others}"
            params = _described(tables, context, reason, closest(str(path[-1]), among))
            message = "similar" if params["similar"] else "default"
            yield Violation(path, message, params, at_key=True, is_certain=tables.is_certain)
    yield from _find_refused_arguments(tables, context)


def _find_refused_arguments(tables: FieldTables, context: CheckContext) -> Iterator[Violation]:
    # Arguments that a target does not take, by the sources of the user's own copy.
    copy = context.job.checkout
    targets = find_targets(context.source.data) if copy is not None and tables.copy else ()
    for path, taken in [
        (path[:-1], copy.read_target_arguments(target)) for path, target in targets if copy is not None
    ]:
        values = context.source.get(path)
        own = {TARGET, *tables.sections.get(path, ())}
        for name in map(str, values) if taken is not None and isinstance(values, dict) else ():
            if taken is not None and name not in taken and name not in own:
                reason = f"{spell(path)}: target arguments are invalid: got an unexpected keyword argument {name!r}"
                params = _described(tables, context, reason, closest(name, taken))
                yield Violation((*path, name), "similar" if params["similar"] else "default", params, at_key=True)


def find_forked_fields(context: CheckContext) -> Iterator[Violation]:
    """Report fields that only a fork or a branch of the repository has, unless the user's own copy has them."""
    tables = declared_fields(context.job)
    for name, where in () if tables.copy else facts()["elsewhere"].items():
        path = tuple(name.split("."))
        if context.source.position(path) is not None:
            yield Violation(path, where, at_key=True)


def find_moved_fields(context: CheckContext) -> Iterator[Violation]:
    """Report fields and packages of an earlier generation that the newest one does not have."""
    if not declared_fields(context.job).copy:
        old = [one for one in walk_fields(context.source.data, tables_of(context.version)) if one[1] and one[1].until]
        moved = (one for path, _, value in old for one in _find_moved(path, value))
        yield from {one.path: one for one in moved}.values()  # a section yields those in it, too


def find_other_packages(context: CheckContext) -> Iterator[Violation]:
    """Report targets in a package of another generation than the one that takes most of the keys."""
    for path, target in () if declared_fields(context.job).copy else find_targets(context.source.data):
        if not is_target_of(target, context.version):
            yield Violation(path, params={"target": target, "generation": context.version})


def find_missing_fields(context: CheckContext) -> Iterator[Violation]:
    """Report required fields that an existing section lacks."""
    tables = declared_fields(context.job)
    for section, fields in tables.sections.items():
        values = context.source.get(section) if section else context.source.data
        is_part = section == () and len(fields.keys() & context.source.data.keys()) < _SECTIONS
        if not isinstance(values, dict) or is_part:
            continue
        missing = sorted(name for name, key in fields.items() if key.default == REQUIRED and name not in values)
        reason = f"{spell(section)}: missing required configuration fields: {missing}"
        for name in missing:
            params = _described(tables, context, reason)
            yield Violation((*section, name), params=params, at_key=True, is_certain=tables.is_certain)


def find_refused_values(context: CheckContext) -> Iterator[Violation]:
    """Report values of a wrong type, outside the choices, or too small."""
    tables = declared_fields(context.job)
    for path, key, value in walk_fields(context.source.data, tables):
        found = key and refuse_value(key, value)
        if key is not None and found:
            is_certain = tables.is_certain and key.strict and not (value is None and key.types == ("dict",))
            message, reason = found
            similar = closest(str(value), map(str, key.choices)) if message == "choice" else ""
            params = _described(tables, context, f"{spell(path)}: {reason}", similar)
            yield Violation(path, "similar" if similar else "default", params, is_certain=is_certain)


def refuse_value(key: Key, value: Any) -> tuple[str, str] | None:  # noqa: ANN401 - of any type
    """Return the kind of a refusal (``type``, ``choice``, ``bound``) and the loader's reason; None if it accepts the value."""
    if isinstance(value, bool) and any(word in key.choices for word in _SWITCHES[value]):
        return None  # turned back into the word
    if key.types and not _has_type(value, key.types):
        name = type(value).__name__ if value is not None else "None"
        return "type", f"expected {' | '.join(one for one in key.types if one != 'null')}, got {name}"
    if key.choices and value is not None and value not in key.choices:
        return "choice", f"expected one of {tuple(key.choices)}, got {value!r}"
    if key.least is not None and is_number(value) and value < key.least:
        return "bound", f"expected at least {key.least}"
    return None


def _has_type(value: object, types: tuple[str, ...]) -> bool:
    if value is None or isinstance(value, bool):
        return ("null" if value is None else "bool") in types
    return any(isinstance(value, _PYTHON[one]) for one in types if one in _PYTHON)


def spell(path: KeyPath) -> str:
    """Return a path as the loader writes it."""
    return ".".join(["$", *map(str, path)])


def _find_moved(path: KeyPath, value: object) -> Iterator[Violation]:
    # Fields of an earlier generation with their new place: the key itself, or those in its section.
    moved, inside = facts()["moved"], value.items() if isinstance(value, dict) else ()
    for here, one in ((path, value), *(((*path, str(name)), inner) for name, inner in inside)):
        new = moved.get(dotted(here))
        if new is not None:
            place, trap = [*new, "", ""][:2]
            number = one - 1 if trap == "inclusive" and isinstance(one, int) else one
            message = (trap or "moved") if place else "gone"
            yield Violation(here, message, {"new": place, "number": number}, at_key=True)


def _described(tables: FieldTables, context: CheckContext, reason: str, similar: str = "") -> dict[str, str]:
    return {"where": tables.copy or f"HyperParallel {context.version}", "reason": reason, "similar": similar}
