"""Show the result of ``fit`` in the terminal: the plan, its reasons and alternatives, or the parts of the step time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from ms_tune.enums import RecomputeMode
from ms_tune.fit.costs import TimeExplanation
from ms_tune.planning.fit import Alternative, EvaluatedPlan, FitReport
from ms_tune.planning.time_scale import Clock
from ms_tune.report.console import Console
from ms_tune.report.page import list_html, table_html, verdict_html, write_page
from ms_tune.text import Language, Message, msg
from ms_tune.units import GIB, gib


def fit_page(report: FitReport, console: Console) -> FitPage:
    """Return all parts of the result screen for a table's plan."""
    plan = report.planned or report.nearest
    heads, rows = _stage_table(report, plan, console) if plan is not None else ([], [])
    lists = report.planned.plan.to_json() if report.planned is not None else {}
    return FitPage(
        report=report,
        good=report.planned is not None,
        assumptions=(),
        verdict=(verdict_of(report), *step_times(report), *stop_notes(report)),
        heads=heads,
        rows=rows,
        change="\n".join(f"{name}: {cells}" for name, cells in lists.items()),
        sections=(
            ("fit.title.why", reasons_of(report)),
            ("fit.title.others", alternatives_of(report)),
            ("fit.title.remedies", remedies_of(report)),
            ("fit.title.notes", notes_of(report)),
        ),
        next_step="more",
    )


def _stage_table(report: FitReport, plan: EvaluatedPlan, console: Console) -> tuple[list[str], list[list[str]]]:
    names = ("stage", "peak", "free", "layers", "recompute", "before")
    rows = []
    for stage, peak in enumerate(plan.peak_bytes):
        rows.append(
            [
                str(stage),
                f"{peak / GIB:.2f}",
                f"{(report.table.limit_bytes - peak) / GIB:.2f}",
                *layer_cells(report, plan, stage),
            ]
        )
    return [console.text(f"fit.column.{name}") for name in names], rows


def layer_cells(report: FitReport, plan: EvaluatedPlan, stage: int) -> tuple[str, str, str]:
    """Return a stage's layers per chunk, its recomputation, and both in the current plan."""
    cells = plan.cells[stage :: report.table.stages]
    before = report.reference.cells[stage :: report.table.stages] if report.has_present else ()
    return (
        " + ".join(str(sum(cell.values())) for cell in cells),
        " | ".join(map(recomputed_layers, cells)),
        " | ".join(f"{sum(cell.values())}: {recomputed_layers(cell)}" for cell in before),
    )


NUMBERS = 2  # number columns in the table of stages


@dataclass(frozen=True, slots=True)
class FitPage:
    """The parts of a result screen, in order."""

    report: FitReport  # the plan, or the reason for its absence
    good: bool  # whether a plan was found and, if requested, verified
    assumptions: Sequence[Message]  # the pipeline and its limit
    verdict: Sequence[Message]  # the result; the first sentence is the verdict
    heads: Sequence[str]  # column names of the table of stages
    rows: Sequence[Sequence[str]]  # one per stage; empty without a plan
    change: str  # the lines to write
    # Sentences by the text ID of their title; titles without sentences are omitted.
    sections: Sequence[tuple[str, Sequence[Message]]]
    next_step: str  # last part of the text ID of the next step
    changed_file: str = ""  # the config that a diff in `change` applies to


def show_report(
    shown: FitPage, console: Console, *, verbose: bool = False, quiet: bool = False, written: bool = False
) -> None:
    """Print the verdict, the change and the next step; with ``verbose`` all parts, with ``quiet`` only the verdict.

    ``written`` is set if this run writes the plan into the config.
    """
    colour = "green" if shown.good else "red"
    for sentence in shown.verdict[: 1 if quiet else None]:
        console.write(console.paint(console.say(sentence), colour))
    if quiet:
        return
    if verbose:
        _show_evidence(shown, console)
    else:
        _show_short(shown, console)
    console.write("")
    step = "more" if written and shown.next_step == "write" else shown.next_step
    console.write_text("fit.next", what=msg(f"fit.next.{step}"))


def _show_evidence(shown: FitPage, console: Console) -> None:
    if shown.assumptions:
        console.write("")
    console.write_lines(shown.assumptions)
    if shown.rows:
        console.write("")
        console.write_table(shown.heads, shown.rows, right=range(NUMBERS))
    if shown.change:
        console.write(f"\n{shown.change}")
    for title, lines in shown.sections:
        if lines:
            console.write(f"\n{console.text(title)}")
            console.write_lines(lines, "  - ")


_FEW = 3  # remedies on the default screen


def _show_short(shown: FitPage, console: Console) -> None:
    lines = shown.change.split("\n") if shown.change else []
    if shown.changed_file:
        lines = [line for line in lines if line[:1] in "+-" and line[:3] not in {"+++", "---"}]
        console.write_section("fit.title.change", file=shown.changed_file)
    elif lines:
        console.write("")
    for line in lines:
        console.write_raw(line)
    if shown.good:
        if others := _other_plans(shown.report, console):
            console.write_section("fit.alternatives", plans=console.listed(others))
        return
    for title, sentences in shown.sections:
        if title == "fit.title.remedies" and sentences:
            console.write_section(title)
            console.write_lines(sentences[:_FEW], "  - ")


def _other_plans(report: FitReport, console: Console) -> list[str]:
    # Only plans that differ: of equally fast ones, those with more headroom.
    assert report.planned is not None  # noqa: S101 - checked by the caller
    time = report.planned.time
    return [
        console.text("fit.alternative", name=_other_name(other), more=f"{other.time / time - 1:+.2%}")
        for other in report.alternatives
        if other.time is not None and (other.time > time or (other.time == time and other.name == "one-gib-to-spare"))
    ]


_MANY_CELLS = 3  # cells of the critical path that are named


def relative_time(report: FitReport, time: float) -> str:
    """Return a time relative to the reference, which is 100."""
    return f"{report.relative_time(time):.2f}"


def verdict_of(report: FitReport, state: str = "estimated", *, present_fails: bool = False) -> Message:
    """Return the verdict in one sentence."""
    if report.planned is None:
        assert report.shortage is not None  # noqa: S101 - set whenever a plan is missing
        short = report.shortage
        if short.at_least_bytes:
            return msg("fit.nothing-fits", over=gib(short.at_least_bytes), limit=gib(report.table.limit_bytes))
        return msg("fit.nothing-found", over=gib(short.over_bytes), stage=short.stage)
    change = _change_of(report, report.planned.time, present_fails=present_fails)
    params = {"state": msg(f"fit.state.{state}"), "change": change}
    if report.optimal:
        return msg("fit.optimal", **params)
    if report.gap is None:
        return msg("fit.planned-unbounded", **params)
    return msg("fit.planned", **params, gap=f"{report.gap:.2%}")


_SAME = 5e-5  # relative; smaller differences are ignored


def _change_of(report: FitReport, time: float, *, present_fails: bool) -> Message:
    name = "even"
    if report.has_present:
        exceeds = max(report.reference.peak_bytes) > report.table.limit_bytes
        name = "fails" if present_fails else "exceeds" if exceeds else "present"
    more = time / report.reference.time - 1
    reference = msg(f"fit.reference.{name}")
    if abs(more) < _SAME:
        return msg("fit.change.same", reference=reference)
    direction = "faster" if more < 0 else "slower"
    return msg(f"fit.change.{direction}", reference=reference, percent=f"{100 * abs(more):.3g}%")


def stop_notes(report: FitReport) -> list[Message]:
    """Return a note if the user stopped the search."""
    return [msg("fit.note.stopped")] if report.stopped else []


def step_times(report: FitReport) -> list[Message]:
    """Return the step time in seconds, if times were measured."""
    plan, now = report.planned, report.seconds(report.reference.time)
    if plan is None or now is None:
        return []
    after, bound = report.seconds(plan.time), report.seconds(report.lower_bound)
    sizes = {"after": _time_text(after), "now": _time_text(now), "bound": _time_text(bound)}
    if not report.clock.times:
        return [msg("fit.seconds.step", **sizes)]
    if report.clock.step_seconds is None:
        return [msg("fit.seconds.times", **sizes)]
    return [msg("fit.seconds.both", **sizes, rest=_time_text(report.seconds(0.0)))]


def _time_text(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.4g} s"


def clock_notes(clock: Clock) -> list[Message]:
    """Return notes on the origin of times: relative, or from measured steps and layers."""
    if not clock.runs:
        return [msg("fit.note.relative")]
    both = clock.step_seconds is not None and bool(clock.times)
    kind = "both" if both else "times" if clock.times else "step"
    return [*clock.notes, msg(f"fit.note.clock.{kind}")]


def reasons_of(report: FitReport) -> list[Message]:
    """Return the reasons for the plan: memory, critical path, and the gain from more memory."""
    plan, stage = report.planned, report.binding_stage
    if plan is None:
        return []
    free = report.table.limit_bytes - plan.peak_bytes[stage]
    found = [msg("fit.why.memory", stage=stage, free=gib(free), peak=gib(plan.peak_bytes[stage]))]
    cells = [
        msg("fit.why.cell", chunk=cell // report.table.stages, stage=cell % report.table.stages, share=f"{share:.0%}")
        for cell, share in report.critical[:_MANY_CELLS]
    ]
    found.append(msg("fit.why.path", cells=_join_messages(cells), bubble=f"{plan.bubble:.1%}"))
    if report.one_gib_more is not None:
        gain = 1 - report.one_gib_more / plan.time if plan.time else 0.0
        name = "fit.why.gib" if gain > 0 else "fit.why.gib-nothing"
        found.append(msg(name, stage=stage, gain=f"{gain:.2%}", time=relative_time(report, report.one_gib_more)))
    elif not report.stopped:
        found.append(msg("fit.why.free"))
    return found


def alternatives_of(report: FitReport) -> list[Message]:
    """Return the alternative plans with their times."""
    found = []
    for other in report.alternatives:
        name = _other_name(other)
        if other.time is None:
            found.append(msg("fit.other.none", name=name))
        elif report.planned is not None:
            more = other.time / report.planned.time - 1 if report.planned.time else 0.0
            found.append(msg("fit.other", name=name, time=relative_time(report, other.time), more=f"{more:+.2%}"))
    return found


def _other_name(other: Alternative) -> Message:
    name = msg(f"fit.other.{other.name}")
    return msg("fit.other.refuted", name=name) if other.refuted else name


def remedies_of(report: FitReport) -> list[Message]:
    """Return ways to make a plan fit, with the memory that each frees."""
    return [
        msg(
            "fit.remedy",
            name=msg(f"fit.remedy.{remedy.name}"),
            freed=gib(remedy.freed_bytes),
            enough=msg("fit.remedy.enough" if remedy.fits else "fit.remedy.not-enough"),
        )
        for remedy in report.remedies
    ]


def notes_of(report: FitReport) -> list[Message]:
    """Return notes on the figures."""
    reference = "fit.note.present" if report.has_present else "fit.note.even"
    found = [msg(reference), *clock_notes(report.clock)]
    if report.planned is not None:
        found.append(msg("fit.note.not-verified"))
    return found


def recomputed_layers(cell: Mapping[RecomputeMode, int]) -> str:
    """Return the recomputation of a cell, such as ``full 3, select 2``."""
    return ", ".join(f"{kind.value} {count}" for kind, count in cell.items() if count and kind.value != "none") or "-"


def _join_messages(messages: list[Message]) -> Message:
    found = messages[0]
    for message in messages[1:]:
        found = msg("fit.why.and", first=found, second=message)
    return found


TIME_PARTS = ("work", "recompute", "fill", "imbalance")


def show_explanation(found: TimeExplanation, console: Console) -> None:
    """Print the parts of the step time, then the stages."""
    sizes = found.table
    params = {"layers": sizes.layer_count, "stages": sizes.stages, "chunks": sizes.chunks}
    order = sizes.order.value
    console.write_text("fitting.pipeline", **params, micro_batches=sizes.micro_batches, order=order)
    console.write_section("fitting.explain.title")
    for name in TIME_PARTS:
        share = getattr(found.parts, name)
        seconds = "" if found.seconds is None else f"  {share * found.seconds:10,.3f} s"
        console.write(f"  {share:6.1%}{seconds}  {console.text(f'fitting.explain.{name}')}")
    console.write("")
    rows = []
    for stage, busy in enumerate(found.parts.busy):
        cells = found.cells[stage :: sizes.stages]
        layers = " + ".join(str(sum(cell.values())) for cell in cells)
        rows.append([str(stage), f"{busy:.1%}", layers, " | ".join(map(recomputed_layers, cells))])
    heads = [console.text(f"fitting.explain.column.{name}") for name in ("stage", "busy", "layers", "recompute")]
    console.write_table(heads, rows, right=range(2))
    console.write("")
    if any(kind.value == "swap" and count for cell in found.cells for kind, count in cell.items()):
        console.write_text("fitting.note.swap-hidden")
    if found.clock.runs:
        console.write_lines(clock_notes(found.clock))
    if not found.clock.times:
        console.write_text("fitting.note.costs" if found.costs.known else "fitting.note.no-costs")


_WIDTH, _ROW, _LEFT, _TOP = 1160.0, 26.0, 60.0, 8.0
_NARROW = 0.05  # in time units; narrower passes are not drawn
# Colours of forward and backward passes by chunk; further chunks start over.
_FORWARD = ("#3d7ea6", "#5b9bc0", "#86b8d4", "#2c5f7f")
_BACKWARD = ("#d98544", "#e4a36f", "#efc09b", "#b5682d")


def plan_page(show: Callable[[Console], FitPage], sources: Iterable[object], language: Language) -> str:
    """Return the HTML page, without scripts and external resources."""
    return write_page("fit.page.title", sources, lambda console: _page_parts(show(console), console), language)


def _page_parts(shown: FitPage, console: Console) -> Iterator[str]:
    yield verdict_html(map(console.say, shown.verdict), good=shown.good)
    yield from (f"<p>{escape(console.say(line))}</p>" for line in shown.assumptions)
    planned = shown.report.planned
    if planned is not None and planned.passes:
        caption = escape(console.text("fit.page.picture"))
        yield f"<figure>{_schedule_picture(shown.report, planned, caption)}<figcaption>{caption}</figcaption></figure>"
    yield from table_html(console.text("fit.page.stages"), shown.heads, shown.rows, NUMBERS)
    if shown.change:
        yield f"<pre>{escape(shown.change)}</pre>"
    for title, lines in shown.sections:
        yield from list_html(map(console.say, lines), console.text(title))


def _schedule_picture(report: FitReport, plan: EvaluatedPlan, title: str) -> str:
    height = _TOP + _ROW * report.table.stages + _TOP
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + _TOP:g} {height:g}" role="img" ',
            f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor"><title>{title}</title>',
            *_stage_rows(report.table.stages),
            *_pass_rectangles(plan),
            "</svg>",
        ]
    )


def _stage_rows(stages: int) -> Iterator[str]:
    for stage in range(stages):
        top = _TOP + _ROW * stage
        yield f'<rect x="{_LEFT:g}" y="{top:g}" width="{_WIDTH:g}" height="{_ROW - 4:g}" fill="#88909c" fill-opacity="0.2"/>'
        yield f'<text x="8" y="{top + 16:g}">{stage}</text>'


def _pass_rectangles(plan: EvaluatedPlan) -> Iterator[str]:
    for one in plan.passes:
        width = one.length * _WIDTH
        if width < _NARROW:
            continue
        colours: Sequence[str] = _FORWARD if one.forward else _BACKWARD
        colour = colours[one.chunk % len(colours)]
        left, top = _LEFT + one.start * _WIDTH, _TOP + _ROW * one.stage
        yield (
            f'<rect x="{left:.2f}" y="{top:g}" width="{width:.2f}" height="{_ROW - 4:g}" fill="{colour}" '
            'stroke="#fff" stroke-width="0.4"/>'
        )
