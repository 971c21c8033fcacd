"""Estimate the peak memory of a stage of a Megatron program.

Persistent memory is 18 bytes per parameter, 6 + 12 / ranks with the distributed optimizer. The number of parameters is reported
by a rank or follows from the sizes; activations come from :mod:`ms_tune.estimate.memory`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ms_tune.dialects.job_parts import DType, TrainingConfig
from ms_tune.dialects.stage import Stage
from ms_tune.errors import UnsupportedError
from ms_tune.estimate.flops import widths_of_shape
from ms_tune.estimate.memory import (
    LiveLayers,
    RankShare,
    StageEstimate,
    estimate_stage,
    logits_bytes,
    megatron_activations,
    score_bytes,
)
from ms_tune.estimate.persistent import WeightBytes, stage_weights
from ms_tune.records import Any, Record
from ms_tune.text import msg

_FLOAT = 4
_MOMENTS = 2 * _FLOAT
_HALF = 2
_ADAM = "adam"
_WITHOUT_SCORES = frozenset(
    {"self_attention", "self_attention.core_attention"}
)  # recomputed modules that keep no scores
_MOST = 1 << 50  # maximum of elements and bytes


@dataclass(frozen=True, slots=True)
class MegatronModel:
    """A rank's model and optimizer, once they are created."""

    weights: int  # bytes of the parameters
    trained: int  # trainable parameters
    experts: int  # those of them in experts, which differ between DP ranks
    data: int  # ranks that can shard the optimizer state of the others
    expert_data: int  # ranks that can shard the optimizer state of the experts
    distributed: bool  # the optimizer state is sharded (`--use-distributed-optimizer`)
    float32_gradients: bool  # gradients are in float32
    mixed: bool  # weights are not in float32, and the optimizer keeps a float32 copy
    optimizer: str
    reused: bool  # the weights are part of that copy (`--reuse-fp32-param`)

    @classmethod
    def from_record(cls, facts: Mapping[str, object]) -> MegatronModel:
        """Read the data that a process wrote; ValueError or KeyError if it has another form."""
        found: dict[str, Any] = {"optimizer": str(facts["optimizer"])}
        for name in ("weights", "trained", "experts", "data", "expert_data"):
            count = facts[name]
            if type(count) is not int or not int(name in ("data", "expert_data")) <= count < _MOST:
                raise ValueError(count)
            found[name] = count
        for name in ("distributed", "float32_gradients", "mixed", "reused"):
            found[name] = facts[name] is True
        return cls(**found)

    def theory(self) -> dict[str, int]:
        """Return the persistent bytes by content; unknown content is omitted.

        In mixed precision, 18 bytes per parameter: 2 for it, 4 for its gradient, and 12 for the float32 copy and Adam's two
        moments; with the distributed optimizer 6 + 12 / ranks (Megatron-LM core_v0.12.1,
        ``docs/source/api-guide/dist_optimizer.md``).
        """
        each = _FLOAT if self.float32_gradients or not self.mixed else _HALF
        found = {"gradients": each * self.trained}
        if not self.reused:
            found = {"weights": self.weights, **found}
        if self.optimizer == _ADAM and not self.reused:
            state = _MOMENTS + (_FLOAT if self.mixed else 0)
            shared = self.trained
            if self.distributed:
                shared = -(-(self.trained - self.experts) // self.data) - (-self.experts // self.expert_data)
            found["optimizer_state"] = state * shared
        return found


# Lowest and highest ratio of persistent memory to its estimate, on the NPUs of MindSpeed-LLM's tests (docs/accuracy.md).
_LASTING_RATIOS = (0.99, 1.05)


class PartRatios(Record):
    """Lowest and highest ratios of the other parts to their estimates, from the same tests."""

    lowest: float = 0.85
    activations: float = 1.5
    loss: float = 1.25  # of the loss, or a recomputed layer

    def peak_ratios(self, stages: Sequence[StageEstimate]) -> tuple[float, float]:
        """Return the lowest and highest ratio to the peak of the fullest stage."""
        fullest, (least, most) = max(stages, key=lambda one: one.peak_bytes), _LASTING_RATIOS
        moving = fullest.activation_bytes + fullest.transient_bytes
        highest = (
            most * one.lasting_bytes + self.activations * one.activation_bytes + self.loss * one.transient_bytes
            for one in stages
        )
        low = least * fullest.lasting_bytes + self.lowest * moving
        return low / fullest.peak_bytes, max(highest) / fullest.peak_bytes


class LoraAdapter(Record):
    """The low-rank matrices that LoRA adds to projections."""

    rank: int
    targets: tuple[str, ...]  # names of the projections (``--lora-target-modules``)


class MegatronOptions(Record):
    """Options of a program that change its memory, in addition to its training config."""

    fused: bool  # gate and product of the feed-forward block are one operator, or it has no gate
    adapter: LoraAdapter | None = None  # only these matrices are trained
    reference: bool = False  # weights of a second, frozen model (DPO)
    reuses_copies: bool = False  # ``--reuse-fp32-param``
    scores: int = 0  # bytes kept per attention score; 0 with flash attention
    swap_parts: int = 0  # ``--swap-optimizer``: parts in which optimizer state comes to the device; 0 if it stays there
    sharded: bool = False  # ranks shard weights and gradients, too, and gather a layer before it runs (FSDP2)


def megatron_stage(
    config: TrainingConfig, stage: Stage, in_flight: Sequence[int], options: MegatronOptions
) -> StageEstimate:
    """Estimate the peak memory of a stage."""
    parallel = config.parallelism
    widths = widths_of_shape(config.shape)
    tokens = config.shape.seq_length * config.batch.micro_batch_size // parallel.context
    share = RankShare(tokens, parallel.tensor, parallel.sequence, parallel.context, parallel.expert)
    scores = score_bytes(widths, share, options.scores)
    layers = []
    for chunk, flying in zip(stage.chunks, in_flight, strict=True):
        for layer in chunk.layers:
            kept = megatron_activations(
                widths, share, experts=layer.experts, fused=options.fused, recomputed=layer.select
            )
            if not _WITHOUT_SCORES.intersection(layer.select):
                kept = kept._replace(none=kept.none + scores)
            layers.append(LiveLayers(kept, flying, full=layer.full))
    logits = logits_bytes(widths, share) if stage.number == stage.stages - 1 else 0
    lasting, step = _persistent_bytes(config, stage, options)
    found = estimate_stage(stage.number, stage.layers, lasting, layers, logits)
    if options.sharded:  # weights of the layer that runs and of the next one, and a gradient before it is reduced
        largest = max((one.activations.parameters for one in layers), default=0)
        found = found._replace(transient_bytes=found.transient_bytes + 3 * largest * config.precision.parameters.bytes)
    # Optimizer state that is swapped in comes when activations are gone.
    return found._replace(transient_bytes=max(found.transient_bytes, step - found.activation_bytes))


def _persistent_bytes(config: TrainingConfig, stage: Stage, options: MegatronOptions) -> tuple[int, int]:
    # Return the bytes that stay for the whole run, and those that the optimizer's step needs in addition.
    weights = list(stage_weights(config, stage))
    counted = sum(one.size for one in weights)
    trained = weights if options.adapter is None else list(_adapter_weights(config, stage, options.adapter))
    ranks = config.optimizer.shards or 1
    of_trained = sum(one.size for one in trained)
    experts = sum(one.size for one in weights if one.experts)
    model = MegatronModel(
        weights=(counted + (0 if trained is weights else of_trained)) * config.precision.parameters.bytes,
        trained=of_trained,
        experts=sum(one.size for one in trained if one.experts),
        data=ranks,
        expert_data=max(1, _expert_ranks(config, ranks)),
        distributed=config.optimizer.distributed or options.sharded,
        float32_gradients=config.precision.gradients is DType.FLOAT32,
        mixed=config.precision.mixed,
        optimizer=config.optimizer.name,
        reused=False,
    )
    found = model.theory()
    if "optimizer_state" not in found:
        raise UnsupportedError(msg("check.script.otherwise", argument="--optimizer"))
    state = found.pop("optimizer_state")
    if config.precision.mixed and config.precision.gradients is not DType.FLOAT32:  # the step keeps its float32 copies
        state = state * (_MOMENTS + 2 * _FLOAT) // (_MOMENTS + _FLOAT)
    if options.reuses_copies:  # a copy is a weight and its 16-bit remainder (MindSpeed core/memory/reuse_param)
        state = state * (_MOMENTS + _HALF) // (_MOMENTS + _FLOAT)
    if options.sharded:
        own = -(-(counted - experts) // model.data) - (-experts // model.expert_data)
        found = {name: size * own // max(1, counted) for name, size in found.items()}
    kept = sum(found.values()) + (counted * config.precision.parameters.bytes if options.reference else 0)
    return (kept, state // options.swap_parts) if options.swap_parts else (kept + state, 0)


def _expert_ranks(config: TrainingConfig, ranks: int) -> int:
    # Return the ranks with the same experts, of those with the same other weights (``expert_data_parallel_group``).
    experts, parallel = config.shape.experts, config.parallelism
    splits = experts is not None and experts.tensor_parallel
    return ranks * (1 if splits else parallel.tensor) // parallel.expert


def _adapter_weights(config: TrainingConfig, stage: Stage, adapter: LoraAdapter) -> Iterator[WeightBytes]:
    # A column-parallel projection has its whole first matrix on each rank, a row-parallel one its whole second matrix
    # (MindSpeed-LLM tasks/posttrain/lora/lora_moe.py); experts of a grouped matmul have none.
    shape, tensor, dtype = config.shape, config.parallelism.tensor, config.precision.parameters
    hidden, heads = shape.hidden_size, shape.num_attention_heads * shape.head_size // tensor
    groups = max(1, shape.num_query_groups // tensor) * shape.head_size
    times = 2 if shape.gated else 1
    for layer in (layer for chunk in stage.chunks for layer in chunk.layers):
        inner = shape.ffn_hidden_size
        if layer.experts and shape.experts:
            inner = shape.experts.shared_ffn_hidden_size
        projections = {"linear_qkv": (hidden, heads + 2 * groups), "linear_proj": (heads, hidden)}
        if inner:
            projections |= {"linear_fc1": (hidden, times * inner // tensor), "linear_fc2": (inner // tensor, hidden)}
        for name, (inputs, outputs) in projections.items():
            if name in adapter.targets:
                yield WeightBytes(adapter.rank, inputs + outputs, dtype)
