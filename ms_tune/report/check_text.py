"""One screen about a job in the terminal: at most twenty lines of eighty columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.diagnostics import Severity
from ms_tune.report.check_words import against, memory, sentence
from ms_tune.report.console import pad, text_width, wrap
from ms_tune.units import gib

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.estimate.memory import Estimate
    from ms_tune.report.console import Console
    from ms_tune.workflows.check.result import Matter, Overview

_WIDTH = 80  # columns, however wide the terminal is: it is one screen everywhere
_SHOWN = 3  # matters
_LINES = 2  # of each of them
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def write_overviews(overviews: Sequence[Overview], console: Console) -> None:
    """One screen after the other."""
    for number, overview in enumerate(overviews):
        if number:
            console.write("")
        for line in _lines(overview, console):
            console.write(line)


def _lines(overview: Overview, console: Console) -> Iterator[str]:
    yield from _wrapped(_subject(overview, console))
    if overview.assumptions is not None:
        yield from _wrapped(_assumed(overview, console))
    told = memory(overview)
    if told is not None:
        first, *rest = _wrapped(console.say(told), _LINES)
        yield console.paint(first, _colour(overview))
        yield from rest
    if overview.estimate is not None and not overview.stages:
        yield from _grounds(overview.estimate, console)
    if overview.against is not None:
        yield from _wrapped(against(overview.against, console), 3)
    yield from _matters(overview, console)
    if overview.change is not None:
        yield from _wrapped(console.text("check.change", change=console.say(overview.change.text)), _LINES)
    head = console.text("check.next")
    for number, command in enumerate(overview.next):
        yield f"{pad('' if number else head, text_width(head))}{command}"


def _subject(overview: Overview, console: Console) -> str:
    subject = overview.subject
    model = console.text("check.subject.model", model=subject.model) if subject.model else ""
    layers = console.text("check.subject.layers", count=subject.layers) if subject.layers is not None else ""
    names = {"path": overview.path, "dialect": subject.dialect, "framework": subject.framework}
    return console.text("check.subject", **names, model=model, layers=layers)


def _assumed(overview: Overview, console: Console) -> str:
    seen = overview.assumptions
    assert seen is not None  # noqa: S101 - the caller has looked
    ways = {name: getattr(seen.split, name) for name in ("data", "tensor", "pipeline", "context", "expert")}
    chunks = console.text("check.assumed.chunks", count=seen.chunks) if seen.chunks > 1 else ""
    rest = {"devices": seen.devices, "source": console.say(seen.source), "micro_batches": seen.micro_batches}
    return console.text("check.assumed", **ways, **rest, chunks=chunks)


def _grounds(estimate: Estimate, console: Console) -> Iterator[str]:
    """What the estimate is made of, and what it is worth."""
    fullest = estimate.fullest
    sizes = {
        "lasting": gib(fullest.lasting_bytes),
        "activations": gib(fullest.activation_bytes),
        "passing": gib(fullest.transient_bytes),
    }
    counts = {"recomputed": fullest.recomputed, "layers": fullest.layers}
    low, high = estimate.seen_range
    yield from _wrapped(console.text("check.estimate.parts", **sizes, **counts), indent="  ")
    yield from _wrapped(console.text("check.estimate.worth", low=low, high=high), indent="  ")


def _matters(overview: Overview, console: Console) -> Iterator[str]:
    if not overview.matters:
        yield console.text("check.matters.none")
        return
    counts = {f"{severity.value}s": sum(one.severity is severity for one in overview.matters) for severity in Severity}
    yield console.text("check.matters", **counts)
    for number, one in enumerate(overview.matters[:_SHOWN], 1):
        yield from _matter(number, one, console)


def _matter(number: int, one: Matter, console: Console) -> Iterator[str]:
    where = f"{one.path.name}:{one.line}: " if one.line is not None else ""
    name = f"{one.id} {one.name}".strip() or console.text("cli.error")
    first, *rest = _wrapped(f"{number} {where}{name}: {sentence(one, console)}", _LINES, indent="  ")
    yield first.replace(name, console.paint(name, _COLOURS[one.severity]), 1)
    yield from rest


def _colour(overview: Overview) -> str:
    if overview.worst is not None:
        return ("green", "yellow", "yellow", "red")[overview.worst.verdict.severity]
    if overview.estimate is None:
        return "dim"
    return {"over": "red", "unsure": "yellow", "below": "green"}[overview.estimate.outlook.value]


def _wrapped(text: str, most: int = 3, indent: str = "") -> list[str]:
    """The text in lines of the screen's width; what is more than so many is cut off with a mark."""
    lines = wrap(text, _WIDTH - text_width(indent) - 2, prose=True)
    if len(lines) > most:
        lines = [*lines[: most - 1], f"{lines[most - 1]} …"]
    return [f"{indent}{'  ' if number else ''}{line}" for number, line in enumerate(lines)]
