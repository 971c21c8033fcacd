"""What the legacy Llama and ChatGLM networks (GLM2, GLM3, GLM4-9B) refuse while they are built (MindFormers 1.6 to 2.1).

``LlamaModel`` in ``mindformers/models/llama/llama.py``, ``LLamaAttention`` and ``LLamaDecodeLayer`` in ``llama_transformer.py``,
``LlamaFeedForward`` in ``llama_layer.py`` and ``LLamaDecodeLayerInterleave`` in ``llama_interleave.py`` beside it;
``LowerTriangularMaskWithDynamic``, ``MoEV2`` and ``MoEV3`` in ``mindformers/modules/transformer``; ``FreqsMgr`` in
``mindformers/modules/layers.py``. ``ChatGLM2Model`` in ``mindformers/models/glm2/glm2.py``, ``ChatGLM2SelfAttention`` in
``glm2_transformer.py`` and ``FreqsMgr`` in ``glm2_modules.py`` beside it; ``FlashAttention`` in ``mindformers/modules/flash_attention.py``.
Tensor parallelism over ``tp_x``, ``tp_y`` and ``tp_z``: ``check_use_3d_tensor_parallel_valid`` in ``mindformers/models/utils.py``. The
releases differ in none of the rules.

Most of it is rows of the checklist; here is what asks for several places at once, or for a product. Sizes are those of ``model_config``
with the defaults of the network's configuration class; ways of splitting are those of ``parallel_config``, 1 where MindFormers sets
them back to 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindformers import startup
from ms_tune.facts.models import UNKNOWN
from ms_tune.source.yaml import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext

MODEL = ("model", "model_config")
_PARALLEL, _EXPERTS = "parallel_config", "moe_config"
_DIMENSIONS = ("tp_x", "tp_y", "tp_z")
_LLAMAS = (None, "LlamaForCausalLM", "LlamaModel")
_GLMS = ("ChatGLM2ForConditionalGeneration", "ChatGLM2Model", "ChatGLM2WithPtuning2")
_AUTOMATIC = (2, "AUTO_PARALLEL")  # `PARALLEL_MODE` in mindformers/tools/utils.py
_MASK = 2048  # tokens: the size of the compressed mask


def is_llama(context: CheckContext) -> bool:
    """Whether the config is one of the legacy Llama network, and says all about it."""
    named = context.get("model.arch.type") in _LLAMAS and context.get("model.model_config.type") == "LlamaConfig"
    return startup.is_legacy(context) and named and not context.get("pretrained_model_dir")


def is_glm(context: CheckContext) -> bool:
    """Whether the config is one of the legacy ChatGLM network, and says all about it."""
    named = context.get("model.arch.type") in _GLMS and context.get("model.model_config.type") == "ChatGLM2Config"
    return startup.is_legacy(context) and named and not context.get("pretrained_model_dir")


def find_refused_switches(context: CheckContext) -> Iterator[Violation]:
    """Switches (option ``switches``) that are on without what they need (option ``needs``)."""
    met = {
        "flash": _is_on(context, "use_flash_attention"),
        "whole-sequence": (context.integer(f"{_PARALLEL}.seq_split_num") or 1) <= 1,
        "long-sequence": (context.model.number("seq_length") or _MASK) >= _MASK,
    }
    switches = context.options["switches"]
    if isinstance(switches, list) and not met[str(context.options["needs"])]:
        for name in switches:
            if _is_on(context, name):
                yield Violation(_written(context, *MODEL, name), params={"name": name})


def find_no_heads(context: CheckContext) -> Iterator[Violation]:
    """No heads at all, or none of keys and values, which layers alone ask for (the options name the settings)."""
    for option in ("heads", "key-heads") if context.model.layers else ("heads",):
        name = str(context.options[option])
        number = context.model.number(name)
        if number is not None and number <= 0:
            yield Violation(_written(context, *MODEL, name), params={"name": name, "number": number})


def find_uneven_key_heads(context: CheckContext) -> Iterator[Violation]:
    """Heads of keys and values that the attention heads cannot share evenly.

    The network is built; ``FlashAttentionScore`` and the plain product of matrices refuse the shapes when it is compiled.
    """
    of_llama = is_llama(context)
    names = ("num_heads", "n_kv_heads") if of_llama else ("num_attention_heads", "multi_query_group_num")
    heads, key_heads = map(context.model.number, names)
    if (of_llama or is_glm(context)) and heads and key_heads and key_heads > 0 and heads % key_heads:
        yield Violation((*MODEL, names[1]), params={"heads": heads, "key_heads": key_heads})


def find_unsplit_heads(context: CheckContext) -> Iterator[Violation]:
    """Heads (option ``name``) that tensor and Ulysses parallelism do not divide.

    ``tp_y`` takes the place of tensor parallelism. Layers that compute and communicate in turn split those of keys and values, by tensor
    parallelism alone.
    """
    name = str(context.options["name"])
    number, ways = context.model.number(name), _tensor(context)
    if _is_interleaved(context):
        number = (number or context.model.number("num_heads")) if name == "n_kv_heads" else None
    else:
        first = _dimensions(context)[1] if _is_three_dimensional(context) else ways
        ways = first * context.job.degree("ulysses") if isinstance(first, int) else 0
    yield from _not_divided(context, number, ways, (*MODEL, name))


def find_unsplit_block(context: CheckContext) -> Iterator[Violation]:
    """A feed-forward block (``LlamaFeedForward``) that tensor parallelism does not divide.

    Experts that are multiplied in groups have another one; ``tp_x`` and ``tp_y`` have a rule of their own. Of layers that compute and
    communicate in turn MindSpore may find the way itself.
    """
    plain = not context.get(f"{_EXPERTS}.use_gmm") and (_experts(context) > 1 or not _shared_experts(context))
    if (not _propagates(context)) if _is_interleaved(context) else (plain and not _is_three_dimensional(context)):
        yield from _not_divided(context, _inner(context), _tensor(context), (*MODEL, "intermediate_size"))


def find_missing_expert_ranks(context: CheckContext) -> Iterator[Violation]:
    """Each group of expert-parallel ranks takes its ranks out of the data- and context-parallel ones."""
    if _experts(context) == 1 or context.get(f"{_EXPERTS}.use_gmm") or not _has_plain_layers(context):
        return
    ranks, groups = context.job.degree("data") * context.job.degree("context"), context.job.degree("expert")
    within = context.integer(f"{_EXPERTS}.expert_model_parallel")
    if within is not None:
        ranks, groups = ranks * _tensor(context), groups * within
    if groups > ranks:
        yield Violation(_written(context, _PARALLEL, "expert_parallel"), params={"ranks": ranks, "groups": groups})


def find_unlike_expert_ranks(context: CheckContext) -> Iterator[Violation]:
    """Data- and tensor-parallel ranks that the groups of experts do not divide, where experts are multiplied in groups (``MoEV3``)."""
    if _experts(context) > 1 and context.get(f"{_EXPERTS}.use_gmm") and not _is_interleaved(context):
        ranks = context.job.degree("data") * _tensor(context)
        yield from _not_divided(context, ranks, context.job.degree("expert"), (_PARALLEL, "expert_parallel"))


def find_unsplit_shared_experts(context: CheckContext) -> Iterator[Violation]:
    """Shared experts are one wide block, which tensor parallelism splits unless sequence parallelism has its ranks."""
    width, number = context.model.number("intermediate_size"), _shared_experts(context)
    if width is None or not isinstance(number, int) or not number or startup.splits_sequence(context):
        return
    if _experts(context) != 1 and not _is_interleaved(context):
        yield from _not_divided(context, width * number, _tensor(context), (*MODEL, "intermediate_size"))


def find_dimensions_without_sequence(context: CheckContext) -> Iterator[Violation]:
    """Three dimensions without sequence parallelism, or in a network that is not split."""
    if not startup.splits_sequence(context):
        yield Violation(_written(context, _PARALLEL, "use_seq_parallel"))


def find_other_product(context: CheckContext) -> Iterator[Violation]:
    """Three dimensions whose product is not ``model_parallel``."""
    if _is_three_dimensional(context) and not _fills_tensor(context):
        numbers = _dimensions(context)
        params = {"product": " x ".join(map(str, numbers)), "ways": _tensor(context)}
        yield Violation(_written(context, *MODEL, "tp_x"), params=params)


def find_undivided_size(context: CheckContext) -> Iterator[Violation]:
    """A size of the feed-forward block (option ``name``) that ``tp_x`` and ``tp_y`` each have to divide."""
    name = str(context.options["name"])
    if _is_three_dimensional(context) and _fills_tensor(context):
        number = _inner(context) if name == "intermediate_size" else context.model.number(name)
        every = (_not_divided(context, number, one, (*MODEL, name)) for one in _dimensions(context)[:2])
        yield from next((found for one in every if (found := list(one))), [])


def find_ignored_dimensions(context: CheckContext) -> Iterator[Violation]:
    """The switch without tensor parallelism, or numbers without the switch: nothing is split in three dimensions."""
    if not is_llama(context):
        return
    if _is_on(context, "use_3d_tensor_parallel"):
        if not _is_three_dimensional(context):
            yield Violation((*MODEL, "use_3d_tensor_parallel"))
        return
    for name in _DIMENSIONS:
        if context.source.get((*MODEL, name), MISSING) not in (MISSING, None, 1):
            yield Violation((*MODEL, name), "number", {"name": name})


def _not_divided(context: CheckContext, number: int | None, ways: object, path: KeyPath) -> Iterator[Violation]:
    """A number that ways do not divide, which layers ask of it."""
    if number is not None and isinstance(ways, int) and ways and number % ways and context.model.layers:
        yield Violation(_written(context, *path), params={"number": number, "divisor": ways, "ways": ways})


def _inner(context: CheckContext) -> int | None:
    """The width of the feed-forward block, which follows from others if it is not said."""
    given = context.model.value("intermediate_size")
    hidden, multiple = context.model.number("hidden_size"), context.model.number("multiple_of")
    factor = context.model.value("ffn_dim_multiplier")
    if given not in (None, UNKNOWN) or hidden is None or not multiple:
        return given if isinstance(given, int) and not isinstance(given, bool) else None
    width = 4 * hidden
    if factor not in (None, UNKNOWN):
        if not isinstance(factor, (int, float)):
            return None
        width = int((factor + 0.01) * width)
    return -(-int(2 * width / 3) // multiple) * multiple


def _is_on(context: CheckContext, name: str) -> bool:
    return context.model.value(name) not in (UNKNOWN, None) and bool(context.model.value(name))


def _tensor(context: CheckContext) -> int:
    return context.job.degree("tensor")


def _experts(context: CheckContext) -> int:
    """Experts of a layer; 1 for a plain feed-forward block."""
    return context.integer(f"{_EXPERTS}.expert_num", 1) or 1


def _shared_experts(context: CheckContext) -> object:
    """Experts that every token goes through."""
    return context.get(f"{_EXPERTS}.shared_expert_num") or 0


def _has_plain_layers(context: CheckContext) -> bool:
    return bool(context.model.layers) and not _is_interleaved(context)


def _is_interleaved(context: CheckContext) -> bool:
    """Whether layers compute and communicate in turn, which is of use to tensor parallelism only."""
    return (context.model.number("fine_grain_interleave") or 1) > 1 and _tensor(context) > 1


def _is_three_dimensional(context: CheckContext) -> bool:
    """Whether tensor parallelism in three dimensions is asked for and means something."""
    return _is_on(context, "use_3d_tensor_parallel") and _tensor(context) > 1


def _dimensions(context: CheckContext) -> tuple[object, ...]:
    """The three numbers whose product is to be ``model_parallel``."""
    written = [context.source.get((*MODEL, name), MISSING) for name in _DIMENSIONS]
    return tuple(1 if value is MISSING else value for value in written)


def _fills_tensor(context: CheckContext) -> bool:
    numbers = [number for number in _dimensions(context) if isinstance(number, int)]
    return len(numbers) == len(_DIMENSIONS) and math.prod(numbers) == _tensor(context)


def _propagates(context: CheckContext) -> bool:
    """Whether MindSpore finds most ways of splitting itself: ``auto_parallel`` by propagation, its default in MindFormers."""
    told = context.get("parallel.search_mode", "sharding_propagation") == "sharding_propagation"
    told = told or bool(context.get("parallel.sharding_propagation"))
    return startup.splits(context) and context.get("parallel.parallel_mode", 1) in _AUTOMATIC and told


def _written(context: CheckContext, *path: str | int) -> KeyPath:
    """The key path, if it is written, or else the innermost section above it that is."""
    while len(path) > 1:
        section = context.source.get(path[:-1])
        if isinstance(section, dict) and path[-1] in section:
            return path
        path = path[:-1]
    return path
