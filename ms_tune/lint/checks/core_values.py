"""Checks of values of Mcore models that the class refuses by name, and of widths that tensor parallelism cannot cut.

``convert_str_to_mstype`` in ``mindformers/parallel_core/mf_model_config.py`` (1.6) and ``transformer_config.py`` (1.7 to 2.1)
takes the names of data types; the linear layers of ``mindformers/parallel_core/training_graph/tensor_parallel/layers.py`` give
each rank an equal part of their output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.errors import closest
from ms_tune.frameworks.models import UNKNOWN
from ms_tune.frameworks.registries import mindspore_values
from ms_tune.lint.checks import legacy_llama, startup
from ms_tune.lint.context import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.lint.context import Context

_TYPED = ("params", "compute", "layernorm_compute", "rotary", "moe_router", "softmax_compute", "embedding_params")
_WIDTHS = ("ffn_hidden_size", "moe_ffn_hidden_size", "vocab_size", "hidden_size")


def data_types(context: Context) -> Iterator[Violation]:
    """A data type that has no such name: spelling and capitals count."""
    known = mindspore_values("core_data_types")
    model = context.model
    for name in _TYPED:
        for field in model.written(f"{name}_dtype"):
            if field.path is None or field.value is None or field.value is UNKNOWN or field.value in known:
                continue
            similar = closest(str(field.value).lower(), known)
            params = {"name": field.value, "similar": similar, "choices": ", ".join(known)}
            yield Violation(field.path, "similar" if similar else "default", params)


def widths(context: Context) -> Iterator[Violation]:
    """Widths that are no multiple of ``model_parallel``."""
    ways = context.integer("parallel_config.model_parallel", 1) or 1
    if ways <= 1 or not startup.splits(context) or startup.is_legacy(context):
        return
    for name in _WIDTHS:
        for field in context.model.written(name):
            width = field.value
            if field.path and isinstance(width, int) and not isinstance(width, bool) and width > 0 and width % ways:
                related = ((("parallel_config", "model_parallel"), "ways"),)
                yield Violation(field.path, params={"width": width, "ways": ways}, related=related)


def unsplit_vocabulary(context: Context) -> Iterator[Violation]:
    """A vocabulary of a legacy model that is no multiple: ``LlamaForCausalLM`` splits neither the loss nor the output layer."""
    ways = context.integer("parallel_config.model_parallel", 1) or 1
    if ways <= 1 or not startup.splits(context) or not legacy_llama.is_llama(context):
        return
    size = context.model.number("vocab_size")
    path = ("model", "model_config", "vocab_size")
    if size and size % ways and context.source.get(path) is not None:
        yield Violation(path, params={"size": size, "ways": ways})
