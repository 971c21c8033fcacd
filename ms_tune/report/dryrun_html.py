"""The report of a simulated job for the browser: that of ``memory``, and what the job should hold by theory.

The table of theory is plain HTML, so that the page's content security policy stays as strict as it is.
"""

from __future__ import annotations

import html
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ms_tune.footprint.breakdown import Theory
from ms_tune.report import memory_html
from ms_tune.report.page import in_both_languages, table_html
from ms_tune.report.words import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dryrun.reading import JobReport
    from ms_tune.dryrun.result import StageResult
    from ms_tune.report.console import Console
    from ms_tune.text import Language


def report_html(report: JobReport, language: Language) -> str:
    """The page.

    Args:
        report: The job.
        language: The language that the page starts in.
    """
    memory = report.memory
    if not report.stages:
        return memory_html.report_html(memory, None, language)
    # Theory from the model's sizes takes the place of what the page would guess from the weights that it sees.
    ranks = tuple(
        replace(rank, theory=Theory(rank.theory.weights_bytes, rank.theory.parameters, (), None, None))
        if stage.theory
        else rank
        for rank, stage in zip(memory.ranks, report.stages, strict=True)
    )
    section = in_both_languages(partial(_theory_parts, report.stages), "section")
    return memory_html.report_html(replace(memory, ranks=ranks), None, language, section)


def _theory_parts(stages: tuple[StageResult, ...], console: Console) -> Iterator[str]:
    names = ("stage", "rank", "measured", "theory", "difference", "content")
    rows = []
    for stage in stages:
        numbers = [str(stage.run.stage), str(stage.run.rank)]
        for pair in stage.theory:
            apart = "–" if pair.difference is None else f"{pair.difference:+.3%}"
            sizes = [size_text(pair.measured), size_text(pair.expected), apart]
            rows.append([*numbers, *sizes, console.text(f"memory.content.{pair.content}")])
        if not stage.theory:
            rows.append([*numbers, "", "", "", console.text("dryrun.page.unknown")])
    heads = [console.text(f"dryrun.page.{name}") for name in names]
    yield from table_html(console.text("dryrun.page.title"), heads, rows, len(heads) - 1)
    yield f'<p class="hint">{html.escape(console.text("dryrun.page.hint"))}</p>'
