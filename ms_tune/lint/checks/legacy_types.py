"""Checks of the data types that legacy networks name (``convert_mstype`` in ``mindformers/models/utils.py``, 1.6 to 2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.config.source import MISSING
from ms_tune.lint.checks import legacy_glm, legacy_llama
from ms_tune.lint.checks.legacy_network import MODEL
from ms_tune.lint.context import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.lint.context import Context

_TYPES = ("float16", "float32", "bfloat16", "int8")
# The settings of each network that are types, and whether a null stands for another one's type
# (`LlamaConfig` in models/llama/llama_config.py, `ChatGLM2Config` in models/glm2/glm2_config.py).
_LLAMA = {
    **dict.fromkeys(("compute_dtype", "layernorm_compute_type", "softmax_compute_type", "rotary_dtype"), False),
    "param_init_type": False,
    "embedding_init_type": True,
    "residual_dtype": True,
}
_GLM = {
    **dict.fromkeys(("compute_dtype", "layernorm_compute_type", "param_init_type", "residual_dtype"), False),
    "rotary_dtype": True,
}


def unknown(context: Context) -> Iterator[Violation]:
    """A data type that is not known; capitals make no difference."""
    typed = _LLAMA if legacy_llama.is_llama(context) else _GLM if legacy_glm.is_glm(context) else {}
    for name, nullable in typed.items():
        value = context.source.get((*MODEL, name), MISSING)
        if value is MISSING or (value is None and nullable):
            continue
        if str(value).lower() not in _TYPES:
            yield Violation((*MODEL, name), params={"choices": ", ".join(_TYPES)})
