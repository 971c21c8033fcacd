"""Read MindSpeed-Core-MS configs: lists written as text (``list(ast.literal_eval(text))``) and the plan.

:func:`ast.literal_eval` builds literals only and never runs code; its input is limited here, because very long or deep
texts would take long or overflow the stack.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import MINDSPEED_MS, FrameworkStop, LayerPlan, failure_of, failure_problem, make_problem, stop
from ms_tune.dialects.mindspeed_ms.placement import MindSpeedInputs
from ms_tune.dialects.mindspeed_ms.recompute import FRAMEWORK, KINDS, VERSION, normalize_mindspeed_ms
from ms_tune.dialects.sections import JobSplit, find_section, read_size
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.keys import Key, key_at
from ms_tune.source.yaml import SourceFile
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.dialects import JobView

MAX_TEXT = 200_000
MAX_DEPTH = 50
# Consecutive signs are nested without brackets.
_SIGNS = re.compile(r"(?:[-+~]\s*){50}")
# A non-literal node as Python shows it: up to 3.13 with its memory address, from 3.14 on with its content.
_NODE = re.compile(r": (?:<ast\.(?P<old>\w+) object at 0x[0-9a-f]+>|(?P<new>[A-Z]\w*)\(.*\))$", re.DOTALL)


class TextTooBigError(Exception):
    """The error for a text that is longer or deeper than any list of layers."""


def literal_list(value: object) -> list[object]:
    """Return the list that a text represents."""
    if not isinstance(value, str):
        stop("ValueError", f"malformed node or string: {value!r}")
    if len(value) > MAX_TEXT or _is_deep(value):
        raise TextTooBigError
    try:
        return list(ast.literal_eval(value))
    except (ValueError, TypeError, SyntaxError) as error:
        said = _NODE.sub(lambda node: f": <ast.{node['old'] or node['new']} object>", str(error))
        stop(type(error).__name__, said)
    except (RecursionError, MemoryError) as error:
        stop(type(error).__name__, str(error))


def _is_deep(text: str) -> bool:
    depths = accumulate((character in "[({") - (character in "])}") for character in text)
    return _SIGNS.search(text) is not None or max(depths, default=0) > MAX_DEPTH


_MOST = 10_000  # upper bound for all counts, limits memory in case of a typing error
_SECTIONS = ("parallel_config", "model_config", "moe_config")
# Names that the tuning guide of r0.1.0 uses but no code reads.
_GUIDE_KEYS = {
    "full_recompute_list": "recompute",
    "select_recompute_list": "select_recompute",
    "select_comm_recompute_list": "select_comm_recompute",
}


def plan_layers(job: JobView) -> LayerPlan:
    """Return the plan of a job."""
    source = job.source
    sections = {name: _section(source, name) for name in _SECTIONS}
    problems = tuple(_find_key_problems(source.data, sections))
    try:
        inputs = _load(sections)
    except FrameworkStop as error:
        why = msg("plans.why.guide-keys") if any(name in error.text for name in _GUIDE_KEYS) else None
        problem = failure_problem("load", FRAMEWORK, error, why)
        return LayerPlan(MINDSPEED_MS, VERSION, None, None, (), (problem, *problems), (), failure_of(error))
    except TextTooBigError:
        raise ConfigError(msg("plans.text-too-long", limit=MAX_TEXT), path=source.path) from None
    if inputs.layers > _MOST:
        raise source.wrong(
            ("model_config", "num_layers"), msg("plans.too-many", name="num_layers", limit=_MOST), at_key=True
        )
    plan = normalize_mindspeed_ms(inputs)
    return plan._replace(problems=(*plan.problems, *problems))


def _section(source: SourceFile, name: str) -> dict[str, Any]:
    value = source.data.get(name)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise source.wrong((name,), msg("plans.not-a-section", name=name), at_key=True)
    if name == "model_config" and value.get("num_layers") is None:
        raise source.wrong((name,), msg("plans.no-layer-count", key="model_config.num_layers"), at_key=True)
    return value


def recomputes_groups(source: SourceFile) -> bool:
    """Return whether several layers are recomputed as one, so that only the input of the first is kept."""
    model = _section(source, "model_config")
    return model.get("recompute_method") == "uniform" and (model.get("recompute_num_layers") or 1) > 1


def _load(sections: Mapping[str, Mapping[str, Any]]) -> MindSpeedInputs:
    parallel = _load_parallel(sections["parallel_config"])
    experts = _value(sections["moe_config"], "moe_config", "num_experts")
    return MindSpeedInputs(
        **parallel, **_load_model(sections["model_config"]), experts=experts if isinstance(experts, int) else 1
    )


def _load_parallel(parallel: Mapping[str, Any]) -> dict[str, Any]:
    get = partial(_value, parallel, "parallel_config")
    tensor, stages = (
        _positive(name, get(name)) for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size")
    )
    chunks = get("virtual_pipeline_model_parallel_size")
    if chunks is not None:
        _positive("virtual_pipeline_model_parallel_size", chunks)
    sequence = _flag("sequence_parallel", get("sequence_parallel"))
    return {
        "tensor": tensor,
        "stages": stages,
        # training/training.py passes the number of chunks only if it is more than one.
        "chunks": chunks if chunks is not None and chunks > 1 else None,
        "sequence_parallel": sequence,
        "standalone": bool(get("standalone_embedding_stage")),
        "num_layer_list": _layer_list(get("num_layer_list")),
        "recompute_config": _recompute_config(parallel),
    }


def _layer_list(value: object) -> Sequence[object] | None:
    if value is None:
        return None
    if isinstance(value, str):
        value = literal_list(value)
    if not isinstance(value, list):
        kind = type(value).__name__
        stop("TypeError", f"The type of 'num_layer_list' should be 'list', but got type '{kind}'.")
    return value


def _recompute_config(parallel: Mapping[str, Any]) -> dict[str, object] | None:
    """Read route (a), the section, and route (b), strings next to it, which win and are checked less."""
    section = parallel.get("recompute_config")
    if section is None:
        section = {}
    if not isinstance(section, dict):
        stop("TypeError", "recompute_config should be a dict.")
    for key, value in section.items():
        if key not in KINDS:
            stop("ValueError", f"Key '{key}' is not supported in recompute_config.")
        if value and not isinstance(value, list):
            stop("TypeError", f"Key '{key}' should be list in recompute_config.")
    merged = dict(section)
    for kind in KINDS:
        text = parallel.get(kind)
        if text is not None:
            merged[kind] = literal_list(text)
    return merged or None


def _load_model(model: Mapping[str, Any]) -> dict[str, Any]:
    layers = _positive("num_layers", model["num_layers"])
    get = partial(_value, model, "model_config")
    flash = _flag("use_flash_attention", get("use_flash_attention"))
    activation = get("hidden_act")
    if not isinstance(activation, str):
        kind = type(activation).__name__
        stop("TypeError", f"The type of 'hidden_act' should be 'str', but got type '{kind}'.")
    method = _one_of("recompute_method", get("recompute_method"))
    number = get("recompute_num_layers")
    if number is not None:
        _in_range("recompute_num_layers", number, layers)
    granularity = _one_of("recompute_granularity", get("recompute_granularity"))
    others = {key: get(key) for key in ("encoder_num_layers", "decoder_num_layers")}
    for key, value in others.items():
        if value is not None:
            _positive(key, value)
    comm, select = (_flag(name, get(name)) for name in ("select_comm_recompute", "select_recompute"))
    return {
        "layers": layers,
        "other_layers": any(others.values()),
        "flash_attention": flash,
        "activation": activation,
        "method": method,
        "full_layers": number,
        "granularity": "selective" if get("recompute_activations") else granularity,
        "comm": comm,
        "select": select,
    }


def _value(section: Mapping[str, Any], *path: str) -> Any:  # noqa: ANN401 - settings are of all types
    return section.get(path[-1], _key(*path).default)


def _key(*path: str) -> Key:
    return key_at(Dialect.MINDSPEED_MS, *path)


def _positive(name: str, value: object) -> int:
    """Check like ``check_positive_int``."""
    if not isinstance(value, int):
        stop("TypeError", f"The '{name}' must be int, but got '{type(value).__name__}'")
    if isinstance(value, bool) or value <= 0:
        stop(
            "TypeError" if isinstance(value, bool) else "ValueError",
            f"The '{name}' must be int and must > 0, but got '{value}' with type '{type(value).__name__}'.",
        )
    return value


def _flag(name: str, value: object) -> bool:
    """Check like ``check_bool``."""
    if not isinstance(value, bool):
        stop("TypeError", f"The '{name}' must be a bool, but got {type(value).__name__}.")
    return value


def _in_range(name: str, value: object, most: int) -> None:
    """Check like ``check_int_range`` with minimum 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        stop("TypeError", f"The '{name}' must be 'int',  but got '{type(value).__name__}'.")
    if not 1 <= value <= most:
        stop("ValueError", f"The '{name}' must be in range of [1, {most}], but got {value} with type 'int'.")


def _one_of(name: str, value: object) -> str | None:
    """Check like ``check_string``, but also accept None."""
    choices = _key("model_config", name).choices
    if value is None:
        return None
    if not isinstance(value, str) or value not in choices:
        stop("ValueError", f"The '{name}' must be str and must be in '{list(choices)}', but got '{value}'.")
    return value


def _find_key_problems(data: Mapping[Any, Any], sections: Mapping[str, Mapping[str, Any]]) -> Iterator[Diagnostic]:
    parallel, model = sections["parallel_config"], sections["model_config"]
    if "recompute_config" in data:
        yield make_problem("top-level-ignored", key="recompute_config", place="parallel_config.recompute_config")
    if "recompute_config" in model:
        yield make_problem(
            "top-level-ignored", key="model_config.recompute_config", place="parallel_config.recompute_config"
        )
    for place, section in (("", data), ("parallel_config.", parallel), ("model_config.", model)):
        for key, meant in _GUIDE_KEYS.items():
            if key in section:
                yield make_problem("guide-key", key=f"{place}{key}", meant=f"parallel_config.recompute_config.{meant}")
    listed = parallel.get("recompute_config")
    for kind in KINDS:
        if isinstance(listed, dict) and listed.get(kind) is not None and parallel.get(kind) is not None:
            yield make_problem("string-wins", key=kind)
    if "num_layers_per_virtual_pipeline_stage" in parallel:
        yield make_problem("per-virtual-stage-ignored")
    if parallel.get("virtual_pipeline_model_parallel_size") == 1:
        yield make_problem("one-chunk", Severity.INFO)


def split_job(source: SourceFile, processes: int | None) -> JobSplit:
    """Return the samples per step: each data-parallel rank processes ``batch_size x micro_batch_num``.

    The data-parallel size follows from the devices (``initialize_model_parallel``).
    """
    parallel, dataset = find_section(source.data, "parallel_config"), find_section(source.data, "dataset_config")
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    ways = prod(read_size(parallel, name) or 1 for name in names)
    micro, size = (read_size(dataset, name) or 1 for name in ("micro_batch_num", "batch_size"))
    whole = processes is not None and processes % ways == 0
    batch = processes // ways * size * micro if processes is not None and whole else None
    return JobSplit(processes, batch, micro)
