"""Apply ``--set`` and ``--sweep``: replace values of a config by edits of a copy of its text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from ms_tune.diagnostics import KeyPath
from ms_tune.dryrun.request import CommandRequest, DryrunRequest, OptionSetting, Setting
from ms_tune.enums import ChangeKind, Dialect
from ms_tune.errors import ConfigError, UsageError, closest
from ms_tune.facts.keys import by_section
from ms_tune.records import Any
from ms_tune.source.edit import EditRefusedError, ValueChange, apply_edits, prove
from ms_tune.source.yaml import MISSING, SourceFile, parse_source
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    _RequestT = TypeVar("_RequestT", DryrunRequest, CommandRequest)

MOST_VARIANTS = 256
_QUOTES = "'\""


def parse_sweep(text: str) -> tuple[Setting, ...]:
    """Parse ``path=a,b,c`` to one setting per value; commas within brackets and quotes belong to a value."""
    name, equals, raw = text.partition("=")
    if not equals:
        raise UsageError(msg("stages.set.form", text=text), msg("stages.set.form.hint"))
    return tuple(Setting.parse(f"{name}={value}") for value in _split_path(raw))


def _sweep_options(text: str) -> tuple[OptionSetting, ...]:
    name, _, raw = text.partition("=")
    return tuple(OptionSetting.parse(f"{name}={value.strip(_QUOTES)}") for value in _split_path(raw))


def _split_path(raw: str) -> list[str]:
    values, depth, quote = [""], 0, ""
    for letter in raw:
        if letter == "," and not depth and not quote:
            values.append("")
            continue
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
        values[-1] += letter
    return values


def list_variants(request: _RequestT, sweeps: Iterable[str]) -> list[_RequestT]:
    """Return all combinations of the swept values, with the request's settings; option values with commas need quotes."""
    parse = _sweep_options if isinstance(request, CommandRequest) else parse_sweep
    swept: list[tuple[Any, ...]] = list(map(parse, sweeps))
    count = math.prod(map(len, swept))
    if count > MOST_VARIANTS:
        raise UsageError(msg("stages.sweep.many", count=count, most=MOST_VARIANTS))

    def replace_settings(chosen: tuple[Any, ...]) -> _RequestT:
        return request._replace(settings=(*request.settings, *chosen))

    return list(map(replace_settings, itertools.product(*swept)))


def with_settings(source: SourceFile, settings: Sequence[Setting], dialect: Dialect | None) -> SourceFile:
    """Return the config with the settings, applied one after the other."""
    for setting in settings:
        source = _with_setting(source, setting, dialect)
    return source


def _with_setting(source: SourceFile, setting: Setting, dialect: Dialect | None) -> SourceFile:
    present = source.get(setting.path, MISSING) is not MISSING
    if not present:
        _check_key(source, setting.path, dialect)
    kind = ChangeKind.SET_VALUE if present else ChangeKind.ADD_KEY
    try:
        text, changes = _edit_text(
            source, ValueChange(kind, setting.path, raw=setting.raw), _anchored_places(source, setting.path)
        )
    except EditRefusedError as error:
        refused = msg("stages.set.refused", setting=str(setting), reason=error.message)
        raise source.wrong(setting.path, refused, msg("dryrun.set.shared.hint")) from error
    edited = parse_source(text, source.path)
    return edited if changes else source


def _anchored_places(source: SourceFile, path: KeyPath) -> tuple[KeyPath, ...]:
    # Return the places that share a number or word from here through an anchor: ``x: &dp 2`` and ``y: *dp``.
    here = source.position(path)
    if here is None or here.plain is None or here.value != here.definition:
        return ()
    return tuple(
        place
        for place in _list_places(source.data, ())
        if place != path and (there := source.position(place)) is not None and there.definition == here.definition
    )


def _list_places(node: object, path: KeyPath) -> Iterator[KeyPath]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from _list_places(value, (*path, key))


def _edit_text(source: SourceFile, change: ValueChange, followers: Sequence[KeyPath] = ()) -> tuple[str, bool]:
    # Return the text after a change, and whether it differs.
    edits = change.edits(source)
    if not prove(source, [change, *(change._replace(path=path) for path in followers)], edits):
        raise EditRefusedError(msg("edits.unproven"))
    text = apply_edits(source.text, edits)
    return text, text != source.text


def _check_key(source: SourceFile, path: KeyPath, dialect: Dialect | None) -> None:
    for length in range(len(path)):
        section = source.get(path[:length], MISSING)
        here = set(map(str, section)) if isinstance(section, dict) else set()
        known = here | set(by_section(dialect).get(tuple(map(str, path[:length])), ()) if dialect else ())
        last = length == len(path) - 1
        name = str(path[length])
        if name in (known if last else here):
            continue
        similar = closest(name, known)
        written = ".".join(map(str, path))
        if similar:
            suggestion = ".".join(map(str, (*path[:length], similar, *path[length + 1 :])))
            raise UsageError(msg("stages.set.unknown", path=written), msg("stages.set.meant", path=suggestion))
        raise UsageError(msg("stages.set.unknown", path=written))


def changed_text(source: SourceFile, changes: Sequence[tuple[str, object]]) -> str:
    """Return the config's text with dotted keys set, or removed if the value is None, for people to read.

    Changes that cannot be made in place, such as in a section shared by an anchor, are listed in comments at the end.
    """
    current, refused = source, []
    for key, value in changes:
        path: KeyPath = tuple(key.split("."))
        kind = ChangeKind.SET_VALUE if current.get(path, MISSING) is not MISSING else ChangeKind.ADD_KEY
        change = ValueChange(ChangeKind.REMOVE_KEY, path) if value is None else ValueChange(kind, path, value)
        try:
            text, _ = _edit_text(current, change)
            current = parse_source(text, source.path)
        except (EditRefusedError, ConfigError):
            refused.append(f"# {key}: {'(left out)' if value is None else value}")
    if not refused:
        return current.text
    return "\n".join([current.text.rstrip("\n"), *(" ".join(line.split()) for line in refused), ""])
