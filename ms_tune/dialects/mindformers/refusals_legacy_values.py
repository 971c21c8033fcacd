"""What MindFormers refuses of single values of legacy networks (1.6 to 2.1): experts, stretched positions, data types.

``MoEConfig`` in ``mindformers/modules/transformer/moe.py`` checks its values whenever ``moe_config`` is there, even for one expert.
``extend_method`` and ``scaling_factor``, which stretch the positions of Llama: ``FreqsMgr`` and the functions before it in
``mindformers/modules/layers.py``. ``convert_mstype`` in ``mindformers/models/utils.py`` takes the names of data types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.source.yaml import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext


_MODEL = ("model", "model_config")
_METHOD, _FACTOR = (*_MODEL, "extend_method"), (*_MODEL, "scaling_factor")
_ORIGINAL = "original_max_position_embeddings"
# The keys that `scaling_factor` has to have, and the two of them that have to be in order.
_KEYS = {
    "YARN": ("factor", _ORIGINAL, "beta_slow", "beta_fast", "mscale", "mscale_all_dim"),
    "LLAMA3": ("factor", _ORIGINAL, "low_freq_factor", "high_freq_factor"),
}
_ORDER = {"YARN": ("beta_slow", "beta_fast"), "LLAMA3": ("low_freq_factor", "high_freq_factor")}
_PLAIN = ("PI", "NTK")  # where `scaling_factor` is a number
_BROKEN = "linear"  # refuses every factor that is a number, and fails over any other


def find_bad_scaling(context: CheckContext) -> Iterator[Violation]:
    """A ``scaling_factor`` that does not go with its method."""
    if not context.job.startup.is_llama:
        return
    method, factor = context.source.get(_METHOD, "None"), context.source.get(_FACTOR, 1.0)
    place = _FACTOR if context.source.get(_FACTOR, MISSING) is not MISSING else _METHOD
    if method == _BROKEN:
        yield Violation(_METHOD, "broken")
    elif method in _PLAIN:
        if not isinstance(factor, (int, float)) or (method == "PI" and not factor):
            yield Violation(place, "number", {"method": method})
    elif isinstance(method, str) and method in _KEYS:
        if isinstance(factor, dict):
            yield from _find_bad_mapping(context, method, factor)
        else:
            yield Violation(place, "mapping", {"method": method, "keys": ", ".join(_KEYS[method])})


def _find_bad_mapping(context: CheckContext, method: str, factor: Mapping[object, object]) -> Iterator[Violation]:
    missing = [key for key in _KEYS[method] if key not in factor]
    unknown = [str(key) for key in factor if key not in _KEYS[method]]
    if missing:
        yield Violation(_FACTOR, "missing", {"method": method, "missing": ", ".join(missing)})
        return
    for name in unknown:
        yield Violation((*_FACTOR, name), "unknown", {"method": method}, at_key=True)
    if not unknown:
        yield from _find_bad_entries(context, method, factor)


def _find_bad_entries(context: CheckContext, method: str, factor: Mapping[object, object]) -> Iterator[Violation]:
    for name in _KEYS[method]:
        wanted: tuple[type, ...] = (int,) if name == _ORIGINAL else (int, float)
        if not isinstance(factor[name], wanted):
            yield Violation((*_FACTOR, name), "entry", {"wanted": "/".join(kind.__name__ for kind in wanted)})
            return
    scale, original = factor["factor"], factor[_ORIGINAL]
    low, high = (factor[name] for name in _ORDER[method])
    # LLAMA3 looks at its factor twice, and takes no whole number the second time.
    whole = method == "LLAMA3" and not isinstance(scale, float)
    if whole or (isinstance(scale, (int, float)) and scale < 1):
        yield Violation((*_FACTOR, "factor"), "whole" if whole else "small")
    elif isinstance(low, (int, float)) and isinstance(high, (int, float)) and high < low:
        yield Violation((*_FACTOR, _ORDER[method][1]), "order", {"low": _ORDER[method][0]})
    elif isinstance(original, int) and original > _longest(context) - (method == "LLAMA3"):
        path: KeyPath = (*_FACTOR, _ORIGINAL)
        yield Violation(path, "length", {"longest": _longest(context)})


def _longest(context: CheckContext) -> int:
    """Positions of the model: at least those of a sequence (2048 by default)."""
    length = context.integer("model.model_config.seq_length", 2048) or 2048
    return max(context.integer("model.model_config.max_position_embedding", length) or length, length)


_TYPES = ("float16", "float32", "bfloat16", "int8")
_OF_EXPERTS = "router_dense_type"  # belongs into another section


def find_unknown_types(context: CheckContext) -> Iterator[Violation]:
    """A data type that is not known; capitals make no difference. Where the class has none, a null stands for another one's."""
    startup = context.job.startup
    if not (startup.is_llama or startup.is_glm):
        return
    for name, default in context.model.facts.defaults.items():
        typed = name.endswith(("_dtype", "_type")) and default in (None, *_TYPES) and name != _OF_EXPERTS
        value = context.source.get((*_MODEL, name), MISSING)
        if not typed or value is MISSING or (value is None and default is None):
            continue
        if str(value).lower() not in _TYPES:
            yield Violation((*_MODEL, name), params={"choices": ", ".join(_TYPES)})
