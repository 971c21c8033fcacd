"""What the arithmetic of a recompute plan starts from."""

from __future__ import annotations

from typing import NamedTuple

from ms_tune.dialects.mindformers.versions import Rules, rules_of
from ms_tune.facts.releases import DEFAULT_VERSION

# The five values of a recompute plan, in the order in which the framework formats them.
KEYS = (
    "recompute",
    "select_recompute",
    "select_comm_recompute",
    "select_recompute_exclude",
    "select_comm_recompute_exclude",
)


class RecomputeValues(NamedTuple):
    """The five values just as the config gives them: bool, list, list of lists, list of patterns, dict, or nonsense.

    Two values (or two rows of them) that are one object, as a YAML alias makes them, are treated as the framework
    treats them: what it writes into the one shows in the other.
    """

    recompute: object = False
    select_recompute: object = False
    select_comm_recompute: object = False
    select_recompute_exclude: object = False
    select_comm_recompute_exclude: object = False

    def get(self, key: str) -> object:
        """The value of one of :data:`KEYS`."""
        value: object = getattr(self, key)
        return value


class SwapValues(NamedTuple):
    """The values of ``swap_config`` just as the config gives them. What is absent is None, but for the two defaults."""

    swap: object = False
    layer_swap: object = None
    op_swap: object = None
    default_prefetch: object = 1


class RecomputeInputs(NamedTuple):
    """Everything that decides about placement, recompute plan and swap plan."""

    layers: int  # number of layers that the framework distributes (see `mtp_layers`)
    stages: int = 1  # pipeline stages (`parallel_config.pipeline_stage`)
    # Extra layers of each stage, as written: a number, a list for the stages, or lists for (chunk, stage).
    offset: object = 0
    # Whether `pipeline_interleave` is on; without it there is one chunk, whatever is asked for.
    interleave: bool = False
    # Chunks asked for (`pp_interleave_num`). None is what a model without that key has when it is not a legacy model.
    interleave_num: int | None = 1
    scheduler: str = "1f1b"  # `pipeline_scheduler`
    legacy: bool = True  # whether the model is a legacy one (`use_legacy`)
    stage_num: int = 0  # if not 0, the stages of this part of a multi-modal model, in place of `stages`
    start_stage: int = 0  # its first stage
    # Multi-token-prediction layers that are built after, and beside, the `layers`. The reduced class of 1.6 distributes
    # them with the others.
    mtp_layers: int = 0
    micro_batches: int = 1  # `parallel_config.micro_batch_num`
    sequence_splits: int = 1  # `parallel_config.seq_split_num`
    slice_activation: bool = False  # `recompute_config.recompute_slice_activation`
    values: RecomputeValues = RecomputeValues()
    # The values that the framework's own checks see, if the model does not get all of them.
    checked: RecomputeValues | None = None
    # The section `swap_config`. Models that are not legacy ones never see it; the framework's checks do.
    swap: SwapValues = SwapValues()
    # What such a model gets instead, out of `model.model_config` (since 1.7).
    core_swap: SwapValues = SwapValues()
    version: str = DEFAULT_VERSION  # the MindFormers release, one of `ms_tune.dialects.mindformers.versions.VERSIONS`

    @property
    def rules(self) -> Rules:
        """The rules of the release."""
        return rules_of(self.version)

    @property
    def reduced(self) -> bool:
        """Whether the model is served by the reduced class of 1.6, which knows neither swap nor exclude lists."""
        return not self.legacy and not self.rules.one_class

    @property
    def placed_layers(self) -> int:
        """The layers that are spread over the stages: in the reduced class the prediction layers are among them."""
        return self.layers + self.mtp_layers if self.reduced else self.layers

    @property
    def swaps(self) -> SwapValues:
        """The swap values that reach the layers."""
        if self.reduced:
            return SwapValues()
        return self.swap if self.legacy else self.core_swap

    @property
    def placed_stages(self) -> int:
        """The stages that the layers are spread over."""
        return self.stage_num or self.stages

    @property
    def zero_bubble(self) -> bool:
        """Whether the second chunk runs through the stages backwards."""
        return self.scheduler == "zero_bubble_v" and self.rules.zero_bubble
