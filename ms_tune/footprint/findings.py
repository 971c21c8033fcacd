"""Check a trace for findings; ``checklists/findings/memory.yaml`` contains their texts and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

from ms_tune.diagnostics import Category, Diagnostic, Severity
from ms_tune.enums import MemoryCategory
from ms_tune.facts.query import data_folder
from ms_tune.footprint.result import RankReport
from ms_tune.readers.memory_block import Frame
from ms_tune.text import Message, Text, msg, singular
from ms_tune.units import MIB, gib, mib
from ms_tune.verdict.outcome import Fit


class MemoryCheck(NamedTuple):
    """The entry of one kind of finding in the checklist."""

    id: str
    name: str
    severity: Severity
    limit: float
    title: Text
    message: Text
    help: Text


@cache
def load_checks() -> Mapping[str, MemoryCheck]:
    """Return the kinds of findings, by name."""
    content = yaml.safe_load((data_folder("checklists") / "findings" / "memory.yaml").read_bytes())
    return {
        entry["name"]: MemoryCheck(
            id=entry["id"],
            name=entry["name"],
            severity=Severity(entry["severity"]),
            limit=float(entry.get("limit", 0)),
            **{part: Text(entry[part]["en"], entry[part]["zh"]) for part in ("title", "message", "help")},
        )
        for entry in content["findings"]
    }


def size_text(size: int) -> str:
    """Format a number of bytes in GiB, or in MiB below 1 GiB."""
    return gib(size) if size >= 1024 * MIB else mib(size)


def list_findings(report: RankReport) -> tuple[Diagnostic, ...]:
    """Return all findings about one rank, the worst first."""
    found = [*_check_run(report), *_check_files(report), *_check_memory(report)]
    if report.placed is not None:  # of PyTorch, with other settings than MindSpore's
        advice = {
            "does-not-fit": msg("memory.dry-run.does-not-fit"),
            "fragmentation": msg("memory.dry-run.fragmentation"),
        }
        found = [one._replace(help=advice[one.name]) if one.name in advice else one for one in found]
    return tuple(sorted(found, key=lambda finding: (finding.severity.rank, -finding.bytes)))


def compare_findings(ranks: Sequence[RankReport], *, stale: bool) -> tuple[Diagnostic, ...]:
    """Return all findings that compare ranks."""
    found = []
    if stale:
        found.append(_make_diagnostic("stale-folders", 0, None))
    by_peak = sorted(ranks, key=lambda rank: rank.curve.peak_bytes)
    if len(by_peak) > 1:
        least, most = by_peak[0], by_peak[-1]
        low, high = least.curve.peak_bytes, most.curve.peak_bytes
        if high and (high - low) / high > load_checks()["uneven-ranks"].limit:
            params = {
                "most": _rank_name(most),
                "least": _rank_name(least),
                "high": size_text(high),
                "low": size_text(low),
                "share": f"{(high - low) / high:.0%}",
            }
            found.append(_make_diagnostic("uneven-ranks", high - low, None, **params))
    return tuple(found)


def _rank_name(report: RankReport) -> str:
    return str(report.rank) if report.rank is not None else report.files.blocks.parent.name


def _make_diagnostic(
    name: str, amount: int, rank: int | None, stack: tuple[Frame, ...] = (), /, **params: object
) -> Diagnostic:
    check = load_checks()[name]
    sentence = Text(singular(check.message.en, params), check.message.zh)
    return Diagnostic(
        check.id,
        check.severity,
        Message("", params, sentence),
        Message("", {}, check.help),
        name,
        Category.MEMORY,
        title=Message("", {}, check.title),
        bytes=amount,
        rank=rank,
        stack=stack,
    )


def _check_run(report: RankReport) -> Iterator[Diagnostic]:
    verdict = report.verdict
    need, limit = verdict.need, verdict.limit
    if verdict.outcome is Fit.DOES_NOT_FIT and need is not None and limit is not None:
        peak, may = need.peak_bytes, limit.bytes
        over = {"peak": size_text(peak), "limit": size_text(may), "over": size_text(peak - may)}
        yield _make_diagnostic("does-not-fit", peak - may, report.rank, **over)
    failed = report.log.out_of_memory if report.log else None
    if failed is not None:
        size = msg("memory.oom.size", size=size_text(failed.bytes)) if failed.bytes else ""
        operator = msg("memory.oom.operator", operator=failed.operator) if failed.operator else ""
        yield _make_diagnostic("out-of-memory", failed.bytes or 0, report.rank, size=size, operator=operator)


def _check_files(report: RankReport) -> Iterator[Diagnostic]:
    wrong = len(report.curve.mismatches)
    logged = report.log.statistics.peak_mib if report.log and report.log.statistics else None
    traced = report.curve.peak_bytes // MIB
    if wrong or (logged is not None and logged != traced):
        by_log = "" if logged in (None, traced) else msg("memory.curve.log", log=logged, trace=traced)
        yield _make_diagnostic("curve-differs", 0, report.rank, rows=wrong, log=by_log)
    if report.log and report.log.cut_off:
        yield _make_diagnostic("trace-cut-off", 0, report.rank, rows=len(report.table))
    for file, (count, rows) in report.refused_rows().items():
        params = {"file": file, "rows": count, "line": rows[0].line, "reason": rows[0].reason}
        yield _make_diagnostic("rows-dropped", 0, report.rank, **params)
    for error in report.unread:
        yield _make_diagnostic(
            "file-unreadable", 0, report.rank, file=Path(error.path or "?").name, reason=error.message
        )
    if report.join is not None and report.join.joined_rows < report.join.joinable_rows:
        missing = report.join.joinable_rows - report.join.joined_rows
        yield _make_diagnostic("join-incomplete", 0, report.rank, missing=missing, rows=report.join.joinable_rows)
    if not report.contents.stacks_useful:
        yield _make_diagnostic("stacks-useless", 0, report.rank)


def _check_memory(report: RankReport) -> Iterator[Diagnostic]:
    peak = report.curve.peak_bytes
    if not peak:
        return
    lives, known = report.lifetimes, load_checks()
    for growth in lives.growth:
        params = {
            "size": size_text(growth.bytes_per_step),
            "content": msg(f"memory.content.{growth.category.value}"),
            "operator": growth.operator or "?",
            "where": growth.where or "?",
        }
        yield _make_diagnostic("growth", growth.bytes_per_step, report.rank, growth.stack, **params)
    saved = peak - lives.peak_if_freed_after_last_use
    if lives.late_frees and saved / peak > known["late-free"].limit:
        worst = lives.late_frees[0]
        what = {"operator": worst.operator or "?", "where": worst.where or "?"}
        yield _make_diagnostic(
            "late-free", saved, report.rank, saved=size_text(saved), share=f"{saved / peak:.0%}", **what
        )
    saved = peak - lives.peak_without_spikes
    if saved / peak > known["spike"].limit:
        size = size_text(lives.spike_bytes)
        yield _make_diagnostic(
            "spike", saved, report.rank, size=size, saved=size_text(saved), share=f"{saved / peak:.0%}"
        )
    footprint = report.curve.footprint_bytes
    lost = footprint - peak
    if footprint and lost / footprint > known["fragmentation"].limit:
        params = {"footprint": size_text(footprint), "peak": size_text(peak), "share": f"{lost / footprint:.0%}"}
        yield _make_diagnostic("fragmentation", lost, report.rank, **params, hole=size_text(report.map.largest_hole))
    unknown = report.peak.contents[MemoryCategory.UNATTRIBUTED]
    if unknown / peak > known["unattributed"].limit:
        yield _make_diagnostic(
            "unattributed", unknown, report.rank, size=size_text(unknown), share=f"{unknown / peak:.0%}"
        )
