"""The arguments that determine a program's layers, and how the frameworks place the layers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from ms_tune.dialects import stop
from ms_tune.facts.query import load
from ms_tune.text import msg

# The destination of each field of `MegatronInputs`: first the fields with which a plan is written.
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
# The argument name of each field.
ARGUMENTS = {field: f"--{dest.replace('_', '-')}" for field, dest in _OF_PLANS.items()}
IN_YAML = "yaml_cfg"
# Arguments that build their own layers, or place them by rules that are not implemented here.
NOT_SERVED = (
    *("pipeline_model_parallel_layout", "moe_fb_overlap", "share_kvstates", "full_attention_interval"),
    *("use_legacy_models", "hybrid_override_pattern", "encoder_num_layers", "layerwise_disaggregated_training"),
    IN_YAML,
)
MOST_LAYERS = 10_000  # limits memory in case of a typing error


@dataclass(frozen=True, slots=True)
class MegatronInputs:
    """The arguments as given, or the parser's defaults.

    Each field is the value of the argument that :data:`DESTINATIONS` names; ``ahead`` counts multi-token prediction
    layers.
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
    micro_batches: int | None = None  # micro-batches per step; None if unknown
    latent: bool = False
    checked_settings: Mapping[str, object] | None = None  # further settings for compatibility checks, by destination

    def checked(self, dest: str) -> object:
        """Return an argument that is read only for compatibility checks; None if it is not given."""
        return (self.checked_settings or {}).get(dest)


@dataclass(frozen=True, slots=True)
class FinalArguments:
    """The values after the frameworks have validated the arguments."""

    chunks: int | None  # chunks per stage; None without virtual pipeline
    layers_of_chunk: int | None  # `args.num_layers_per_virtual_pipeline_stage`
    layer_list: tuple[int, ...] | None  # layers per stage, from `--num-layer-list`
    noop: frozenset[int]  # no-op layers, in the frameworks' numbering
    table: tuple[tuple[int, ...], ...] | None  # layers per stage and chunk, from `--pipeline-num-transformer-layers`
    granularity: str | None  # `full`, `selective` or None
    method: str | None  # `uniform`, `block` or None
    number: int | None  # `args.recompute_num_layers`
    modules: tuple[str, ...]  # modules that selective recomputation recomputes
    spare_last: bool  # whether the last layer of the last chunk is not recomputed (`reduce_recompute_for_last_chunk`)
    in_advance: bool  # `args.recompute_in_advance` after validation


def fail(name: str, /, **values: object) -> NoReturn:
    """Raise the framework's exception of this name in ``facts/data/megatron_refusals.json``.

    Each entry has the file, the exception with its text, and the last part of a text ``megatron_layers.why.*`` if it
    differs from the name.
    """
    one = load("megatron_refusals")["refusals"][name]
    why = msg(f"megatron_layers.why.{one.get('why', name)}")
    file = one["file"].format(**values)
    stop(
        one["error"].format(**values), one["text"].format(**values), msg("megatron_layers.in-file", file=file, why=why)
    )


def require(holds: object, name: str, /, **values: object) -> None:
    """Stop as in :func:`fail` unless the condition is true."""
    if not holds:
        fail(name, **values)


@dataclass(frozen=True, slots=True)
class StageChunk:
    """The layers of one chunk of one stage."""

    stage: int
    chunk: int
    count: int  # number of layers that it builds
    first_layer: int  # index of its first layer in the model
    looked_up: int  # number with which its first layer is looked up (no-op layers, experts)
    number: int  # `layer_number` of its first layer, from 0


def place_layers(inputs: MegatronInputs, final: FinalArguments) -> tuple[StageChunk, ...]:
    """Place the layers: return the cells in the order in which layers run through them."""
    found = []
    at = 0
    for chunk, stage in order(inputs, final):
        count = _count(inputs, final, stage, chunk)
        looked_up, number = _looked_up(inputs, final, stage, chunk), _number(inputs, final, stage, chunk)
        found.append(StageChunk(stage, chunk, count, at, looked_up, number))
        at += count
    return tuple(found)


def order(inputs: MegatronInputs, final: FinalArguments) -> Iterator[tuple[int, int]]:
    """Yield every (chunk, stage) in the order of the layers; with dualpipev the second chunk runs backwards."""
    for stage in range(inputs.stages):
        yield 0, stage
    if inputs.schedule == "dualpipev":
        for stage in reversed(range(inputs.stages)):
            yield 1, stage
    for chunk in range(1, final.chunks or 1):
        for stage in range(inputs.stages):
            yield chunk, stage


def _count(inputs: MegatronInputs, final: FinalArguments, stage: int, chunk: int) -> int:
    """Return ``get_num_layers_to_build`` of Megatron-LM or of its replacement."""
    if final.table is not None:
        return final.table[stage][chunk]
    if final.layer_list is not None:
        return final.layer_list[stage]
    if inputs.schedule == "dualpipev":
        return inputs.layers // inputs.stages // 2
    return _of_megatron(inputs, final, stage, chunk)


def _of_megatron(inputs: MegatronInputs, final: FinalArguments, stage: int, chunk: int) -> int:
    chunks = final.chunks
    if inputs.first is not None or inputs.last is not None:
        share = _count_uneven(inputs, stage)
    else:
        number = inputs.layers + inputs.embedding + inputs.loss
        require(number % inputs.stages == 0, "block-by-stages")
        share = number // inputs.stages
    if chunks is not None:
        require(share % chunks == 0, "block-by-chunks", share=share, chunks=chunks)
        share //= chunks
    if inputs.embedding and stage == 0 and chunk == 0:
        share -= 1
        require(share >= 0, "nothing-left-first")
    if inputs.loss and stage == inputs.stages - 1 and chunk == (chunks or 1) - 1:
        share -= 1
        require(share >= 0, "nothing-left-last")
    return share


def _count_uneven(inputs: MegatronInputs, stage: int) -> int:
    if stage == inputs.stages - 1 and inputs.last is not None:
        return inputs.last
    if stage == 0 and inputs.first is not None:
        return inputs.first
    number = inputs.layers - (inputs.first or 0) - (inputs.last or 0)
    return number // (inputs.stages - (inputs.first is not None) - (inputs.last is not None))


def _looked_up(inputs: MegatronInputs, final: FinalArguments, stage: int, chunk: int) -> int:
    share = inputs.layers // inputs.stages
    if inputs.schedule == "dualpipev":
        return _dualpipev(inputs, stage, chunk)
    if final.chunks is not None:
        return chunk * (inputs.layers // final.chunks) + stage * (share // final.chunks)
    return stage * share


def _dualpipev(inputs: MegatronInputs, stage: int, chunk: int) -> int:
    half = inputs.layers // inputs.stages // 2
    return inputs.layers - (stage + 1) * half if chunk else stage * half


def _number(inputs: MegatronInputs, final: FinalArguments, stage: int, chunk: int) -> int:
    if inputs.schedule == "dualpipev":
        return _dualpipev(inputs, stage, chunk)
    if inputs.stages == 1:
        return 0
    chunks = final.chunks
    if inputs.first is not None or inputs.last is not None:
        return _number_uneven(inputs, chunks, stage, chunk)
    layers = inputs.layers + inputs.embedding + inputs.loss
    share = layers // inputs.stages
    offset = stage * share if chunks is None else chunk * (layers // chunks) + stage * (share // chunks)
    return offset - (inputs.embedding and not (stage == 0 and chunk == 0))


def _number_uneven(inputs: MegatronInputs, chunks: int | None, stage: int, chunk: int) -> int:
    first, last = inputs.first or 0, inputs.last or 0
    middle_stages = inputs.stages - (inputs.first is not None) - (inputs.last is not None)
    middle = inputs.layers - first - last
    if chunks is not None:
        of_middle = middle // chunks
        total = first // chunks + of_middle + last // chunks
        if stage == 0:
            return chunk * total
        return chunk * total + first // chunks + (stage - 1) * (of_middle // middle_stages)
    if stage == 0:
        return 0
    share = middle // middle_stages if middle_stages > 0 else 0
    return (stage - (inputs.first is not None)) * share + first


def has_experts(inputs: MegatronInputs, number: int) -> bool:
    """Return whether the layer with this number has experts.

    ``_transformer_block_build_layers`` of MindSpeed-LLM uses the frequency only if the first layers are dense.
    """
    if not inputs.experts:
        return False
    if inputs.dense and inputs.frequency:
        return number >= inputs.dense and number % inputs.frequency == 0
    return True


_TOKEN = re.compile(r"\d+|\*|\[|\]")
_MOST_TOKENS = 1_000
_DEEPEST = 4  # a table has two levels


def parse_noop(inputs: MegatronInputs) -> frozenset[int]:
    """Return the no-op layers (``NoopLayersFeature.post_validate_args`` of MindSpeed, ``noop_layers.py``)."""
    if inputs.noop is None:
        return frozenset()
    found = set()
    for part in inputs.noop.split(","):
        if not part.isdecimal():
            fail("noop-digits", part=part)
        layer = int(part[:9]) if len(part) > 9 else int(part)  # noqa: PLR2004 - layer numbers are never that long
        require(layer < inputs.layers, "noop-beyond", inputs=inputs)
        found.add(layer)
    return frozenset(found)


def parse_table(text: str) -> tuple[tuple[int, ...], ...]:
    """Return the layers of each stage and chunk (``parse_string_to_array`` of MindSpeed): ``[[3],[5]]``, ``[[2,2]*2]``."""
    tokens = _TOKEN.findall(text)[:_MOST_TOKENS]
    found, _ = _level(tokens, 0, 0)
    rows = found[0] if found else []
    if not isinstance(rows, list):
        fail("table-form")
    counts = []
    for row in rows:
        if not isinstance(row, list) or any(isinstance(one, list) for one in row):
            fail("table-form")
        counts.append(tuple(one for one in row if isinstance(one, int)))
    return tuple(counts)


def _level(tokens: list[str], at: int, depth: int) -> tuple[list[object], int]:
    stack: list[object] = []
    while at < len(tokens):
        mark = tokens[at]
        at += 1
        if mark == "[":
            if depth > _DEEPEST:
                fail("table-form")
            inner, at = _level(tokens, at, depth + 1)
            stack.append(inner)
        elif mark == "]":
            return stack, at
        elif mark == "*":
            if at >= len(tokens) or not tokens[at].isdecimal() or not stack:
                fail("table-repeats")
            last = stack.pop()
            stack.extend([last] * min(int(tokens[at][:9]), MOST_LAYERS))
            at += 1
        else:
            stack.append(min(int(mark[:9]), MOST_LAYERS))
    return stack, at
