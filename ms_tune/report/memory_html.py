"""The report of ``memory`` about a trace for the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.report.memory_bands import bands_of
from ms_tune.report.memory_html_blocks import packed_blocks
from ms_tune.report.memory_html_page import POINTS, both, document
from ms_tune.report.memory_json import phase_name
from ms_tune.report.memory_words import by_name
from ms_tune.text import Language, msg
from ms_tune.verdict.outcome import Fit

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic
    from ms_tune.footprint.breakdown import BlockGroup
    from ms_tune.footprint.remedies import MemoryRemedy
    from ms_tune.footprint.result import MemoryReport, RankReport
    from ms_tune.memory.diff import Comparison, RankComparison
    from ms_tune.verdict.outcome import Verdict

_KINDS = {Fit.FITS: "good", Fit.TIGHT: "tight", Fit.DOES_NOT_FIT: "bad", None: "tight"}
_MOST_WITH_BLOCKS = 4  # ranks; the blocks of 32 ranks would be more than a browser should open
_TOP = 100


def report_html(report: MemoryReport, comparison: Comparison | None, language: Language, further: str = "") -> str:
    """The page.

    Args:
        report: The run to show; where there is a comparison, the second one.
        comparison: What it is compared with.
        language: The language that the page starts in.
        further: A section of HTML before that of theory. Its texts are elements with ``data-en`` and ``data-zh``.
    """
    return document(str(report.source), _page(report, comparison), language, further)


def _page(report: MemoryReport, comparison: Comparison | None) -> dict[str, object]:
    by_peak = sorted(report.ranks, key=lambda rank: -rank.curve.peak_bytes)[:_MOST_WITH_BLOCKS]
    ranks = [
        _rank(rank, stage, with_blocks=rank in by_peak) for rank, stage in zip(report.ranks, report.stages, strict=True)
    ]
    return {
        "contents": [content.value for content in report.worst.peak.contents],
        "ranks": ranks,
        "worst": report.ranks.index(report.worst),
        "findings": [_finding(finding) for finding in report.all_findings],
        "comparison": [_pair(pair) for pair in comparison.ranks] if comparison else None,
    }


def _rank(rank: RankReport, stage: int | None, *, with_blocks: bool) -> dict[str, object]:
    bands = bands_of(rank, POINTS)
    packed, count = packed_blocks(rank) if with_blocks and len(rank.curve.rows) else (None, 0)
    lives = rank.lifetimes
    return {
        "rank": rank.rank,
        "stage": stage,
        "rows": len(rank.table),
        "dropped": rank.table.dropped_count,
        "peak": rank.curve.peak_bytes,
        "peakTick": rank.curve.peak_tick,
        "footprint": rank.curve.footprint_bytes,
        "limit": rank.limit_bytes,
        "verdict": _verdict(rank.verdict),
        "steps": list(rank.steps.ends),
        "spans": [[phase_name(span.phase), span.start, span.end] for span in rank.spans],
        "bands": {"tick": bands.tick, "used": bands.used, "footprint": bands.footprint},
        "contents": by_name(rank.peak.contents),
        "layers": [_group(group) for group in rank.peak.layers[:_TOP]],
        "parameters": [_group(group) for group in rank.peak.parameters[:_TOP]],
        "activations": [[layer.layer, layer.bytes, layer.count] for layer in rank.activations],
        "held": [[phase_name(held.phase), held.content.value, held.bytes] for held in rank.held],
        "remedies": [_remedy(remedy) for remedy in rank.remedies],
        "promptPeak": lives.peak_if_prompt,
        "neverFreed": lives.never_freed_bytes,
        "stepBytes": list(lives.step_bytes),
        "holes": [rank.map.free_bytes, rank.map.largest_hole],
        "overlaps": rank.map.overlaps,
        "theory": {
            "weights": rank.theory.weights,
            "count": rank.theory.parameters,
            "states": [[each.content.value, each.measured, each.expected, each.shards] for each in rank.theory.states],
        },
        "late": [
            [waste.content.value, waste.operator, waste.where, waste.count, waste.bytes, waste.byte_ticks]
            for waste in lives.late
        ],
        "blocks": packed,
        "blockCount": count,
        "counted": len(rank.curve.rows),
    }


def _remedy(remedy: MemoryRemedy) -> dict[str, object]:
    return {
        "freed": remedy.bytes_freed,
        "after": remedy.peak_after,
        "title": {language.value: remedy.title(language) for language in Language},
        "price": {language.value: remedy.price(language) for language in Language},
        "how": {language.value: remedy.how(language) for language in Language},
    }


def _verdict(verdict: Verdict) -> dict[str, object]:
    """The verdict in both languages: one word, the sentence, and what it was made of."""
    lines = [verdict.sentence, *verdict.grounds]
    name = verdict.outcome.value if verdict.outcome else "none"
    return {
        "kind": _KINDS[verdict.outcome],
        "word": both(msg(f"verdict.word.{name}")),
        "lines": [both(line) for line in lines],
    }


def _group(group: BlockGroup) -> list[object]:
    return [group.key, group.bytes, group.count, by_name(group.contents)]


def _finding(finding: Diagnostic) -> dict[str, object]:
    return {
        "id": finding.id,
        "severity": finding.severity.value,
        "rank": finding.rank,
        "bytes": finding.bytes,
        "title": both(finding.title) if finding.title else None,
        "message": both(finding.message),
        "help": both(finding.help) if finding.help else None,
        "stack": [f"{file}:{line} {function}" for file, line, function in finding.stack],
    }


def _pair(pair: RankComparison) -> dict[str, object]:
    before = bands_of(pair.before, POINTS // 4)
    total = [sum(values) for values in zip(*before.used.values(), strict=True)]
    return {
        "rank": pair.after.rank,
        "was": by_name(pair.before.peak.contents),
        "now": by_name(pair.after.peak.contents),
        "before": pair.before.curve.peak_bytes,
        "after": pair.after.curve.peak_bytes,
        "curve": {"tick": before.tick, "used": total},
        "changes": [
            [change.operator, change.where, change.content.value, change.before, change.after]
            for change in pair.changes[: 5 * _TOP]
        ],
    }
