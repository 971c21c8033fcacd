"""What the arithmetic of a recompute plan starts from."""

from __future__ import annotations

from dataclasses import dataclass, field

# The five values of a recompute plan, in the order in which the framework formats them.
KEYS = (
    "recompute",
    "select_recompute",
    "select_comm_recompute",
    "select_recompute_exclude",
    "select_comm_recompute_exclude",
)


@dataclass(frozen=True, slots=True)
class RecomputeValues:
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


@dataclass(frozen=True, slots=True)
class RecomputeInputs:
    """Everything that decides about placement and recompute plan.

    Args:
        layers: Number of layers that the framework distributes.
        stages: Pipeline stages (``parallel_config.pipeline_stage``).
        offset: Extra layers of each stage, as written: a number, a list for the stages, or lists for (chunk, stage).
        interleave: Whether ``pipeline_interleave`` is on; without it there is one chunk, whatever is asked for.
        interleave_num: Chunks asked for (``pp_interleave_num``). None is what a model without that key has when it
            is not a legacy model.
        scheduler: ``pipeline_scheduler``.
        legacy: Whether the model is a legacy one (``use_legacy``).
        stage_num: If not 0, the stages of this part of a multi-modal model, in place of ``stages``.
        start_stage: Its first stage.
        mtp_layers: Multi-token-prediction layers that are built after, and beside, the ``layers``.
        micro_batches: ``parallel_config.micro_batch_num``.
        sequence_splits: ``parallel_config.seq_split_num``.
        slice_activation: ``recompute_config.recompute_slice_activation``.
        values: The recompute values.
    """

    layers: int
    stages: int = 1
    offset: object = 0
    interleave: bool = False
    interleave_num: int | None = 1
    scheduler: str = "1f1b"
    legacy: bool = True
    stage_num: int = 0
    start_stage: int = 0
    mtp_layers: int = 0
    micro_batches: int = 1
    sequence_splits: int = 1
    slice_activation: bool = False
    values: RecomputeValues = field(default_factory=RecomputeValues)

    @property
    def placed_stages(self) -> int:
        """The stages that the layers are spread over."""
        return self.stage_num or self.stages

    @property
    def zero_bubble(self) -> bool:
        """Whether the second chunk runs through the stages backwards."""
        return self.scheduler == "zero_bubble_v"
