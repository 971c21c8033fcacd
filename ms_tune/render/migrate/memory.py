"""Both files' memory side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.units import MIB

if TYPE_CHECKING:
    from ms_tune.migrate.memory import BothSides, StageMemory
    from ms_tune.render.console import Console

_WIDTH = 16
_COLUMNS = ("old", "new", "difference")
_EXPLAINED = ("weights", "optimizer_state", "gradients")


def write_memory(sides: BothSides, console: Console) -> None:
    """Each stage by content, what theory says of weights and optimizer state, and what the figures rest on."""
    console.write("")
    console.write(console.text("migrate.memory"))
    for one in sides.stages:
        _stage(one, console)
    console.write("")
    for name in _EXPLAINED:
        console.write(f"{console.text(f'memory.content.{name}')}: {console.text(f'migrate.memory.why.{name}')}")
    console.write(console.text("migrate.memory.rest"))
    console.write(console.text("migrate.memory.limits"))
    for limit in sides.limits:
        console.write(f"  - {console.say(limit)}")


def _stage(one: StageMemory, console: Console) -> None:
    titles = (console.text(f"migrate.memory.column.{name}") for name in _COLUMNS)
    console.write("")
    console.write(
        f"{console.text('migrate.memory.stage', stage=one.stage):<24}{''.join(f'{t:>{_WIDTH}}' for t in titles)}"
    )
    _row(console.text("migrate.memory.peak"), one.old_peak, one.new_peak, console)
    for name in dict.fromkeys((*one.old, *one.new)):
        old, new = one.old.get(name, 0), one.new.get(name, 0)
        if old or new:
            _row(console.text(f"memory.content.{name}"), old, new, console)
    if one.same is not None:
        _row(console.text("migrate.memory.same"), *one.same, console)


def _row(name: str, old: int, new: int, console: Console) -> None:
    figures = "".join(f"{size / MIB:>{_WIDTH},.1f}" for size in (old, new))
    console.write(f"  {name:<22}{figures}{(new - old) / MIB:>+{_WIDTH},.1f}")
