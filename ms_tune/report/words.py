"""Format values that several commands share: verdicts, doubts about figures, sizes, places and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.enums import MemoryCategory
from ms_tune.report.console import Console, fold, pad, terminal_width
from ms_tune.text import Message, msg
from ms_tune.units import GIB, KIB, MIB, gib, mib, short_gib
from ms_tune.verdict.outcome import Fit, Verdict

_INSTALLATION = r"(?:/[^\s/:'\"()]+)*/(?:(?:site|dist)-packages/|lib(?:64)?/python3\.\d+/|mindspore/python/(?=mindspore/)|(?=ms_tune/))"
_COLOURS = {Fit.FITS: "green", Fit.TIGHT: "yellow", Fit.DOES_NOT_FIT: "red", None: "yellow"}


def verdict_word(verdict: Verdict | None, console: Console) -> str:
    """Return the state for a table cell; a dash without a verdict."""
    if verdict is None:
        return "–"
    return console.text(f"verdict.word.{verdict.outcome.value if verdict.outcome else 'none'}")


def verdict_sentence(verdict: Verdict, console: Console, stage: int | None = None) -> str:
    """Return the verdict in its colour, about the decisive stage if given."""
    return console.paint(console.say(verdict.sentence_about(stage)), _COLOURS[verdict.outcome])


def verdict_line(verdict: Verdict, console: Console, stage: int | None = None) -> str:
    """Return the first line of a screen, which ``--quiet`` shows alone."""
    return console.text("verdict.line.verdict", sentence=verdict_sentence(verdict, console, stage))


def evidence_lines(verdict: Verdict, console: Console) -> Iterator[str]:
    """Yield the evidence for a verdict: need, reserve and limit."""
    for ground in verdict.grounds:
        yield from fold(f"  - {console.say(ground)}", terminal_width())


def verdict_lines(verdict: Verdict, console: Console) -> Iterator[str]:
    """Yield the verdict, then its evidence."""
    yield verdict_line(verdict, console)
    yield from evidence_lines(verdict, console)


def verdict_json(verdict: Verdict) -> dict[str, object]:
    """Return the verdict's keys, common to all commands; sizes are bytes."""
    return {
        "verdict": verdict.outcome,
        "no_verdict_because": verdict.no_verdict_because,
        "limit_bytes": verdict.limit and verdict.limit.bytes,
        "limit_source": verdict.limit and verdict.limit.source,
        "reserve": {item.name: item.bytes for item in verdict.reserve},
    }


def doubt_line(doubt: Diagnostic, label: str, console: Console) -> str:
    """Return a doubt about figures as one line."""
    hint = f" ({console.say(doubt.help)})" if doubt.help else ""
    return f"{console.labelled(label, console.say(doubt.message))}{hint} [{doubt.id}]"


def doubt_json(doubt: Diagnostic) -> dict[str, object]:
    """Return a doubt about figures as JSON."""
    serious = doubt.severity is Severity.ERROR
    return {"id": doubt.id, "serious": serious, "message": doubt.message, "hint": doubt.help}


# Columns with words; all others contain numbers.
_WORDS = {
    *("content", "operator", "where", "tensor", "layer", "parameter", "remark", "verdict", "remedy", "price"),
    *("setting", "settings", "fits", "figure", "scenario", "cause"),
}
_LABEL = 22  # width of a figure's label
_PARTS, _PLACE = 3, 44  # for a location: number of last parts, number of last characters


def show_table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], room: str = "memory") -> None:
    """Show a table with column names from a command's texts; numbers are right-aligned and never shortened."""
    right = {place for place, name in enumerate(columns) if name not in _WORDS}
    console.write_table([console.text(f"{room}.column.{name}") for name in columns], rows, right=right)


def by_name(contents: Mapping[MemoryCategory, int]) -> dict[str, int]:
    """Return bytes by category name, as in JSON."""
    return {content.value: amount for content, amount in contents.items()}


def largest_contents(contents: Mapping[MemoryCategory, int], most: int, console: Console) -> str:
    """Return the largest categories with their sizes."""
    found = sorted(contents.items(), key=lambda item: -item[1])[:most]
    return console.listed(
        f"{console.text(f'memory.content.{content.value}')} {size_text(amount)}" for content, amount in found
    )


def largest_in_gib(contents: Mapping[MemoryCategory, int], console: Console) -> str:
    """Return the three largest categories with their GiB, for a line that names the unit."""
    found = sorted(((content, amount) for content, amount in contents.items() if amount), key=lambda item: -item[1])[:3]
    names = (f"{console.text(f'memory.content.{content.value}')} {short_gib(amount)}" for content, amount in found)
    return console.listed(name.removesuffix(" GiB") for name in names)


def number_or_dash(value: int | None) -> str:
    """Return a number, or a dash for None."""
    return "–" if value is None else str(value)


def size_text(amount: int) -> str:
    """Return bytes in a readable unit."""
    if 0 < amount < MIB // 10:
        return f"{amount / KIB:,.1f} KiB"
    return gib(amount) if amount >= GIB else mib(amount)


def signed_text(amount: int) -> str:
    """Return a signed difference of bytes."""
    return ("+" if amount > 0 else "−" if amount < 0 else "") + size_text(abs(amount))


def shorten_location(where: str) -> str:
    """Shorten a long place to its last parts: ``…/27-TransformerLayer/mlp-MLP``."""
    parts = where.split("/")
    short = where if len(parts) <= _PARTS else "…/" + "/".join(parts[-_PARTS:])
    return short if len(short) <= _PLACE else "…" + short[1 - _PLACE :]


def drop_installation(text: str) -> str:
    """Shorten paths of installed code in a text: ``mindspore/nn/cell.py:42`` without the folders of the installation."""
    return re.sub(_INSTALLATION, "", text)


def listed_numbers(numbers: Iterable[int]) -> Message:
    """Return numbers as a list with "and" before the last one."""
    *some, end = map(str, numbers)
    return msg("cli.and", some=", ".join(some), end=end)


def write_figure(console: Console, text_id: str, amount: str, note: str = "") -> None:
    """Write a figure in a line: label, size, note."""
    console.write(f"{pad(console.text(text_id), _LABEL)}{amount:>12}   {note}".rstrip())
