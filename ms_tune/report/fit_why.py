"""Sentences about a plan: why it is as it is, what it costs, what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.text import Message, msg
from ms_tune.units import gib

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.enums import RecomputeMode
    from ms_tune.planning.fit import FitReport
    from ms_tune.planning.time_scale import Clock

_MANY_CELLS = 3  # on the longest path that are named


def relative(report: FitReport, time: float) -> str:
    """A time where 100 is the reference."""
    return f"{report.relative(time):.2f}"


def verdict(report: FitReport) -> Message:
    """What came out, in one sentence."""
    if report.planned is None:
        assert report.shortage is not None  # noqa: S101 - there is one where there is no plan
        short = report.shortage
        if short.at_least_bytes:
            return msg("fit.nothing-fits", over=_size(short.at_least_bytes), limit=gib(report.table.limit_bytes))
        return msg("fit.nothing-found", over=_size(short.over_bytes), stage=short.stage)
    figures = {"time": relative(report, report.planned.time), "bound": relative(report, report.lower_bound)}
    if report.optimal:
        return msg("fit.optimal", **figures)
    return msg("fit.planned", **figures, gap=f"{report.gap or 0:.2%}")


def seconds(report: FitReport) -> list[Message]:
    """The step in seconds, where something was measured."""
    plan, now = report.planned, report.seconds(report.reference.time)
    if plan is None or now is None:
        return []
    after, bound = report.seconds(plan.time), report.seconds(report.lower_bound)
    sizes = {"after": _time(after), "now": _time(now), "bound": _time(bound)}
    if not report.clock.times:
        return [msg("fit.seconds.step", **sizes)]
    if report.clock.step_seconds is None:
        return [msg("fit.seconds.times", **sizes)]
    return [msg("fit.seconds.both", **sizes, rest=_time(report.seconds(0.0)))]


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.4g} s"


def clock_notes(clock: Clock) -> list[Message]:
    """What the times are: relative, or from what was measured, and what of it."""
    if not clock.runs:
        return [msg("fit.note.relative")]
    both = clock.step_seconds is not None and bool(clock.times)
    kind = "both" if both else "times" if clock.times else "step"
    return [*clock.notes, msg(f"fit.note.clock.{kind}")]


def reasons(report: FitReport) -> list[Message]:
    """Why the plan is as it is: memory, time, and what more memory would buy."""
    plan, stage = report.planned, report.binding_stage
    if plan is None:
        return []
    free = report.table.limit_bytes - plan.peak_bytes[stage]
    found = [msg("fit.why.memory", stage=stage, free=_size(free), peak=gib(plan.peak_bytes[stage]))]
    cells = [
        msg("fit.why.cell", chunk=cell // report.table.stages, stage=cell % report.table.stages, share=f"{share:.0%}")
        for cell, share in report.critical[:_MANY_CELLS]
    ]
    found.append(msg("fit.why.path", cells=_joined(cells), bubble=f"{plan.bubble:.1%}"))
    if report.one_gib_more is not None:
        gain = 1 - report.one_gib_more / plan.time if plan.time else 0.0
        name = "fit.why.gib" if gain > 0 else "fit.why.gib-nothing"
        found.append(msg(name, stage=stage, gain=f"{gain:.2%}", time=relative(report, report.one_gib_more)))
    elif not report.stopped:
        found.append(msg("fit.why.free"))
    return found


def others(report: FitReport) -> list[Message]:
    """Other plans and what they cost."""
    found = []
    for other in report.alternatives:
        name = msg(f"fit.other.{other.name}")
        if other.time is None:
            found.append(msg("fit.other.none", name=name))
        elif report.planned is not None:
            more = other.time / report.planned.time - 1 if report.planned.time else 0.0
            found.append(msg("fit.other", name=name, time=relative(report, other.time), more=f"{more:+.2%}"))
    return found


def remedies(report: FitReport) -> list[Message]:
    """What would help where nothing fits."""
    return [
        msg(
            "fit.remedy",
            name=msg(f"fit.remedy.{remedy.name}"),
            freed=_size(remedy.freed_bytes),
            enough=msg("fit.remedy.enough" if remedy.fits else "fit.remedy.not-enough"),
        )
        for remedy in report.remedies
    ]


def notes(report: FitReport) -> list[Message]:
    """What the figures are, and are not."""
    reference = "fit.note.present" if report.has_present else "fit.note.even"
    found = [msg(reference), *clock_notes(report.clock)]
    if report.planned is not None:
        found.append(msg("fit.note.not-verified"))
    if report.stopped:
        found.insert(0, msg("fit.note.stopped"))
    return found


def recomputed(cell: Mapping[RecomputeMode, int]) -> str:
    """What a cell recomputes, such as ``full 3, select 2``."""
    return ", ".join(f"{kind.value} {count}" for kind, count in cell.items() if count and kind.value != "none") or "-"


def _size(size: int) -> str:
    return gib(size)


def _joined(messages: list[Message]) -> Message:
    found = messages[0]
    for message in messages[1:]:
        found = msg("fit.why.and", first=found, second=message)
    return found
