"""A simulated run beside a real one: how good was the simulation?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.dryrun.compare_log import is_log
from ms_tune.dryrun.request import StageChoice
from ms_tune.dryrun.result import ComparedRank, RealComparison
from ms_tune.errors import TraceError, UsageError
from ms_tune.footprint.report import analyse
from ms_tune.readers.folder import find_trace
from ms_tune.text import msg

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.dryrun.request import DryrunRequest
    from ms_tune.footprint.request import MemoryRequest


def compare_real(simulated: Path, real: Path, terms: MemoryRequest) -> RealComparison:
    """Both runs, rank by rank.

    Args:
        simulated: A run folder of ``ms-tune dryrun``, or any trace.
        real: A run folder of ``ms-tune dryrun --real``, or any trace of a run on devices.
        terms: What both are judged by.

    Raises:
        TraceError: One of them holds no trace, or they have no rank in common.
    """
    quick = replace(terms, with_graph=False)
    first, second = (analyse(path, quick, lambda *_: None) for path in (simulated, real))
    if len(first.ranks) == len(second.ranks) == 1:  # whatever their numbers are
        pairs = [(first.ranks[0], second.ranks[0])]
    else:
        by_rank = {rank.rank: rank for rank in first.ranks}
        pairs = [(by_rank[rank.rank], rank) for rank in second.ranks if rank.rank in by_rank]
    if not pairs:
        raise TraceError(msg("stages.compare.nothing", simulated=simulated), path=real)
    matched = {id(one) for _, one in pairs}
    only_real = tuple(rank.rank for rank in second.ranks if id(rank) not in matched)
    ranks = tuple(ComparedRank(other.rank, one, other) for one, other in pairs)
    return RealComparison(simulated, real, ranks, only_real)


def request_like(real: Path, request: DryrunRequest) -> DryrunRequest:
    """The request with the config and the ranks of a real run, where it names none; the layers are run as they are.

    A log may be of thousands of ranks: beside one, the stages are run as they are without it.

    Raises:
        UsageError: The folder keeps no config.
        TraceError: It holds no trace.
    """
    config = request.config or real / "config.yaml"
    if request.config is None and not config.is_file():
        raise UsageError(msg("stages.compare.no-config", run=real))
    if is_log(real):
        return replace(request, config=config, extrapolate=False)
    ranks = request.ranks
    if not ranks and request.stages is StageChoice.ALL:
        ranks = tuple(files.rank for files in find_trace(real).ranks if files.rank is not None)
    return replace(request, config=config, ranks=ranks, extrapolate=False)
