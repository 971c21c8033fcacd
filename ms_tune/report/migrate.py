"""Show a migration: the result for each key, and the proof."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import zip_longest
from math import isfinite
from pathlib import Path

from ms_tune.encode import record_json
from ms_tune.report.console import Console, pad, terminal_width, text_width
from ms_tune.workflows.migrate.result import Fate, KeyFate, Migration

_COLOURS = {Fate.TRANSLATED: "green", Fate.DEFAULT: "dim", Fate.NONE: "yellow", Fate.ASK: "red"}
_MARKS = {True: ("holds", "green"), False: ("fails", "red"), None: ("unknown", "yellow")}
_LONGEST, _CUT = 60, "..."
_FEW = 4  # decisions, and keys without a counterpart, on the short screen


def write_migration(found: Migration, console: Console, *, verbose: bool, everything: bool) -> None:
    """Write the verdict, the decisions and the proof; ``verbose`` adds keys that need attention, ``everything`` all."""
    write_verdict(found, console)
    counts = {fate.value: found.count(fate) for fate in Fate}
    console.write_text(
        "migrate.head", file=found.path, dialect=found.dialect.value, release=found.release, target=found.target
    )
    console.write_text("migrate.counts", total=len(found.entries), **counts)
    if verbose or everything:
        _show_fates(found, console, everything=everything)
    else:
        _show_open(found, console)
    if not found.refused:
        _show_proof(found, console)


def write_verdict(found: Migration, console: Console) -> None:
    """Write one line with the result of the migration."""
    if found.refused:
        name, colour = "refused", "red"
    elif found.questions or (found.proof and not found.proved):
        name, colour = "open", "yellow"
    else:
        name, colour = ("done", "green") if found.proof else ("unproved", "yellow")
    unproved = sum(not part.holds for part in found.proof)
    console.write(
        console.paint(console.text(f"migrate.{name}", questions=len(found.questions), unproved=unproved), colour)
    )


def _show_open(found: Migration, console: Console) -> None:
    rows = found.blocking if found.refused else found.questions
    if rows or found.missing:
        console.write_section("migrate.blocking" if found.refused else "migrate.fate.ask")
        _show_entries(rows[:_FEW], console, within=terminal_width())
        console.write_lines(found.missing, "        ")
    if len(rows) > _FEW:
        console.write(f"  {console.text('migrate.more', count=len(rows) - _FEW)}")
    lost = [one.name for one in found.entries if one.fate is Fate.NONE]
    if lost and not found.refused:
        more = [console.text("migrate.more", count=len(lost) - _FEW)] if len(lost) > _FEW else []
        console.write_section("migrate.lost", keys=console.listed([*lost[:_FEW], *more]))


def _show_fates(found: Migration, console: Console, *, everything: bool) -> None:
    for fate in Fate:
        rows = [one for one in found.entries if one.fate is fate and (everything or _is_notable(one))]
        if rows:
            console.write("")
            console.write(console.paint(console.text(f"migrate.fate.{fate.value}"), _COLOURS[fate]))
            _show_entries(rows, console)
    if found.refused:
        console.write_section("migrate.blocking")
        _show_entries(found.blocking, console)
        console.write_lines(found.missing, "        ")
    if found.added:
        console.write_section("migrate.added")
        for added in found.added:
            console.write(f"  {'.'.join(added.to)}: {_shorten_value(added.value)}")
            console.write(f"      {console.say(added.why)}")


def _is_notable(one: KeyFate) -> bool:
    if one.fate is Fate.TRANSLATED:
        return bool(one.value != one.new)
    return one.fate is not Fate.DEFAULT


def _show_entries(rows: Sequence[KeyFate], console: Console, within: int = _LONGEST * 2) -> None:
    for one, following in zip_longest(rows, rows[1:]):
        line = f"  {one.line or '-':>4}  {one.name}: "
        line += _shorten_value(one.value, within - len(line) - len(_CUT))
        if one.fate is Fate.TRANSLATED:
            line += f" -> {'.'.join(one.to)}: {_shorten_value(one.new)}"
        console.write(line)
        if one.why is not None and (following is None or following.why != one.why):
            console.write(f"        {console.say(one.why)}")


def _show_proof(found: Migration, console: Console) -> None:
    if not found.proof:
        return
    console.write_section("migrate.proof")
    marks = {holds: (console.text(f"migrate.{word}"), colour) for holds, (word, colour) in _MARKS.items()}
    width = max(text_width(text) for text, _ in marks.values())
    groups: dict[tuple[bool | None, str], list[str]] = {}
    for part in found.proof:
        names = groups.setdefault((part.holds, console.say(part.detail)), [])
        names.append(console.text(f"migrate.part.{part.name}"))
    for (holds, detail), names in groups.items():
        text, colour = marks[holds]
        words = console.labelled(console.listed(names), detail)
        console.write(f"  {console.paint(pad(text, width), colour)}  {words}")


def _shorten_value(value: object, most: int = _LONGEST) -> str:
    text, most = str(value) if value != "" else "''", min(most, _LONGEST)
    return text if len(text) <= most else f"{text[: max(most, 0)]}{_CUT}"


def write_diff(found: Migration, name: Path | None, console: Console) -> None:
    """Write a unified diff of the two configs."""
    old = found.original.splitlines()
    for line in difflib.unified_diff(old, found.text.splitlines(), str(found.path), str(name or "new"), lineterm=""):
        console.write_raw(line)  # unchanged, for `patch`


_VERSION = 1


def migration_json(found: Migration) -> dict[str, object]:
    """Return the JSON object, documented in ``docs/migrate.md``."""
    return {
        "version": _VERSION,
        "file": found.path,
        "framework_version": found.release,
        "target_version": found.target,
        **record_json(found, "dialect", "refused", "missing", "proved", "text"),
        "counts": {fate: found.count(fate) for fate in Fate},
        "keys": [
            {
                "key": one.name,
                "value": _plain_value(one.value),
                "to": ".".join(one.to) or None,
                "new_value": _plain_value(one.new),
                **record_json(one, "line", "fate", "why", "blocks"),
            }
            for one in found.entries
        ],
        "added": [{"to": ".".join(one.to), **record_json(one, "value", "why")} for one in found.added],
        "proof": [{"part": one.name, **record_json(one, "holds", "detail")} for one in found.proof],
    }


def _plain_value(value: object) -> object:
    # A YAML value in JSON form: dates, bytes, sets and non-finite numbers become text.
    if isinstance(value, dict):
        return {str(key): _plain_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(_plain_value, value))
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and isfinite(value)):
        return value
    return str(value)
