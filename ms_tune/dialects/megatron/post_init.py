"""What ``TransformerConfig.__post_init__`` refuses of what concerns layers (Megatron-LM core_v0.12.1).

``megatron/core/transformer/transformer_config.py``, in its order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.megatron.refusal import fail, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dialects.megatron.inputs import MegatronInputs


def recomputed_modules(
    inputs: MegatronInputs, granularity: str | None, method: str | None, number: int | None, allowed: Sequence[str]
) -> tuple[str, ...]:
    """The settings of recomputation; what selective recomputation repeats.

    Raises:
        FrameworkStop: They do not go together.
    """
    if granularity == "full":
        if method is None:
            fail("full-method", granularity=granularity)
        if number is None:
            fail("full-number", granularity=granularity, rest=inputs.layers // inputs.stages)
    elif granularity == "selective" and number is not None:
        fail("selective-number", granularity=granularity)
    if granularity is not None and inputs.distributed and inputs.other("sequence_parallel"):
        fail("distributed-sequence")
    modules = ("core_attn",) if inputs.modules is None else inputs.modules
    if granularity == "selective":
        _check_modules(inputs, modules, allowed)
    if inputs.whole_experts:
        if granularity == "full":
            fail("experts-full")
        modules = modules if "moe" in modules else (*modules, "moe")
    return modules


def _check_modules(inputs: MegatronInputs, modules: Sequence[str], allowed: Sequence[str]) -> None:
    unknown = [one for one in modules if one not in allowed]
    require(not unknown, "modules", unknown=", ".join(unknown))
    if "moe_act" in modules and not inputs.grouped:
        fail("module-grouped")
    if "mla_up_proj" in modules and not inputs.latent:
        fail("module-latent")


def check_split(inputs: MegatronInputs, chunks: int | None) -> None:
    """Stages of different sizes, and stages that count the embedding or the loss as a layer.

    Raises:
        FrameworkStop: The layers cannot be shared out so.
    """
    uneven = inputs.first is not None or inputs.last is not None
    accounted = inputs.embedding or inputs.loss
    if uneven and accounted:
        fail("uneven-accounted")
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
            fail("uneven-count", place=place)
        if chunks is not None and number % chunks:
            fail("uneven-chunks", place=place, number=number, chunks=chunks)
        layers -= number
        stages -= 1
    if stages == 0:
        fail("uneven-all")
    if layers % stages:
        fail("uneven-middle", layers=layers, stages=stages)
    if chunks is not None and (layers // stages) % chunks:
        fail("uneven-middle-chunks", share=layers // stages, chunks=chunks)


def _accounted(inputs: MegatronInputs, chunks: int | None) -> None:
    number = inputs.layers + inputs.embedding + inputs.loss
    if number % inputs.stages:
        fail(f"accounted-by-{'' if chunks is None else 'virtual-'}stages", number=number, inputs=inputs)
    of_stage = number // inputs.stages
    if chunks is not None and of_stage % chunks:
        fail("accounted-chunks", of_stage=of_stage, chunks=chunks)
