"""What MindFormers refuses of single values of legacy networks (1.6 to 2.1): experts, stretched positions, data types.

``MoEConfig`` in ``mindformers/modules/transformer/moe.py`` checks its values whenever ``moe_config`` is there, even for one expert.
``extend_method`` and ``scaling_factor``, which stretch the positions of Llama: ``FreqsMgr`` and the functions before it in
``mindformers/modules/layers.py``. ``convert_mstype`` in ``mindformers/models/utils.py`` takes the names of data types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindformers import startup
from ms_tune.dialects.mindformers.refusals_legacy import MODEL, is_glm, is_llama
from ms_tune.source.yaml import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext

_SECTION = "moe_config"
# The type, the least value, and whether it has to be above it. A float is no int here, and the other way round.
_NUMBERS: dict[str, tuple[type[int | float], bool]] = {
    "expert_num": (int, True),
    "num_experts_chosen": (int, True),
    "comp_comm_parallel_degree": (int, True),
    "update_step": (int, True),
    "expert_group_size": (int, True),
    "cur_layer": (int, False),
    "hot_expert_num": (int, False),
    "aux_loss_factor": (float, True),
    "cold_token_percent": (float, True),
}
_OPTIONAL = ("expert_group_size",)
_SWITCHES = (
    "group_wise_a2a",
    "comp_comm_parallel",
    "save_token_distribution",
    "enable_cold_hot_expert",
    "ep_extend_tp",
)
_ROUTER_TYPES = ("float16", "float32", "bfloat16")
_LOSSES = ("expert", "device", "comm")


def find_bad_experts(context: CheckContext) -> Iterator[Violation]:
    """A value of the wrong type, or out of range."""
    section = context.mapping(_SECTION)
    for name, (kind, above) in _NUMBERS.items():
        if name not in section or (section[name] is None and name in _OPTIONAL):
            continue
        value = section[name]
        if isinstance(value, bool) or not isinstance(value, kind):
            yield Violation((_SECTION, name), params={"wanted": kind.__name__})
        elif value < 0 or (above and value == 0):
            yield Violation((_SECTION, name), "small")
    for name in _SWITCHES:
        if name in section and not isinstance(section[name], bool):
            yield Violation((_SECTION, name), params={"wanted": "bool"})
    for name in ("aux_loss_factor", "cold_token_percent"):
        value = section.get(name)
        if isinstance(value, float) and (value > 1 or (value == 1 and name == "aux_loss_factor")):
            yield Violation((_SECTION, name), "large")
    if section.get("router_dense_type", "float32") not in _ROUTER_TYPES:
        yield Violation((_SECTION, "router_dense_type"), "router", {"choices": ", ".join(_ROUTER_TYPES)})
    yield from _find_bad_relations(context, section)


def _find_bad_relations(context: CheckContext, section: Mapping[object, object]) -> Iterator[Violation]:
    experts = context.integer(f"{_SECTION}.expert_num", 1)
    for name, default in (("num_experts_chosen", 1), ("hot_expert_num", 0)):
        number = context.integer(f"{_SECTION}.{name}", default)
        if experts is not None and number is not None and number > experts > 0:
            place = name if name in section else "expert_num"
            yield Violation((_SECTION, place), "experts", {"name": name, "number": number, "experts": experts})
    kinds, factors = section.get("aux_loss_types"), section.get("aux_loss_factors")
    if kinds is None:
        return
    if not isinstance(kinds, list) or not isinstance(factors, list):
        yield Violation((_SECTION, "aux_loss_types"), "losses")
    elif any(kind not in _LOSSES for kind in kinds):
        yield Violation((_SECTION, "aux_loss_types"), "loss", {"choices": ", ".join(_LOSSES)})


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
    if not is_llama(context):
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
    if not (is_llama(context) or is_glm(context)):
        return
    for name, default in context.model.facts.defaults.items():
        typed = name.endswith(("_dtype", "_type")) and default in (None, *_TYPES) and name != _OF_EXPERTS
        value = context.source.get((*MODEL, name), MISSING)
        if not typed or value is MISSING or (value is None and default is None):
            continue
        if str(value).lower() not in _TYPES:
            yield Violation((*MODEL, name), params={"choices": ", ".join(_TYPES)})


def find_unsplit_vocabulary(context: CheckContext) -> Iterator[Violation]:
    """A vocabulary of a legacy model that is no multiple: ``LlamaForCausalLM`` splits neither the loss nor the output layer."""
    ways = context.integer("parallel_config.model_parallel", 1) or 1
    if ways <= 1 or not startup.splits(context) or not is_llama(context):
        return
    size = context.model.number("vocab_size")
    path = ("model", "model_config", "vocab_size")
    if size and size % ways and context.source.get(path) is not None:
        yield Violation(path, params={"size": size, "ways": ways})
