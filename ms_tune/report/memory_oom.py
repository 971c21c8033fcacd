"""What a log tells of memory that ran out, in the terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.footprint.remedies import DYNAMIC, STATIC, TORCH
from ms_tune.report.console import pad
from ms_tune.report.memory_words import size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ms_tune.footprint.remedies import Method
    from ms_tune.readers.oom_log import MemoryFailure
    from ms_tune.report.console import Console

VERSION, _LABEL = 1, 22


def failure_json(failure: MemoryFailure, first: Sequence[Method], source: Path, console: Console) -> dict[str, object]:
    """The object that ``ms-tune memory LOG --json`` prints."""
    place = 0 if console.language.value == "en" else 1
    return {
        "version": VERSION,
        "kind": "out-of-memory",
        "source": str(source),
        "framework": failure.framework,
        "line": failure.line,
        "wanted_bytes": failure.wanted,
        "limit_bytes": failure.limit,
        "free_bytes": failure.free,
        "used_bytes": failure.used,
        "held_bytes": failure.held,
        "cause": failure.cause,
        "short_bytes": failure.short,
        "operator": failure.operator or None,
        "where": failure.where or None,
        "remedies": [
            {
                "name": method.name,
                "title": method.title[place],
                "bytes_freed": None,
                "peak_after_bytes": None,
                "price": method.price[place],
                "how": method.how(_dialects(failure), console.language),
            }
            for method in first
            if method.how(_dialects(failure), console.language)
        ],
        "how_to_trace": console.text(_trace_text(failure)),
    }


def _dialects(failure: MemoryFailure) -> tuple[str, ...]:
    return TORCH if failure.framework.startswith("torch") else (*STATIC, *DYNAMIC)


def show_failure(failure: MemoryFailure, first: Sequence[Method], console: Console) -> None:
    """What was asked, what was free, why, where, and what to do first."""
    wanted = size(failure.wanted) if failure.wanted is not None else console.text("oom.untold")
    console.write(console.text("oom.title", framework=failure.framework, wanted=wanted, line=failure.line))
    console.write(console.text(f"oom.cause.{failure.cause}"))
    console.write("")
    for name in ("wanted", "free", "used", "held", "limit"):
        amount = getattr(failure, name)
        if amount is not None:
            console.write(f"{pad(console.text(f'oom.{name}'), _LABEL)}{size(amount):>12}")
    if failure.short:
        console.write(console.text("oom.short", size=size(failure.short)))
    for name in ("operator", "where"):
        if getattr(failure, name):
            console.write(f"{pad(console.text(f'oom.{name}'), _LABEL)}   {getattr(failure, name)}")
    console.write("")
    console.write(console.text("oom.remedies"))
    place = 0 if console.language.value == "en" else 1
    if failure.cause == "fragments":
        console.write(
            f"  {console.text('oom.fragments.torch' if failure.framework.startswith('torch') else 'oom.fragments')}"
        )
    for method in (method for method in first if method.how(_dialects(failure), console.language)):
        how = method.how(_dialects(failure), console.language)
        console.write(f"  {method.title[place]}: {how}")
    console.write(console.text(_trace_text(failure)))


def _trace_text(failure: MemoryFailure) -> str:
    return "oom.trace.torch" if failure.framework.startswith("torch") else "oom.trace.mindspore"
