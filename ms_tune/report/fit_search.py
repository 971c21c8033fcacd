"""Layouts in the terminal: all by their estimates, the best few beside their dryruns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.fit.rank import PRUNED
from ms_tune.report import fit_config
from ms_tune.report.fit_text import show_report as show_plan
from ms_tune.text import Message, msg
from ms_tune.units import GIB, gib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.fit.search import SearchFit, TriedLayout
    from ms_tune.report.console import Console

_SHOWN = 10  # layouts of the ranking


def show_search(found: SearchFit, console: Console) -> None:
    """The layouts, what their dryruns showed, and the plan of the chosen one."""
    for line in _head_lines(found):
        console.write(console.say(line))
    ranked = found.ranking.candidates
    if ranked:
        console.write("")
        console.write(console.text("layouts.title.ranking", shown=min(_SHOWN, len(ranked)), count=len(ranked)))
        console.write_table(*_ranking_table(found, console), right=range(1))
    if found.tried:
        console.write("")
        console.write(console.text("layouts.title.tried"))
        console.write_table(*_tried_table(found, console), right=range(1))
    console.write("")
    for line in search_verdict(found):
        console.write(console.say(line))
    if found.best is not None:
        console.write("")
        console.write(console.text("layouts.plan"))
        console.write("")
        show_plan(fit_config.shown_of(found.best, console), console)
    console.write("")
    console.write(console.text("layouts.title.notes"))
    for line in search_notes(found):
        console.write(f"  - {console.say(line)}")


def _head_lines(found: SearchFit) -> Iterator[Message]:
    yield msg(
        "layouts.job", devices=found.devices, samples=found.samples, now=str(found.now), limit=gib(found.limit.bytes)
    )
    if found.ranking.pruned:
        yield msg("layouts.pruned", count=found.ranking.pruned, most=f"{PRUNED - 1:.0%}")
    for reason, count in refusals(found):
        yield msg("layouts.left-out", count=count, reason=reason)


def refusals(found: SearchFit) -> Iterator[tuple[Message, int]]:
    """Why layouts are left out, and how many are for one reason; of reasons in the same words the first is shown."""
    for name, count in found.refused.items():
        yield msg(f"layouts.refused.{name}"), count
    alike: dict[str, list[Message]] = {}
    for reason in found.ranking.refused:
        alike.setdefault(reason.id, []).append(reason)
    for reasons in sorted(alike.values(), key=len, reverse=True):
        yield reasons[0], len(reasons)


def _ranking_table(found: SearchFit, console: Console) -> tuple[list[str], list[list[str]]]:
    names = ("number", "layout", "micro-batches", "time", "bubble", "recomputed", "peak", "sent")
    rows = []
    for number, one in enumerate(found.ranking.candidates[:_SHOWN], 1):
        estimate = one.estimate
        rows.append(
            [
                str(number),
                str(one.layout),
                str(one.layout.micro_batches),
                f"{found.relative_time(estimate.time):.1f}",
                f"{estimate.bubble:.1%}",
                str(sum(estimate.recomputed)),
                f"{max(estimate.peak_bytes) / GIB:.1f}",
                f"{estimate.sent_bytes / GIB:.1f}",
            ]
        )
    return [console.text(f"layouts.column.{name}") for name in names], rows


def _tried_table(found: SearchFit, console: Console) -> tuple[list[str], list[list[str]]]:
    names = ("number", "layout", "estimated-time", "time", "stage", "estimated", "predicted", "dryrun", "verdict")
    places = {id(one): number for number, one in enumerate(found.ranking.candidates, 1)}
    rows = []
    for one in found.tried:
        first = [
            str(places[id(one.candidate)]),
            str(one.candidate.layout),
            f"{found.relative_time(one.candidate.estimate.time):.1f}",
        ]
        if one.fit is None or one.fit.last.report.planned is None or not one.fit.last.verified:
            time = "-" if one.time is None else f"{found.relative_time(one.time):.1f}"
            rows.append([*first, time, *["-"] * 4, console.say(one.error or _undecided_text(one))])
            continue
        for stage in one.fit.last.verified:
            outcome = stage.verdict.outcome
            rows.append(
                [
                    *first,
                    "-" if one.time is None else f"{found.relative_time(one.time):.1f}",
                    str(stage.stage),
                    f"{one.estimated_bytes[stage.stage] / GIB:.1f}",
                    f"{stage.predicted_bytes / GIB:.2f}",
                    f"{stage.peak_bytes / GIB:.2f}",
                    "-" if outcome is None else outcome.value,
                ]
            )
            first = ["", "", ""]
    return [console.text(f"layouts.column.{name}") for name in names], rows


def _undecided_text(one: TriedLayout) -> Message:
    """What is told of a layout without a dryrun of its plan."""
    short = None if one.fit is None else one.fit.last.report.shortage
    if short is None:
        return msg("layouts.not-verified")
    return msg("layouts.no-plan", stage=short.stage, over=gib(short.over_bytes))


def search_verdict(found: SearchFit) -> list[Message]:
    """What came out."""
    if found.chosen is None or found.chosen.time is None:
        runs = sum(one.fit is not None for one in found.tried)
        return [msg("layouts.none", count=runs) if found.tried else msg("layouts.only-ranked")]
    time = f"{found.relative_time(found.chosen.time):.1f}"
    return [msg("layouts.chosen", layout=str(found.chosen.candidate.layout), time=time)]


def search_notes(found: SearchFit) -> list[Message]:
    """What the figures are, and are not."""
    reference = "layouts.note.present" if found.reference is not None else "layouts.note.best"
    names = ("estimate", "time", "sent", "order", "equal")
    return [msg(reference), *(msg(f"layouts.note.{name}") for name in names)]
