"""Compare a simulated run with a real one, by its trace or its log: how accurate was the simulation?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ms_tune.dryrun.request import DryrunRequest, StageChoice
from ms_tune.errors import NoTraceError, TraceError, UsageError
from ms_tune.footprint.report import MemoryRequest, analyse_memory
from ms_tune.footprint.result import RankReport
from ms_tune.readers.folder import BLOCKS, find_trace
from ms_tune.readers.memory_log import MemoryWords, RankMemory, read_logged_memory
from ms_tune.readers.runtime_log import SIMULATED_MIB
from ms_tune.text import Message, msg
from ms_tune.units import MIB, gib, mib
from ms_tune.verdict.limit import Cap, Device, Limit, device_of, limit_of
from ms_tune.verdict.outcome import Need, UntracedNeeds, Verdict, judge


def _pair_ranks(reports: Sequence[RankReport], others: Sequence[RankMemory]) -> list[tuple[RankReport, RankMemory]]:
    if len(reports) == len(others) == 1:  # regardless of their rank numbers
        return [(reports[0], others[0])]
    by_rank = {report.rank: report for report in reports}
    return [(by_rank[one.rank], one) for one in others if one.rank in by_rank]


def _ranks_without(
    ranks: Sequence[RankReport | RankMemory], paired: Sequence[RankReport | RankMemory]
) -> tuple[int | None, ...]:
    known = set(map(id, paired))
    return tuple(one.rank for one in ranks if id(one) not in known)


def request_like(real: Path, request: DryrunRequest) -> DryrunRequest:
    """Return the request with the config and ranks of a real run, unless the request names others; layers are not extrapolated.

    A log can be from thousands of ranks: compared with one, the stages are run as they are without it.
    """
    config = request.config or real / "config.yaml"
    if request.config is None and not config.is_file():
        raise UsageError(msg("stages.compare.no-config", run=real))
    if is_log(real):
        return request._replace(config=config, extrapolate=False)
    ranks = request.ranks
    if not ranks and request.stages is StageChoice.ALL:
        ranks = tuple(files.rank for files in find_trace(real).ranks if files.rank is not None)
    return request._replace(config=config, ranks=ranks, extrapolate=False)


_STEPS_TO_PEAK = 3  # steps after which a run usually reached its peak: the first one begins without optimizer state
_NEAR = 0.02  # share of the real peak: the intended accuracy of a simulation


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One figure of a rank in bytes; None on the side where it is unknown."""

    name: str
    simulated: int | None
    real: int | None

    @property
    def difference(self) -> int | None:
        """Return simulated minus real."""
        return None if self.simulated is None or self.real is None else self.simulated - self.real


@dataclass(frozen=True, slots=True, eq=False)
class ComparedRank:
    """One rank, simulated and real."""

    rank: int | None  # its number; None if unknown
    simulated: RankReport  # the simulated run
    real: RankMemory  # the figures of the real run
    real_verdict: Verdict  # the verdict on them
    figures: tuple[ComparedFigure, ...]  # both runs, figure by figure
    notes: tuple[Message, ...]  # explanations of the differences


@dataclass(frozen=True, slots=True, eq=False)
class RealComparison:
    """The comparison of a simulated run with a real one."""

    simulated: Path  # where the simulated run is stored
    real: Path  # the trace or log, or the folder of them
    pairs: tuple[ComparedRank, ...]  # the ranks that are in both
    only_real: tuple[int | None, ...]  # ranks that were not simulated
    only_simulated: tuple[int | None, ...]  # ranks that are only in the simulated run


def is_log(path: Path) -> bool:
    """Return whether a path is a log, or a folder of logs, and not a trace of a run."""
    if path.is_file():
        return path.name != BLOCKS and path.suffix != ".csv"
    try:
        find_trace(path)
    except NoTraceError:
        return True
    return False


def compare_real(simulated: Path, real: Path, terms: MemoryRequest) -> RealComparison:
    """Compare both runs rank by rank."""
    quick = replace(terms, with_graph=False)
    reports = analyse_memory(simulated, quick, lambda *_: None).ranks
    found: dict[RankMemory, Verdict] = {}
    if is_log(real):
        logged = read_logged_memory(real)
    else:
        traced = analyse_memory(real, quick, lambda *_: None).ranks
        found = {_memory_of(one): one.verdict for one in traced}
        logged = tuple(found)
    both = _pair_ranks([report for report in reports if report.rank is not None] or reports, logged)
    if not both:
        raise TraceError(msg("stages.compare.nothing", simulated=simulated), path=real)
    pairs = tuple(_make_pair(report, one, found.get(one) or _judge_log(report, one, terms)) for report, one in both)
    only_real = _ranks_without(logged, [one for _, one in both])
    return RealComparison(simulated, real, pairs, only_real, _ranks_without(reports, [report for report, _ in both]))


def _memory_of(trace: RankReport) -> RankMemory:
    curve, limit = trace.curve, trace.limit_bytes
    return RankMemory(
        trace.rank,
        MemoryWords.TRACE,
        trace.files.blocks,
        0,
        curve.peak_bytes,
        curve.footprint_bytes,
        limit_bytes=limit,
    )


def _make_pair(report: RankReport, real: RankMemory, verdict: Verdict) -> ComparedRank:
    figures = tuple(_compare_figures(report, real))
    rank = real.rank if real.rank is not None else report.rank
    return ComparedRank(rank, report, real, verdict, figures, tuple(_explain_differences(report, real)))


def _judge_log(report: RankReport, real: RankMemory, terms: MemoryRequest) -> Verdict:
    limit = _real_limit(report, real, terms)
    whole = max(real.peak_bytes, real.footprint_bytes or 0)
    need = Need(real.peak_bytes, whole, whole, msg(f"stages.log.source.{real.words.value}", line=real.line))
    doubts = () if real.peak_bytes else (msg("verdict.none.empty"),)
    return judge(need, limit, UntracedNeeds(simulated=False, reserve_bytes=terms.reserve_bytes or 0), doubts)


def _real_limit(report: RankReport, real: RankMemory, terms: MemoryRequest) -> Limit:
    # Return the limit of the real run: named by the user, else from its log, else that of the simulated run.
    if terms.names_device:
        return limit_of(device_of(terms.chip, terms.device_bytes))
    if real.limit_bytes and real.device_mib:
        size = real.device_mib * MIB
        return limit_of(Device(size, size, msg("verdict.limit.log")), real.limit_bytes, Cap.LOG)
    return report.verdict.limit or limit_of(device_of())


def _compare_figures(report: RankReport, real: RankMemory) -> Iterator[ComparedFigure]:
    verdict, whole = (
        report.verdict,
        report.verdict.need or report.curve,
    )  # of the whole stage, if the run had a part of it
    peak, footprint = whole.peak_bytes, whole.footprint_bytes
    yield ComparedFigure("peak", peak, real.peak_bytes)
    yield ComparedFigure("footprint", footprint, real.footprint_bytes)
    lost = None if real.footprint_bytes is None else max(real.footprint_bytes - real.peak_bytes, 0)
    yield ComparedFigure("fragments", max(footprint - peak, 0), lost)
    yield ComparedFigure("reserve", verdict.reserve_bytes, None)
    yield ComparedFigure("limit", verdict.limit.bytes if verdict.limit else None, real.limit_bytes)
    if real.used_bytes is not None:
        yield ComparedFigure("between-steps", None, real.used_bytes)
    if real.device_mib is not None:
        yield ComparedFigure("device", None, real.device_mib * MIB)


def _explain_differences(report: RankReport, real: RankMemory) -> Iterator[Message]:
    verdict = report.verdict
    missing = real.peak_bytes - (verdict.need or report.curve).peak_bytes
    sizes = {"size": mib(abs(missing)), "share": f"{abs(missing) / max(real.peak_bytes, 1):.1%}"}
    workspaces = sum(item.bytes for item in verdict.reserve if item.name == "workspaces")
    if abs(missing) < max(real.unit_bytes, 1):
        yield msg("stages.log.note.same", **sizes)
    elif 0 < missing <= workspaces:
        yield msg("stages.log.note.workspaces", **sizes, aside=mib(workspaces))
    elif abs(missing) <= _NEAR * real.peak_bytes:
        yield msg("stages.log.note.near", **sizes)
    elif missing > 0:
        yield msg("stages.log.note.more", **sizes)
    else:
        yield msg("stages.log.note.less", **sizes)
    if real.device_mib == SIMULATED_MIB:
        yield msg("stages.log.note.simulated")
    if real.steps is not None and real.steps < _STEPS_TO_PEAK:
        yield msg("stages.log.note.early", steps=real.steps)
    if real.words is MemoryWords.REPORT and real.footprint_bytes is not None:
        yield msg("stages.log.note.report")
    if real.processes > 1:
        yield msg("stages.log.note.processes", count=real.processes)
    if real.limit_bytes and verdict.limit and abs(real.limit_bytes - verdict.limit.bytes) >= real.unit_bytes:
        yield msg("stages.log.note.limit", simulated=gib(verdict.limit.bytes), real=gib(real.limit_bytes))
