"""What a layer, the embedding and the head cost beside each other, from the config's sizes: nothing in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.estimate.flops import head_flops, layer_flops, prediction_flops, widths_of
from ms_tune.facts.devices import fastest_peak, peak_named
from ms_tune.fit.layouts import layout_of

if TYPE_CHECKING:
    from ms_tune.fit.job import PlannedJob

# How much longer a backward pass takes: SAPP's shares of it (pipeline_balance/utils/recompute.py), which are within 2 % of the
# published steps of models of 22 billion to a trillion parameters (Korthikanti et al., 2022, table 5).
EXTRA = {
    RecomputeMode.NONE: 0.0,
    RecomputeMode.SELECT: 0.04,
    RecomputeMode.COMM: 0.125,
    RecomputeMode.BOTH: 0.165,
    RecomputeMode.FULL: 0.5,
    RecomputeMode.SWAP: 0.0,  # what the link takes beside the passes is added by a bandwidth
}


PREDICTIONS = "mtp_num_layers"  # layers that predict further tokens, behind all others
DENSE_UNITS = 1000  # of a table's time: the forward pass of a dense layer
_TERA = 1e12


@dataclass(frozen=True, slots=True)
class RelativeCosts:
    """Forward passes beside each other; a dense layer costs 1."""

    dense: float = 1.0  # a layer without experts
    experts: float = 1.0  # a layer with experts
    head: float = 0.0  # the output projection and the loss, and what predicts further tokens before them
    # Whether they come from the model's sizes; otherwise all layers are taken for equal and the head for nothing.
    known: bool = False
    # Seconds that a dense layer's forward pass of a micro-batch takes at least, on the fastest device that is known or
    # on the one that is named; None where the model's sizes are not known.
    shortest: float | None = None

    def of_layer(self, make: LayerKind) -> float:
        """What a layer costs."""
        return self.dense if make is LayerKind.DENSE else self.experts


def costs_of(job: PlannedJob) -> RelativeCosts:
    """What the parts of a job's model cost beside each other."""
    model = job.loaded.job.model
    widths = widths_of(model)
    if widths is None:
        return RelativeCosts()
    dense = layer_flops(widths, experts=False)
    experts = layer_flops(widths, experts=True) if widths.experts else dense
    split, chip = job.first.split, job.request.chip
    named = peak_named(chip) if chip is not None else None
    tflops = named.tflops if named is not None else fastest_peak()
    tokens = widths.tokens * layout_of(job.loaded, job.first).size
    shortest = dense * tokens / (split.tensor * split.context) / (tflops * _TERA)
    head = head_flops(widths) + (model.number(PREDICTIONS) or 0) * (experts + prediction_flops(widths))
    return RelativeCosts(1.0, experts / dense, head / dense, known=True, shortest=shortest)
