"""A migration for a terminal: what became of the keys, and what was proved."""

from __future__ import annotations

import difflib
from itertools import zip_longest
from typing import TYPE_CHECKING

from ms_tune.workflows.migrate.result import Fate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ms_tune.report.console import Console
    from ms_tune.workflows.migrate.result import KeyFate, Migration, MigrationVerdict

_COLOURS = {Fate.TRANSLATED: "green", Fate.DEFAULT: "dim", Fate.NONE: "yellow", Fate.ASK: "red"}
_MARKS = {True: ("holds", "green"), False: ("fails", "red"), None: ("unknown", "yellow")}
_LONGEST = 60


def write_migration(found: Migration, console: Console, *, everything: bool) -> None:
    """The fates, then the lines that no key says, then the proof.

    Args:
        found: The migration.
        console: Where to.
        everything: Whether to tell those keys, too, that need no line there or keep their name and value.
    """
    counts = {fate.value: found.count(fate) for fate in Fate}
    console.write(
        console.text(
            "migrate.head", file=found.path, dialect=found.dialect.value, release=found.release, target=found.target
        )
    )
    console.write(console.text("migrate.counts", total=len(found.entries), **counts))
    for fate in Fate:
        rows = [one for one in found.entries if one.fate is fate and (everything or _worth_telling(one))]
        if rows:
            console.write("")
            console.write(console.paint(console.text(f"migrate.fate.{fate.value}"), _COLOURS[fate]))
            _entries(rows, console)
    if found.added:
        console.write("")
        console.write(console.text("migrate.added"))
        for added in found.added:
            console.write(f"  {'.'.join(added.to)}: {_short(added.value)}")
            console.write(f"      {console.say(added.why)}")
    console.write("")
    _end(found, console)


def _worth_telling(one: KeyFate) -> bool:
    if one.fate is Fate.TRANSLATED:
        return bool(one.value != one.new)
    return one.fate is not Fate.DEFAULT


def _entries(rows: Sequence[KeyFate], console: Console) -> None:
    """Keys, and below those that share one their reason."""
    for one, following in zip_longest(rows, rows[1:]):
        line = f"  {one.line or '-':>4}  {one.name}: {_short(one.value)}"
        if one.fate is Fate.TRANSLATED:
            line += f" -> {'.'.join(one.to)}: {_short(one.new)}"
        console.write(line)
        if one.why is not None and (following is None or following.why != one.why):
            console.write(f"        {console.say(one.why)}")


def _end(found: Migration, console: Console) -> None:
    if found.refused:
        console.write(console.paint(console.text("migrate.refused"), "red"))
        _entries(found.blocking, console)
        for one_missing in found.missing:
            console.write(f"        {console.say(one_missing)}")
        return
    console.write(console.text("migrate.proof"))
    if not found.proof:
        console.write(f"  {console.text('migrate.unproved')}")
        return
    for part in found.proof:
        _part(part, console)
    if found.exit_code:
        unproved = sum(not part.holds for part in found.proof)
        console.write(console.text("migrate.open", questions=len(found.questions), unproved=unproved))
    else:
        console.write(console.paint(console.text("migrate.done"), "green"))


def _part(part: MigrationVerdict, console: Console) -> None:
    word, colour = _MARKS[part.holds]
    mark = console.paint(console.text(f"migrate.{word}"), colour)
    console.write(
        f"  {console.labelled(console.labelled(console.text(f'migrate.part.{part.name}'), mark), console.say(part.detail))}"
    )


def _short(value: object) -> str:
    text = str(value) if value != "" else "''"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def write_diff(found: Migration, name: Path | None, console: Console) -> None:
    """What differs between the two files, as a unified diff."""
    old = found.original.splitlines()
    for line in difflib.unified_diff(old, found.text.splitlines(), str(found.path), str(name or "new"), lineterm=""):
        console.write_whole(line)  # as `patch` takes it
