"""What a layer, the embedding and the head cost beside each other, from the config's sizes: nothing in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.config.follow import followed
from ms_tune.estimate.flops import head_flops, layer_flops
from ms_tune.estimate.widths import widths_of
from ms_tune.frameworks.models import model_of
from ms_tune.normalize.source import dialect_of
from ms_tune.planning.table import Recompute

if TYPE_CHECKING:
    from ms_tune.fit.job import PlannedJob

# How much longer a backward pass takes: SAPP's shares of it (pipeline_balance/utils/recompute.py), which are within 2 % of the
# published steps of models of 22 billion to a trillion parameters (Korthikanti et al., 2022, table 5).
EXTRA = {
    Recompute.NONE: 0.0,
    Recompute.SELECT: 0.04,
    Recompute.COMM: 0.125,
    Recompute.BOTH: 0.165,
    Recompute.FULL: 0.5,
}


@dataclass(frozen=True, slots=True)
class Costs:
    """Forward passes beside each other; a dense layer costs 1.

    Attributes:
        dense: A layer without experts.
        experts: A layer with experts.
        head: The output projection and the loss.
        known: Whether they come from the model's sizes; otherwise all layers are taken for equal and the head for nothing.
    """

    dense: float = 1.0
    experts: float = 1.0
    head: float = 0.0
    known: bool = False


def costs_of(job: PlannedJob) -> Costs:
    """What the parts of a job's model cost beside each other."""
    source = followed(job.loaded.source)
    widths = widths_of(model_of(source, dialect_of(source), job.now.framework_version, source.beside))
    if widths is None:
        return Costs()
    dense = layer_flops(widths, experts=False)
    experts = layer_flops(widths, experts=True) if widths.experts else dense
    return Costs(1.0, experts / dense, head_flops(widths) / dense, known=True)
