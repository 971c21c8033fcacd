"""The findings about a trace: ``checklists/findings/memory.yaml`` holds their texts and limits, this module the tests."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from ms_tune.enums import MemoryCategory
from ms_tune.facts.query import data_folder
from ms_tune.footprint.result import MemoryCheck, MemoryFinding, Severity
from ms_tune.text import Text, msg
from ms_tune.units import MIB, gib, mib
from ms_tune.verdict.outcome import Fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ms_tune.footprint.result import RankReport


@cache
def checks() -> Mapping[str, MemoryCheck]:
    """The kinds of findings, by name."""
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
    """Bytes as a person reads them."""
    return gib(size) if size >= 1024 * MIB else mib(size)


def findings_of(report: RankReport) -> tuple[MemoryFinding, ...]:
    """All findings about one rank, the worst first."""
    found = [*_about_the_run(report), *_about_the_files(report), *_about_the_memory(report)]
    return tuple(sorted(found, key=lambda finding: (list(Severity).index(finding.check.severity), -finding.bytes)))


def findings_between(ranks: Sequence[RankReport], *, stale: bool) -> tuple[MemoryFinding, ...]:
    """All findings that compare ranks."""
    found = []
    if stale:
        found.append(MemoryFinding(checks()["stale-folders"], {}, 0, None))
    by_peak = sorted(ranks, key=lambda rank: rank.curve.peak_bytes)
    if len(by_peak) > 1:
        least, most = by_peak[0], by_peak[-1]
        low, high = least.curve.peak_bytes, most.curve.peak_bytes
        check = checks()["uneven-ranks"]
        if high and (high - low) / high > check.limit:
            params = {
                "most": _name(most),
                "least": _name(least),
                "high": size_text(high),
                "low": size_text(low),
                "share": f"{(high - low) / high:.0%}",
            }
            found.append(MemoryFinding(check, params, high - low, None))
    return tuple(found)


def _name(report: RankReport) -> str:
    """The number of a rank, or its folder where nothing tells the number."""
    return str(report.rank) if report.rank is not None else report.files.blocks.parent.name


def _finding(report: RankReport, name: str, amount: int, /, **params: object) -> MemoryFinding:
    return MemoryFinding(checks()[name], params, amount, report.rank)


def _about_the_run(report: RankReport) -> Iterator[MemoryFinding]:
    verdict = report.verdict
    need, limit = verdict.need, verdict.limit
    if verdict.outcome is Fit.DOES_NOT_FIT and need is not None and limit is not None:
        peak, may = need.peak_bytes, limit.bytes
        over = {"peak": size_text(peak), "limit": size_text(may), "over": size_text(peak - may)}
        yield _finding(report, "does-not-fit", peak - may, **over)
    failed = report.log.out_of_memory if report.log else None
    if failed is not None:
        size = msg("memory.oom.size", size=size_text(failed.bytes)) if failed.bytes else ""
        operator = msg("memory.oom.operator", operator=failed.operator) if failed.operator else ""
        yield _finding(report, "out-of-memory", failed.bytes or 0, size=size, operator=operator)


def _about_the_files(report: RankReport) -> Iterator[MemoryFinding]:
    wrong = len(report.curve.mismatches)
    logged = report.log.statistics.peak_mib if report.log and report.log.statistics else None
    traced = report.curve.peak_bytes // MIB
    if wrong or (logged is not None and logged != traced):
        by_log = "" if logged in (None, traced) else msg("memory.curve.log", log=logged, trace=traced)
        yield _finding(report, "curve-differs", 0, rows=wrong, log=by_log)
    if report.log and report.log.cut_off:
        yield _finding(report, "trace-cut-off", 0, rows=len(report.table))
    for file, (count, rows) in report.refused().items():
        params = {"file": file, "rows": count, "line": rows[0].line, "reason": rows[0].reason}
        yield _finding(report, "rows-dropped", 0, **params)
    for error in report.unread:
        yield _finding(report, "file-unreadable", 0, file=Path(error.path or "?").name, reason=error.message)
    if report.join is not None and report.join.joined_rows < report.join.joinable_rows:
        missing = report.join.joinable_rows - report.join.joined_rows
        yield _finding(report, "join-incomplete", 0, missing=missing, rows=report.join.joinable_rows)
    if not report.contents.stacks_useful:
        yield _finding(report, "stacks-useless", 0)


def _about_the_memory(report: RankReport) -> Iterator[MemoryFinding]:
    peak = report.curve.peak_bytes
    if not peak:
        return
    lives, known = report.lifetimes, checks()
    for growth in lives.growth:
        params = {
            "size": size_text(growth.bytes_per_step),
            "content": msg(f"memory.content.{growth.content.value}"),
            "operator": growth.operator or "?",
            "where": growth.where or "?",
        }
        yield replace(_finding(report, "growth", growth.bytes_per_step, **params), stack=growth.stack)
    saved = peak - lives.peak_if_prompt
    if lives.late and saved / peak > known["late-free"].limit:
        worst = lives.late[0]
        what = {"operator": worst.operator or "?", "where": worst.where or "?"}
        yield _finding(report, "late-free", saved, saved=size_text(saved), share=f"{saved / peak:.0%}", **what)
    saved = peak - lives.peak_without_spikes
    if saved / peak > known["spike"].limit:
        size = size_text(lives.spike_bytes)
        yield _finding(report, "spike", saved, size=size, saved=size_text(saved), share=f"{saved / peak:.0%}")
    footprint = report.curve.footprint_bytes
    lost = footprint - peak
    if footprint and lost / footprint > known["fragmentation"].limit:
        params = {"footprint": size_text(footprint), "peak": size_text(peak), "share": f"{lost / footprint:.0%}"}
        yield _finding(report, "fragmentation", lost, **params, hole=size_text(report.map.largest_hole))
    untold = report.peak.contents[MemoryCategory.UNATTRIBUTED]
    if untold / peak > known["unattributed"].limit:
        yield _finding(report, "unattributed", untold, size=size_text(untold), share=f"{untold / peak:.0%}")
