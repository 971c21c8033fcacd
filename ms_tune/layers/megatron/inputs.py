"""What of a program's arguments decides about the layers, as they are written, and what the frameworks make of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# What each field is called as an argument.
ARGUMENTS = {
    "layers": "--num-layers",
    "stages": "--pipeline-model-parallel-size",
    "layers_of_chunk": "--num-layers-per-virtual-pipeline-stage",
    "chunks": "--num-virtual-stages-per-pipeline-rank",
    "layer_list": "--num-layer-list",
    "noop": "--noop-layers",
    "ahead": "--mtp-num-layers",
    "experts": "--num-experts",
    "grouped": "--moe-grouped-gemm",
    "dense": "--first-k-dense-replace",
    "latent": "--multi-latent-attention",
    "granularity": "--recompute-granularity",
    "method": "--recompute-method",
    "number": "--recompute-num-layers",
    "modules": "--recompute-modules",
    "whole_experts": "--moe-layer-recompute",
    "by_rank": "--enable-recompute-layers-per-pp-rank",
    "activation": "--recompute-activation-function",
    "activation_layers": "--recompute-activation-function-num-layers",
    "norm": "--recompute-norm",
    "norm_layers": "--recompute-norm-num-layers",
    "in_bubble": "--recompute-in-bubble",
    "in_advance": "--recompute-in-advance",
    "swap": "--swap-attention",
    "distributed": "--distribute-saved-activations",
}
MOST_LAYERS = 10_000  # a slip of the keyboard must not fill the memory


@dataclass(frozen=True, slots=True)
class MegatronInputs:
    """The arguments as they are written; where nothing is written, the parser's default.

    Args:
        release: The release of MindSpeed-LLM.
        layers: ``--num-layers``.
        stages: ``--pipeline-model-parallel-size``.
        layers_of_chunk: ``--num-layers-per-virtual-pipeline-stage``.
        chunks: ``--num-virtual-stages-per-pipeline-rank``.
        overlap: Not ``--no-overlap-p2p-communication``.
        first: ``--decoder-first-pipeline-num-layers``.
        last: ``--decoder-last-pipeline-num-layers``.
        embedding: ``--account-for-embedding-in-pipeline-split``.
        loss: ``--account-for-loss-in-pipeline-split``.
        layer_list: ``--num-layer-list``.
        noop: ``--noop-layers``.
        unaligned: ``--pipeline-num-transformer-layers``.
        schedule: ``--schedules-method``.
        ahead: ``--mtp-num-layers``: layers that predict further tokens.
        experts: ``--num-experts``.
        grouped: ``--moe-grouped-gemm``.
        dense: ``--first-k-dense-replace``.
        frequency: ``--moe-layer-freq``.
        granularity: ``--recompute-granularity``.
        activations: ``--recompute-activations``.
        method: ``--recompute-method``.
        number: ``--recompute-num-layers``.
        modules: ``--recompute-modules``.
        whole_experts: ``--moe-layer-recompute``.
        by_rank: ``--enable-recompute-layers-per-pp-rank``.
        activation: ``--recompute-activation-function``.
        activation_layers: ``--recompute-activation-function-num-layers``.
        norm: ``--recompute-norm``.
        norm_layers: ``--recompute-norm-num-layers``.
        in_bubble: ``--recompute-in-bubble``.
        in_advance: ``--recompute-in-advance``.
        swap: ``--swap-attention``.
        swap_modules: ``--swap-modules``.
        distributed: ``--distribute-saved-activations``.
        tensor: ``--tensor-model-parallel-size``.
        micro_batches: Micro-batches of a step; None if that is not known.
        latent: ``--multi-latent-attention``.
        others: What else is asked of settings that do not go together, by destination.
    """

    release: str
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
    micro_batches: int | None = None
    latent: bool = False
    others: Mapping[str, object] | None = None

    def other(self, dest: str) -> object:
        """A setting that is only asked whether it goes with others; None if it is not written."""
        return (self.others or {}).get(dest)


@dataclass(frozen=True, slots=True)
class Settled:
    """What the frameworks have once they have validated the arguments.

    Args:
        chunks: Chunks of a stage; None without virtual pipeline.
        layers_of_chunk: ``args.num_layers_per_virtual_pipeline_stage``.
        layer_list: Layers of each stage, by ``--num-layer-list``.
        noop: Layers that do nothing, by the number that the frameworks give them.
        table: Layers of each stage and chunk, by ``--pipeline-num-transformer-layers``.
        granularity: ``full``, ``selective`` or None.
        method: ``uniform``, ``block`` or None.
        number: ``args.recompute_num_layers``.
        modules: What selective recomputation repeats.
        spare_last: Whether the last layer of the last chunk is not recomputed (``reduce_recompute_for_last_chunk``).
        in_advance: ``args.recompute_in_advance`` after validation.
    """

    chunks: int | None
    layers_of_chunk: int | None
    layer_list: tuple[int, ...] | None
    noop: frozenset[int]
    table: tuple[tuple[int, ...], ...] | None
    granularity: str | None
    method: str | None
    number: int | None
    modules: tuple[str, ...]
    spare_last: bool
    in_advance: bool
