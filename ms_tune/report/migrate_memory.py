"""Both files' memory side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.memory.diff import BlockKind
from ms_tune.report.console import pad
from ms_tune.units import MIB

if TYPE_CHECKING:
    from ms_tune.memory.diff import Surplus
    from ms_tune.report.console import Console
    from ms_tune.workflows.migrate.memory import BothSides, DifferenceReason, StageMemory

_WIDTH = 14
_COLUMNS = ("old", "new", "difference")
_SIDES = {False: "old", True: "new"}
_SHOWN = 0.005  # of the larger peak: what is smaller is told together
_MOST = 6  # places of a kind
_LEAST = MIB // 20  # what would be told as 0.0


def write_memory(sides: BothSides, console: Console) -> None:
    """Each stage by content, what makes up the difference, and what the figures rest on."""
    console.write("")
    console.write(console.text("migrate.memory"))
    for one in sides.stages:
        _stage(one, console, unproved=bool(sides.unproved))
        if one.explained is not None:
            _explained(one.explained, console)
        else:
            console.write(console.text("migrate.memory.not-explained"))
    console.write("")
    for name in ("weights", "gradients", "passing"):
        console.write(console.text(f"migrate.memory.why.{name}"))
    for name, told in (("unproved", sides.unproved), ("limits", sides.limits)):
        if told:
            console.write(console.text(f"migrate.memory.{name}"))
        for limit in told:
            console.write(f"  - {console.say(limit)}")


def _stage(one: StageMemory, console: Console, *, unproved: bool) -> None:
    mark = console.text("migrate.memory.mark") if unproved else ""
    titles = (console.text(f"migrate.memory.column.{name}") for name in _COLUMNS)
    console.write("")
    stage = pad(console.text("migrate.memory.stage", stage=one.stage), 24)
    console.write(f"{stage}{''.join(pad(title, _WIDTH, right=True) for title in titles)}")
    _row(console.text("migrate.memory.peak"), one.old_peak, one.new_peak, console, mark)
    for name in dict.fromkeys((*one.old, *one.new)):
        old, new = one.old.get(name, 0), one.new.get(name, 0)
        if max(old, new) >= _LEAST:
            _row(console.text(f"memory.content.{name}"), old, new, console, mark)
    if one.same is None:
        console.write(f"  {console.text('migrate.memory.not-told')}")
    else:
        _row(console.text("migrate.memory.same"), *one.same, console)


def _row(name: str, old: int, new: int, console: Console, mark: str = "") -> None:
    figures = "".join(f"{size / MIB:>{_WIDTH},.1f}" for size in (old, new))
    console.write(f"  {pad(name, 22)}{figures}{_signed(new - old):>{_WIDTH}}  {mark}".rstrip())


def _signed(size: int) -> str:
    """MiB with a sign; nothing is +0.0, never -0.0."""
    text = f"{size / MIB:+,.1f}"
    return "+0.0" if text == "-0.0" else text


def _explained(found: DifferenceReason, console: Console) -> None:
    """What one side holds and the other does not, by kind; each kind's lines add up to its sum, the sums to the difference."""
    old, new = found.peaks
    console.write(
        "  "
        + console.text(
            "migrate.memory.explained",
            layers=found.layers,
            difference=_signed(new - old),
            old=_phase(found, 0, console),
            new=_phase(found, 1, console),
        )
    )
    least = int(_SHOWN * max(found.peaks))
    for kind in BlockKind:
        rows = [one for one in found.more if one.kind is kind]
        if any(one.bytes >= _LEAST for one in rows):
            console.write(
                f"    {pad(console.text(f'migrate.memory.kind.{kind.value}'), 44)}{_signed(sum(one.signed_bytes for one in rows)):>12}"
            )
            _held(rows, least, console)
    if found.each_layer is not None:
        figures = [f"{size / MIB:,.1f}" for size in found.each_layer]
        console.write("  " + console.text("migrate.memory.each-layer", old=figures[0], new=figures[1]))


def _phase(found: DifferenceReason, side: int, console: Console) -> str:
    return console.text(f"memory.phase.{found.phases[side] or 'unknown'}")


def _held(rows: list[Surplus], least: int, console: Console) -> None:
    shown = [one for one in rows if one.bytes >= least][:_MOST]
    for one in shown:
        place = "" if one.location == one.operator else _short(one.location)
        _line(_SIDES[one.in_new], one.count, one.signed_bytes, f"{one.operator} {place}".rstrip(), console)
    for in_new in (False, True):
        rest = [one for one in rows if one not in shown and one.in_new is in_new]
        size = sum(one.signed_bytes for one in rest)
        if abs(size) >= _LEAST:
            text = console.text("migrate.memory.smaller", places=len(rest))
            _line(_SIDES[in_new], sum(one.count for one in rest), size, text, console)


def _line(side: str, count: int, size: int, text: str, console: Console) -> None:
    name = console.text(f"migrate.memory.column.{side}")
    console.write_whole(f"      {pad(name, 9)}{count:>5} x {_signed(size):>12}  {text}")


def _short(where: str) -> str:
    """The last two cells of a scope; a line's file without its folders."""
    parts = where.split("/")
    return "/".join(parts[-2:]) if ":" not in parts[-1] else parts[-1]
