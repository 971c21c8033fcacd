"""Settings that MindSpeed-Core-MS r0.1.0 accepts silently although they are probably mistakes.

The sources are those of :mod:`ms_tune.dialects.mindspeed_ms.recompute`, and ``mindspeed_ms/core/tensor_parallel/layers.py`` for
communication recompute and ``mindspeed_ms/legacy/model/activation.py`` for activations.

``mindspeed_ms/training/yaml_arguments.py`` reads the command-line form of YAML (``--yaml-cfg``) with Megatron's names;
``init_configs_from_yaml`` in ``mindspeed_ms/core/config.py``, for the YAML of r0.1.0, keeps such sections but ignores
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, KeyPath
from ms_tune.dialects import make_problem
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.values import leaves
from ms_tune.facts.keys import by_section

if TYPE_CHECKING:
    from ms_tune.dialects.mindspeed_ms.placement import CellPlan, MindSpeedInputs

# Activations that are cells; only cells support recompute.
_ACTIVATION_CELLS = frozenset({"gelu", "fast_gelu"})


def find_ignored(inputs: MindSpeedInputs, plans: Mapping[tuple[int, int], CellPlan] | None) -> Iterator[Diagnostic]:
    """Yield the settings that are silently ignored or probably wrong; ``plans`` is None if the framework stops."""
    if inputs.stages == 1 and inputs.num_layer_list:
        yield make_problem("num-layer-list-ignored")
    yield from _find_model_problems(inputs)
    for kind, value in (inputs.recompute_config or {}).items():
        if any(isinstance(item, bool) for item in leaves(value or [])):
            yield make_problem("bool-counts", key=kind, value=value)
    if plans is not None:
        yield from _find_useless_settings(inputs, plans)


def _find_model_problems(inputs: MindSpeedInputs) -> Iterator[Diagnostic]:
    """Report recompute settings of ``model_config`` that are ignored, incomplete, or added to other lists."""
    full = inputs.granularity == "full"
    if inputs.recompute_config is not None:
        if inputs.granularity == "selective":
            yield make_problem("selective-stays")
            if inputs.rows > 1:
                yield make_problem("selective-forgotten")
        if full or inputs.method or inputs.full_layers:
            yield make_problem("model-recompute-ignored")
        flags = (("select_recompute", inputs.select), ("select_comm_recompute", inputs.comm))
        for key, on in flags:
            if on:
                yield make_problem("flag-beside-lists", key=key)
    elif full and not (inputs.method and inputs.full_layers):
        yield make_problem("full-incomplete")
    elif not full and (inputs.method or inputs.full_layers):
        yield make_problem("method-without-full")


def _find_useless_settings(inputs: MindSpeedInputs, plans: Mapping[tuple[int, int], CellPlan]) -> Iterator[Diagnostic]:
    function = inputs.flash_attention and inputs.activation not in _ACTIVATION_CELLS
    if function and any(cell.select for cell in plans.values()):
        yield make_problem("select-no-effect", activation=inputs.activation)
    if any(cell.comm for cell in plans.values()):
        if inputs.tensor == 1:
            yield make_problem("comm-one-tensor-rank")
        elif not inputs.sequence_parallel:
            yield make_problem("comm-no-sequence-parallel")


_FORM = ("model_parallel", "language_model")
_SHOWN = 24  # maximum keys listed in one finding


def find_form_of_arguments(context: CheckContext) -> Iterator[Violation]:
    """Report sections of the command-line form, with each key's location in the sections of r0.1.0."""
    data = context.source.data
    found = [name for name in _FORM if isinstance(data.get(name), dict)]
    if len(found) < len(_FORM) or any(name in data for name in _table(context, "homes")):
        return
    keys = [(*section, key) for section in ((), *((name,) for name in found)) for key in _keys(context, section)]
    moved = [(path, text) for path in keys if (text := _text(context, path))]
    yield Violation((found[0],), at_key=True, related=tuple(moved[:_SHOWN]))


def _keys(context: CheckContext, section: KeyPath) -> list[str]:
    values = context.source.get(section) if section else context.source.data
    return [key for key in values if isinstance(key, str)] if isinstance(values, dict) else []


def _text(context: CheckContext, path: KeyPath) -> str | None:
    name = str(path[-1])
    sections = by_section(context.dialect)
    homes = (text for home, text in _table(context, "homes").items() if name in sections.get((home,), ()))
    return _table(context, "renamed").get(name) or next(homes, None)


def _table(context: CheckContext, option: str) -> dict[str, str]:
    found = context.options[option]
    return found if isinstance(found, dict) else {}


def trains_in_half(context: CheckContext) -> bool:
    """Return whether the training computes in float16; only then is the loss scaled."""
    if context.get("training_config.bf16") is True:
        return False
    return context.get("training_config.fp16") is True or context.get("model_config.compute_dtype") == "float16"
