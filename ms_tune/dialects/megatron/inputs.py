"""What of a program's arguments decides about the layers, as they are written, and what the frameworks make of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from ms_tune.dialects import stop
from ms_tune.facts.query import load
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Mapping

# Where the argument of each field of `MegatronInputs` writes: first those that a plan is written with.
_OF_PLANS = {
    "layers": "num_layers",
    "stages": "pipeline_model_parallel_size",
    "layers_of_chunk": "num_layers_per_virtual_pipeline_stage",
    "chunks": "num_virtual_stages_per_pipeline_rank",
    "layer_list": "num_layer_list",
    "noop": "noop_layers",
    "ahead": "mtp_num_layers",
    "experts": "num_experts",
    "grouped": "moe_grouped_gemm",
    "dense": "first_k_dense_replace",
    "latent": "multi_latent_attention",
    "granularity": "recompute_granularity",
    "method": "recompute_method",
    "number": "recompute_num_layers",
    "modules": "recompute_modules",
    "whole_experts": "moe_layer_recompute",
    "by_rank": "enable_recompute_layers_per_pp_rank",
    "activation": "recompute_activation_function",
    "activation_layers": "recompute_activation_function_num_layers",
    "norm": "recompute_norm",
    "norm_layers": "recompute_norm_num_layers",
    "in_bubble": "recompute_in_bubble",
    "in_advance": "recompute_in_advance",
    "swap": "swap_attention",
    "distributed": "distribute_saved_activations",
}
DESTINATIONS = {
    **_OF_PLANS,
    "overlap": "overlap_p2p_comm",
    "first": "decoder_first_pipeline_num_layers",
    "last": "decoder_last_pipeline_num_layers",
    "embedding": "account_for_embedding_in_pipeline_split",
    "loss": "account_for_loss_in_pipeline_split",
    "unaligned": "pipeline_num_transformer_layers",
    "schedule": "schedules_method",
    "frequency": "moe_layer_freq",
    "activations": "recompute_activations",
    "swap_modules": "swap_modules",
    "tensor": "tensor_model_parallel_size",
}
# What each field is called as an argument.
ARGUMENTS = {field: f"--{dest.replace('_', '-')}" for field, dest in _OF_PLANS.items()}
IN_YAML = "yaml_cfg"
# What builds layers of its own, or places them by rules that are not here.
NOT_SERVED = (
    *("pipeline_model_parallel_layout", "moe_fb_overlap", "share_kvstates", "full_attention_interval"),
    *("use_legacy_models", "hybrid_override_pattern", "encoder_num_layers", "layerwise_disaggregated_training"),
    IN_YAML,
)
MOST_LAYERS = 10_000  # a slip of the keyboard must not fill the memory


@dataclass(frozen=True, slots=True)
class MegatronInputs:
    """The arguments as they are written; where nothing is written, the parser's default.

    Each field is the value of the argument that :data:`DESTINATIONS` names; ``ahead`` are layers that predict further tokens.
    """

    release: str  # the release of MindSpeed-LLM
    layers: int
    stages: int = 1
    layers_of_chunk: int | None = None
    chunks: int | None = None
    overlap: bool = True
    first: int | None = None
    last: int | None = None
    embedding: bool = False
    loss: bool = False
    layer_list: str | None = None
    noop: str | None = None
    unaligned: str | None = None
    schedule: str | None = None
    ahead: int | None = None
    experts: int | None = None
    grouped: bool = False
    dense: int | None = None
    frequency: int | None = 1
    granularity: str | None = None
    activations: bool = False
    method: str | None = None
    number: int | None = None
    modules: tuple[str, ...] | None = None
    whole_experts: bool = False
    by_rank: bool = False
    activation: bool = False
    activation_layers: int | None = None
    norm: bool = False
    norm_layers: int | None = None
    in_bubble: bool = False
    in_advance: bool = False
    swap: bool = False
    swap_modules: str | None = None
    distributed: bool = False
    tensor: int = 1
    micro_batches: int | None = None  # Micro-batches of a step; None if that is not known
    latent: bool = False
    others: Mapping[str, object] | None = None  # what else is asked of settings that do not go together, by destination

    def other(self, dest: str) -> object:
        """A setting that is only asked whether it goes with others; None if it is not written."""
        return (self.others or {}).get(dest)


@dataclass(frozen=True, slots=True)
class Settled:
    """What the frameworks have once they have validated the arguments."""

    chunks: int | None  # chunks of a stage; None without virtual pipeline
    layers_of_chunk: int | None  # `args.num_layers_per_virtual_pipeline_stage`
    layer_list: tuple[int, ...] | None  # layers of each stage, by `--num-layer-list`
    noop: frozenset[int]  # layers that do nothing, by the number that the frameworks give them
    table: tuple[tuple[int, ...], ...] | None  # layers of each stage and chunk, by `--pipeline-num-transformer-layers`
    granularity: str | None  # `full`, `selective` or None
    method: str | None  # `uniform`, `block` or None
    number: int | None  # `args.recompute_num_layers`
    modules: tuple[str, ...]  # what selective recomputation repeats
    spare_last: bool  # whether the last layer of the last chunk is not recomputed (`reduce_recompute_for_last_chunk`)
    in_advance: bool  # `args.recompute_in_advance` after validation


def fail(name: str, /, **values: object) -> NoReturn:
    """The framework raises.

    Args:
        name: Which of ``facts/data/megatron_refusals.json``: where in its sources, which exception with which text, and the last
            part of a text ``megatron_layers.why.*``, which says what is to be done, if that is not the name.
        values: What the words are about.
    """
    one = load("megatron_refusals")["refusals"][name]
    why = msg(f"megatron_layers.why.{one.get('why', name)}")
    file = one["file"].format(**values)
    stop(
        one["error"].format(**values), one["text"].format(**values), msg("megatron_layers.in-file", file=file, why=why)
    )


def require(holds: object, name: str, /, **values: object) -> None:
    """What has to hold, or else the framework stops as in :func:`fail`."""
    if not holds:
        fail(name, **values)
