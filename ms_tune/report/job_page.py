"""Write one page about a job, to send to others: verdict, findings, layers, estimate, simulated memory, next commands."""

from __future__ import annotations

import html
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ms_tune.dialects import LayerPlan
from ms_tune.report.check import screen_lines, verdict_line
from ms_tune.report.console import Console
from ms_tune.report.normalize_text import layer_table, stages_sentence
from ms_tune.report.page import list_html, table_html, verdict_html, write_page
from ms_tune.report.words import drop_installation, number_or_dash, size_text, verdict_word
from ms_tune.text import Language
from ms_tune.workflows.check.result import Overview

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.footprint.result import MemoryReport, RankReport

_MOST = 200  # rows of a table


def job_page(
    source: Path,
    overview: Overview | None,
    plan: LayerPlan | None,
    memory: MemoryReport | None,
    language: Language,
) -> str:
    """Return the page of a file, its simulated run, or both."""
    return write_page("report.title", [source.name], partial(_parts, overview, plan, memory), language)


def _parts(
    overview: Overview | None, plan: LayerPlan | None, memory: MemoryReport | None, console: Console
) -> Iterator[str]:
    if memory is not None:
        good = all(rank.verdict.is_good(allow_tight=False) for rank in memory.ranks)
        yield verdict_html(map(console.say, (memory.worst.verdict.sentence, *memory.worst.verdict.grounds)), good=good)
    elif overview is not None:
        good = overview.estimate is not None and not overview.is_over and not overview.has_errors
        yield verdict_html([verdict_line(overview, console)], good=good)
    if overview is not None:
        yield from list_html(screen_lines(overview, console), console.text("report.check"))
        yield from _findings(overview, console)
    if plan is not None and plan.layers:
        heads, rows = layer_table(plan, console)
        yield from table_html(console.text("report.layers"), heads, rows[:_MOST], 4)
        yield f"<p>{html.escape(stages_sentence(plan, console))}</p>"
    if overview is not None and overview.estimate is not None:
        yield from _estimate(overview, console)
    if memory is not None:
        yield from _simulation(memory, console)
    if overview is not None:
        commands = "\n".join(overview.next)
        yield f"<h2>{html.escape(console.text('report.next'))}</h2><pre>{html.escape(commands)}</pre>"


def _findings(overview: Overview, console: Console) -> Iterator[str]:
    heads = [console.text(f"report.column.{name}") for name in ("place", "level", "check", "finding", "help")]
    rows = [
        [
            f"{one.path.name}:{one.line}" if one.line else one.path.name,
            console.text(f"lint.severity.{one.severity.value}"),
            f"{one.id} {one.name}".strip(),
            console.say(one.text),
            console.say(one.help) if one.help is not None else "",
        ]
        for one in overview.matters
    ]
    title = console.text("report.findings")
    if rows:
        yield from table_html(title, heads, rows[:_MOST], 0)
    else:
        yield from list_html([console.text("check.matters.none")], title)


def _estimate(overview: Overview, console: Console) -> Iterator[str]:
    assert overview.estimate is not None  # noqa: S101 - checked by the caller
    names = ("stage", "layers", "recomputed", "lasting", "activations", "transient", "peak", "limit")
    rows = [
        [
            *map(str, (one.stage, one.layers, one.recomputed)),
            *map(size_text, (one.lasting_bytes, one.activation_bytes, one.transient_bytes, one.peak_bytes)),
            size_text(overview.estimate.limit.bytes),
        ]
        for one in overview.estimate.stages
    ]
    heads = [console.text(f"report.column.{name}") for name in names]
    yield from table_html(console.text("report.estimate"), heads, rows[:_MOST], len(names))


def _simulation(memory: MemoryReport, console: Console) -> Iterator[str]:
    has_stages = any(stage is not None for stage in memory.stages)
    names = ["stage"] * has_stages + ["rank", "need", "limit", "verdict"]
    rows = [
        [number_or_dash(stage)] * has_stages + _verdict_row(rank, console)
        for stage, rank in zip(memory.stages, memory.ranks, strict=True)
    ]
    heads = [console.text(f"report.column.{name}") for name in names]
    yield from table_html(console.text("report.simulated"), heads, rows[:_MOST], len(names) - 1)
    worst = memory.worst
    title = console.text("report.memory", rank=number_or_dash(worst.rank))
    contents = [
        [size_text(size), console.text(f"memory.content.{content.value}")]
        for content, size in sorted(worst.peak.contents.items(), key=lambda item: -item[1])
        if size
    ]
    heads = [console.text(f"report.column.{name}") for name in ("size", "category")]
    yield from table_html(title, heads, contents, 1)
    if worst.sample is not None:
        note = console.text("memory_html.sample", run=worst.sample[0], layers=worst.sample[1])
        yield f"<p>{html.escape(note)}</p>"
    holders = [
        [
            size_text(one.bytes),
            str(one.count),
            console.text(f"memory.content.{one.category.value}"),
            one.operator,
            drop_installation(one.where),
        ]
        for one in worst.peak.holders[:20]
    ]
    heads = [console.text(f"report.column.{name}") for name in ("size", "blocks", "category", "operator", "code")]
    yield from table_html(console.text("report.holders"), heads, holders, 2)
    remedies = [
        console.text(
            "remedies.line", size=size_text(one.bytes_freed), title=console.say(one.title), price=console.say(one.price)
        )
        for one in worst.remedies
    ]
    yield from list_html(remedies, console.text("report.remedies"))


def _verdict_row(rank: RankReport, console: Console) -> list[str]:
    need, limit = rank.verdict.need, rank.verdict.limit
    sizes = [
        size_text(need.footprint_bytes) if need is not None else "–",
        size_text(limit.bytes) if limit is not None else "–",
    ]
    return [number_or_dash(rank.rank), *sizes, verdict_word(rank.verdict, console)]
