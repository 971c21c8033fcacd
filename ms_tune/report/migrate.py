"""Show a migration: the result for each key, the proof, and the memory of both configs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.encode import record_json
from ms_tune.enums import BlockKind
from ms_tune.report.console import Console, pad, terminal_width, text_width
from ms_tune.source.files import diff_lines
from ms_tune.units import MIB
from ms_tune.workflows.migrate.result import Fate, KeyFate, Migration

if TYPE_CHECKING:
    from ms_tune.memory.diff import Surplus
    from ms_tune.workflows.migrate.memory import BothSides, DifferenceReason, StageMemory

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
    for line in diff_lines(found.original, found.text, str(found.path), str(name or "new")):
        console.write_raw(line)  # unchanged, for `patch`


_WIDTH = 14
_COLUMNS = ("old", "new", "difference")
_SIDES = {False: "old", True: "new"}
_SHOWN = 0.005  # share of the larger peak; smaller differences are summed up
_MOST = 6  # locations per category
_LEAST = MIB // 20  # smallest size that is not shown as 0.0


def write_memory(sides: BothSides, console: Console, *, verbose: bool) -> None:
    """Write each stage's memory by category and the assumptions; ``verbose`` adds the causes of the difference."""
    console.write_section("migrate.memory")
    for one in sides.stages:
        _show_stage(one, console, unproved=bool(sides.unproved))
        if verbose and one.explained is not None:
            _show_reasons(one.explained, console)
        elif verbose:
            console.write_text("migrate.memory.not-explained")
    console.write("")
    for name in ("weights", "gradients", "passing") if verbose else ():
        console.write_text(f"migrate.memory.why.{name}")
    for name, limits in (("unproved", sides.unproved), ("limits", sides.limits)):
        if limits:
            console.write_text(f"migrate.memory.{name}")
        console.write_lines(limits, "  - ")


def _show_stage(one: StageMemory, console: Console, *, unproved: bool) -> None:
    mark = console.text("migrate.memory.mark") if unproved else ""
    titles = (console.text(f"migrate.memory.column.{name}") for name in _COLUMNS)
    console.write("")
    stage = pad(console.text("migrate.memory.stage", stage=one.stage), 24)
    console.write(f"{stage}{''.join(pad(title, _WIDTH, right=True) for title in titles)}")
    _show_row(console.text("migrate.memory.peak"), one.old_peak, one.new_peak, console, mark)
    for name in dict.fromkeys((*one.old, *one.new)):
        old, new = one.old.get(name, 0), one.new.get(name, 0)
        if max(old, new) >= _LEAST:
            _show_row(console.text(f"memory.content.{name}"), old, new, console, mark)
    if one.same is None:
        console.write(f"  {console.text('migrate.memory.not-told')}")
    else:
        _show_row(console.text("migrate.memory.same"), *one.same, console)


def _show_row(name: str, old: int, new: int, console: Console, mark: str = "") -> None:
    figures = "".join(f"{size / MIB:>{_WIDTH},.1f}" for size in (old, new))
    console.write(f"  {pad(name, 22)}{figures}{_signed_mib(new - old):>{_WIDTH}}  {mark}".rstrip())


def _signed_mib(size: int) -> str:
    # MiB with a sign; zero is +0.0, never -0.0.
    text = f"{size / MIB:+,.1f}"
    return "+0.0" if text == "-0.0" else text


def _show_reasons(found: DifferenceReason, console: Console) -> None:
    # Memory that only one side has, by category; lines add up to the category's sum, sums to the difference.
    old, new = found.peaks
    console.write(
        "  "
        + console.text(
            "migrate.memory.explained",
            layers=found.layers,
            difference=_signed_mib(new - old),
            old=_phase_text(found, 0, console),
            new=_phase_text(found, 1, console),
        )
    )
    least = int(_SHOWN * max(found.peaks))
    for kind in BlockKind:
        rows = [one for one in found.more if one.kind is kind]
        if any(one.bytes >= _LEAST for one in rows):
            console.write(
                f"    {pad(console.text(f'migrate.memory.kind.{kind.value}'), 44)}{_signed_mib(sum(one.signed_bytes for one in rows)):>12}"
            )
            _show_surplus(rows, least, console)
    if found.each_layer is not None:
        figures = [f"{size / MIB:,.1f}" for size in found.each_layer]
        console.write("  " + console.text("migrate.memory.each-layer", old=figures[0], new=figures[1]))


def _phase_text(found: DifferenceReason, side: int, console: Console) -> str:
    return console.text(f"memory.phase.{found.phases[side] or 'unknown'}")


def _show_surplus(rows: list[Surplus], least: int, console: Console) -> None:
    shown = [one for one in rows if one.bytes >= least][:_MOST]
    for one in shown:
        place = "" if one.location == one.operator else _shorten_place(one.location)
        _show_line(_SIDES[one.in_new], one.count, one.signed_bytes, f"{one.operator} {place}".rstrip(), console)
    for in_new in (False, True):
        rest = [one for one in rows if one not in shown and one.in_new is in_new]
        size = sum(one.signed_bytes for one in rest)
        if abs(size) >= _LEAST:
            text = console.text("migrate.memory.smaller", places=len(rest))
            _show_line(_SIDES[in_new], sum(one.count for one in rest), size, text, console)


def _show_line(side: str, count: int, size: int, text: str, console: Console) -> None:
    name = console.text(f"migrate.memory.column.{side}")
    console.write_raw(f"      {pad(name, 9)}{count:>5} x {_signed_mib(size):>12}  {text}")


def _shorten_place(where: str) -> str:
    parts = where.split("/")
    return "/".join(parts[-2:]) if ":" not in parts[-1] else parts[-1]


_VERSION = 1


def migration_json(found: Migration, sides: BothSides | None) -> dict[str, object]:
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
        "memory": sides
        and {
            "stages": [
                {
                    "stage": one.stage,
                    "old_peak_bytes": one.old_peak,
                    "new_peak_bytes": one.new_peak,
                    "old_categories_at_peak": one.old,
                    "new_categories_at_peak": one.new,
                    "weights_and_optimizer_by_theory": one.same,
                    "explained": one.explained and _explanation_json(one.explained),
                }
                for one in sides.stages
            ],
            **record_json(sides, "limits", "unproved"),
        },
    }


def _explanation_json(found: DifferenceReason) -> dict[str, object]:
    return {
        "layers": found.layers,
        "old_peak_bytes": found.peaks[0],
        "new_peak_bytes": found.peaks[1],
        "old_phase": found.phases[0],
        "new_phase": found.phases[1],
        "bytes_of_each_further_layer": found.each_layer,
        "differences": [
            {
                "side": _SIDES[one.in_new],
                "where": one.location,
                **record_json(one, "kind", "operator", "bytes", "count"),
            }
            for one in found.more
        ],
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
