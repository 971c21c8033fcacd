"""What the stages of a job hold by closed forms, in milliseconds: enough to see that a job cannot fit, never that it does.

What stays for the whole step is arithmetic and exact where the framework's rules are known (:mod:`ms_tune.estimate.persistent`);
what layers keep is an estimate (:mod:`ms_tune.estimate.memory`), which knows no temporaries of operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dryrun.prepare import prepare_run
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.errors import UnsupportedError
from ms_tune.estimate.flops import widths_of
from ms_tune.estimate.memory import Estimate, HeldLayers, RankShare, estimate_stage, layer_activations, logits_bytes
from ms_tune.fit.layouts import is_sequence_parallel, read_layout
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.dryrun.request import PreparedRun
    from ms_tune.estimate.flops import Widths
    from ms_tune.estimate.memory import StageEstimate
    from ms_tune.fit.job import PlannedJob
    from ms_tune.verdict.limit import Limit


def estimate_of(job: PlannedJob, limit: Limit, reserve_bytes: int) -> Estimate:
    """What every stage of a job holds as its config has it.

    Args:
        job: The job.
        limit: What a stage may take.
        reserve_bytes: What is set aside of it.

    Raises:
        UnsupportedError: The sizes of its model are not all known.
    """
    widths = widths_of(job.loaded.job.model)
    if widths is None:
        raise UnsupportedError(msg("layouts.no-sizes"), msg("layouts.no-sizes.hint"))
    layout = read_layout(job.loaded, job.first)
    tokens = widths.tokens * layout.size // layout.context
    share = RankShare(tokens, layout.tensor, is_sequence_parallel(job.loaded), layout.context, layout.expert)
    others = [prepare_run(job.request._replace(stage=one, layers=None), job.loaded) for one in range(1, job.stages)]
    stages = tuple(_config_stage(run, widths, share) for run in (job.first, *others))
    return Estimate(stages, limit, reserve_bytes, bool(widths.experts))


def _config_stage(run: PreparedRun, widths: Widths, share: RankShare) -> StageEstimate:
    if not run.theory:
        raise UnsupportedError(msg("check.no-theory"))
    if run.in_flight is None:
        raise UnsupportedError(msg("fitting.schedule"))
    lasting = sum(run.theory.values())
    if "gradients" not in run.theory:  # as many bytes as the weights, where they are in the same format
        lasting += run.theory.get("weights", 0)
    layers = []
    for kind, count in run.kinds.items():
        chunk, make = kind.cell
        held = layer_activations(widths, share, experts=make is not LayerKind.DENSE and bool(widths.experts))
        full = kind.recompute is RecomputeMode.FULL
        # Without stages there is one pass, however many chunks the lists of layers have.
        passes = run.in_flight[chunk if run.stages > 1 else 0]
        layers.append(HeldLayers(held, passes, full=full, layers=count))
    logits = logits_bytes(widths, share) if run.stage == run.stages - 1 else 0
    return estimate_stage(run.stage, run.layers, lasting, layers, logits)
