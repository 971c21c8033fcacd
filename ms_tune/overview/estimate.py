"""What the stages of a job hold by closed forms, in milliseconds: enough to see that a job cannot fit, never that it does.

What stays for the whole step is arithmetic and exact where the framework's rules are known (:mod:`ms_tune.estimate.persistent`);
what layers keep is an estimate (:mod:`ms_tune.estimate.activations`), which knows no temporaries of operators.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from ms_tune.config.follow import followed
from ms_tune.dryrun.prepare import prepare
from ms_tune.errors import UnsupportedError
from ms_tune.estimate.activations import Share, layer_activations, logits_bytes
from ms_tune.estimate.widths import widths_of
from ms_tune.fit.layouts import layout_of, sequence_parallel
from ms_tune.frameworks.models import model_of
from ms_tune.layers.stage import DENSE, FULL_RECOMPUTE, cell_of
from ms_tune.texts import msg

if TYPE_CHECKING:
    from ms_tune.dryrun.request import PreparedRun
    from ms_tune.estimate.flops import Widths
    from ms_tune.fit.job import PlannedJob
    from ms_tune.verdict.limit import Limit

# Highest peaks of dryruns beside such estimates of the same jobs, as docs/check.md has them; a little is added to both ends.
_LOWEST, _HIGHEST, _HIGHEST_WITH_EXPERTS = 0.95, 1.5, 2.5


class Outlook(str, Enum):
    """What an estimate allows to say; it never says that a job fits."""

    OVER = "over"  # more than the limit by the estimate, which was never seen to be far too high
    UNSURE = "unsure"
    BELOW = "below"  # below the limit by more than estimates were seen to be too low


@dataclass(frozen=True, slots=True)
class StageEstimate:
    """What a stage holds at its peak.

    Attributes:
        stage: The stage.
        layers: Its layers.
        recomputed: Those of them that are recomputed in full.
        lasting_bytes: Weights, gradients and optimizer state.
        activation_bytes: What layers keep of the micro-batches in flight.
        transient_bytes: The layer that is recomputed, or the logits.
    """

    stage: int
    layers: int
    recomputed: int
    lasting_bytes: int
    activation_bytes: int
    transient_bytes: int

    @property
    def peak_bytes(self) -> int:
        """All of it."""
        return self.lasting_bytes + self.activation_bytes + self.transient_bytes


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the stages of a job hold.

    Attributes:
        stages: The stages, in order.
        limit: What a stage may take.
        reserve_bytes: What is set aside of it.
        experts: Whether its layers have experts, of whose buffers nothing is known.
    """

    stages: tuple[StageEstimate, ...]
    limit: Limit
    reserve_bytes: int
    experts: bool = False

    @property
    def fullest(self) -> StageEstimate:
        """The stage that holds most."""
        return max(self.stages, key=lambda one: one.peak_bytes)

    @property
    def room_bytes(self) -> int:
        """What a stage's peak may be."""
        return self.limit.bytes - self.reserve_bytes

    @property
    def seen(self) -> tuple[float, float]:
        """How many times as much simulated peaks of such jobs were, the least and the most."""
        return _LOWEST, _HIGHEST_WITH_EXPERTS if self.experts else _HIGHEST

    @property
    def outlook(self) -> Outlook:
        """What can be said of the job."""
        (low, high), peak = self.seen, self.fullest.peak_bytes
        if peak * low > self.limit.bytes or self.fullest.lasting_bytes > self.limit.bytes:
            return Outlook.OVER
        return Outlook.BELOW if peak * high < self.room_bytes else Outlook.UNSURE


def estimate_of(job: PlannedJob, limit: Limit, reserve_bytes: int) -> Estimate:
    """What every stage of a job holds as its config has it.

    Args:
        job: The job.
        limit: What a stage may take.
        reserve_bytes: What is set aside of it.

    Raises:
        UnsupportedError: The sizes of its model are not all known.
    """
    source = followed(job.loaded.source)
    widths = widths_of(model_of(source, job.loaded.dialect, job.now.framework_version, source.beside))
    if widths is None:
        raise UnsupportedError(msg("layouts.no-sizes"), msg("layouts.no-sizes.hint"))
    layout = layout_of(job.loaded, job.first)
    tokens = widths.tokens * layout.size // layout.context
    share = Share(tokens, layout.tensor, sequence_parallel(job.loaded), layout.context, layout.expert)
    runs = [prepare(replace(job.request, stage=stage, layers=None), job.loaded) for stage in range(job.stages)]
    stages = tuple(_stage(run, widths, share) for run in runs)
    return Estimate(stages, limit, reserve_bytes, bool(widths.experts))


def _stage(run: PreparedRun, widths: Widths, share: Share) -> StageEstimate:
    if not run.theory:
        raise UnsupportedError(msg("check.no-theory"))
    if run.in_flight is None:
        raise UnsupportedError(msg("fitting.schedule"))
    lasting = sum(run.theory.values())
    if "gradients" not in run.theory:  # as many bytes as the weights, where they are in the same format
        lasting += run.theory.get("weights", 0)
    kept = again = recomputed = 0
    for kind, count in run.kinds.items():
        chunk, make = cell_of(kind)
        held = layer_activations(widths, share, experts=make != DENSE and bool(widths.experts))
        full = FULL_RECOMPUTE in kind
        kept += count * run.in_flight[chunk] * (held.full if full else held.none)
        again = max(again, held.none if full else 0)
        recomputed += count if full else 0
    logits = logits_bytes(widths, share) if run.stage == run.stages - 1 else 0
    return StageEstimate(run.stage, run.layers, recomputed, lasting, kept, max(again, logits))
