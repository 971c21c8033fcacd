"""Checks of values of legacy networks (MindFormers 1.6 to 2.1): heads that only the compiler refuses, names of data types.

``convert_mstype`` in ``mindformers/models/utils.py`` takes the names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindformers import startup
from ms_tune.lint.checks import legacy_glm, legacy_llama
from ms_tune.lint.checks.legacy_network import MODEL
from ms_tune.source.yaml import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext

_TYPES = ("float16", "float32", "bfloat16", "int8")
_OF_EXPERTS = "router_dense_type"  # belongs into another section


def unknown(context: CheckContext) -> Iterator[Violation]:
    """A data type that is not known; capitals make no difference. Where the class has none, a null stands for another one's."""
    if not (legacy_llama.is_llama(context) or legacy_glm.is_glm(context)):
        return
    for name, default in context.model.facts.defaults.items():
        typed = name.endswith(("_dtype", "_type")) and default in (None, *_TYPES) and name != _OF_EXPERTS
        value = context.source.get((*MODEL, name), MISSING)
        if not typed or value is MISSING or (value is None and default is None):
            continue
        if str(value).lower() not in _TYPES:
            yield Violation((*MODEL, name), params={"choices": ", ".join(_TYPES)})


def uneven(context: CheckContext) -> Iterator[Violation]:
    """Heads of keys and values that do not divide the attention heads."""
    yield from legacy_llama.uneven_key_heads(context)
    yield from legacy_glm.uneven_groups(context)


def unsplit_vocabulary(context: CheckContext) -> Iterator[Violation]:
    """A vocabulary of a legacy model that is no multiple: ``LlamaForCausalLM`` splits neither the loss nor the output layer."""
    ways = context.integer("parallel_config.model_parallel", 1) or 1
    if ways <= 1 or not startup.splits(context) or not legacy_llama.is_llama(context):
        return
    size = context.model.number("vocab_size")
    path = ("model", "model_config", "vocab_size")
    if size and size % ways and context.source.get(path) is not None:
        yield Violation(path, params={"size": size, "ways": ways})
