"""What ``TransformerConfig.__post_init__`` refuses of what concerns layers (Megatron-LM core_v0.12.1).

``megatron/core/transformer/transformer_config.py``, in its order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.layers.megatron.refusal import fail, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.layers.megatron.inputs import MegatronInputs

_FILE = "megatron/core/transformer/transformer_config.py"


def recomputed_modules(
    inputs: MegatronInputs, granularity: str | None, method: str | None, number: int | None, allowed: Sequence[str]
) -> tuple[str, ...]:
    """The settings of recomputation; what selective recomputation repeats.

    Raises:
        FrameworkStop: They do not go together.
    """
    if granularity == "full":
        if method is None:
            fail(
                _FILE,
                "ValueError",
                f'Using recompute_granularity: {granularity} so recompute_method must be "block" or "uniform"',
                "full-method",
            )
        if number is None:
            fail(
                _FILE,
                "ValueError",
                f"When using recompute_granularity: {granularity} recompute_num_layers must be between 1 and "
                f"num_layers_per_pipeline_rank: {inputs.layers // inputs.stages}",
                "full-number",
            )
    elif granularity == "selective" and number is not None:
        fail(
            _FILE,
            "ValueError",
            f"When using recompute_granularity: {granularity} recompute_num_layers must be None.",
            "selective-number",
        )
    if granularity is not None and inputs.distributed and inputs.other("sequence_parallel"):
        fail(
            _FILE,
            "ValueError",
            "distribute_saved_activations: True must be false when sequence parallel is enabled: True",
            "distributed-sequence",
        )
    modules = ("core_attn",) if inputs.modules is None else inputs.modules
    if granularity == "selective":
        _check_modules(inputs, modules, allowed)
    if inputs.whole_experts:
        if granularity == "full":
            text = "Do not set --moe-layer-recompute with full recompute granularity. "
            fail(_FILE, "ValueError", text, "experts-full")
        modules = modules if "moe" in modules else (*modules, "moe")
    return modules


def _check_modules(inputs: MegatronInputs, modules: Sequence[str], allowed: Sequence[str]) -> None:
    unknown = [one for one in modules if one not in allowed]
    require(not unknown, _FILE, f"Invalid choices for recompute_modules: {', '.join(unknown)}.", "modules")
    if "moe_act" in modules and not inputs.grouped:
        text = "moe_act in recompute_modules is only supported with moe_grouped_gemm."
        fail(_FILE, "ValueError", text, "module-grouped")
    if "mla_up_proj" in modules and not inputs.latent:
        text = "mla_up_proj in recompute_modules is only supported with multi_latent_attention."
        fail(_FILE, "ValueError", text, "module-latent")


def check_split(inputs: MegatronInputs, chunks: int | None) -> None:
    """Stages of different sizes, and stages that count the embedding or the loss as a layer.

    Raises:
        FrameworkStop: The layers cannot be shared out so.
    """
    uneven = inputs.first is not None or inputs.last is not None
    accounted = inputs.embedding or inputs.loss
    if uneven and accounted:
        fail(
            _FILE,
            "ValueError",
            "num_layers_in_first_pipeline_stage and num_layers_in_last_pipeline_stage cannot beset at the same time with "
            "account_for_embedding_in_pipeline_splitand account_for_loss_in_pipeline_split",
            "uneven-accounted",
        )
    if uneven:
        _uneven(inputs, chunks)
    if accounted:
        _accounted(inputs, chunks)


def _uneven(inputs: MegatronInputs, chunks: int | None) -> None:
    layers, stages = inputs.layers, inputs.stages
    for place, number in (("first", inputs.first), ("last", inputs.last)):
        if number is None:
            continue
        if number <= 0:
            text = f"num_layers_in_{place}_pipeline_stage must be larger than 0"
            fail(_FILE, "ValueError", text, "uneven-count")
        if chunks is not None and number % chunks:
            fail(
                _FILE,
                "ValueError",
                f"number of layers at {place} stage: {number}must be divisible by virtual pipelineparallel degree {chunks}",
                "uneven-chunks",
            )
        layers -= number
        stages -= 1
    if stages == 0:
        fail(_FILE, "ZeroDivisionError", "integer modulo by zero", "uneven-all")
    if layers % stages:
        fail(
            _FILE,
            "ValueError",
            f"number of layers at middle stage: {layers} must be divisible bythe middle pipeline model parallel size {stages}",
            "uneven-middle",
        )
    if chunks is not None and (layers // stages) % chunks:
        fail(
            _FILE,
            "ValueError",
            f"number of layers on each middle pipeline rank:{layers // stages} must be divisible by virtualpipeline "
            f"parallel degree {chunks}",
            "uneven-chunks",
        )


def _accounted(inputs: MegatronInputs, chunks: int | None) -> None:
    number = inputs.layers + inputs.embedding + inputs.loss
    if number % inputs.stages:
        text = (
            f"number of middle layers: {number} must be divisible by middle pipeline_model_parallel_size {inputs.stages}"
            if chunks is None
            else f"num_layers: {number} after enableaccount_for_embedding_in_pipeline_split or "
            f"account_for_loss_in_pipeline_split must be divisibleby pipeline_model_parallel_size {inputs.stages}"
        )
        fail(_FILE, "ValueError", text, "layers-by-stages")
    of_stage = number // inputs.stages
    if chunks is not None and of_stage % chunks:
        fail(
            _FILE,
            "ValueError",
            f"number of layers on each pipeline rank: {of_stage}(after enable account_for_embedding_in_pipeline_split or "
            f"account_for_loss_in_pipeline_split) must be divisible byvirtual_pipeline_model_parallel_size{chunks}",
            "chunks-of-stage",
        )
