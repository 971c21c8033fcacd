"""The rules of MindSpeed-Core-MS r0.1.0 once more, told rank by rank and with NumPy, as the framework goes about it.

Nothing of this is taken from ms-tune or from the framework's source: it is written from the description of the rules
(layer split, three routes of recompute, checks and their order), and slow and plain on purpose.
"""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

MISSING = None
try:
    np: Any = import_module("numpy")
    if int(np.__version__.split(".")[0]) > 1:
        MISSING = "MindSpeed-Core-MS r0.1.0 needs NumPy below 2"
except ImportError:
    MISSING = "numpy is not installed"


@dataclass
class Outcome:
    """What the framework did: the layers of every cell, or what it raised there."""

    exception: str | None = None
    text: str = ""
    counts: dict[tuple[int, int], int] = field(default_factory=dict)
    layers: dict[int, tuple[int, int, str, bool, bool]] = field(default_factory=dict)


def run(config: dict[str, Any]) -> Outcome:
    """Load a config, then build the chunks of all ranks: chunk 0 on every rank, then chunk 1, and so on."""
    outcome = Outcome()
    first: Exception | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parallel = load_parallel(config.get("parallel_config") or {})
            model = load_model(config["model_config"])
            experts = (config.get("moe_config") or {}).get("num_experts", 1)
            if parallel["vpp"] is not None and parallel["pp"] == 1:
                message = "pipeline-model-parallel size should be greater than 1 with interleaved schedule"
                raise RuntimeError(message)  # noqa: TRY301 - it belongs to what is watched
        except Exception as error:  # noqa: BLE001 - whatever it is
            return failed(outcome, error)
        for vpp_rank in range(parallel["vpp"] or 1):
            for pp_rank in range(parallel["pp"]):
                try:
                    build(parallel, model, experts, vpp_rank, pp_rank, outcome)
                except Exception as error:  # noqa: BLE001 - whatever it is
                    first = first or error
    return failed(outcome, first) if first else outcome


def failed(outcome: Outcome, error: Exception) -> Outcome:
    outcome.exception = "UFuncTypeError" if "UFunc" in type(error).__name__ else type(error).__name__
    outcome.text = str(error)
    outcome.layers = {}
    return outcome


def positive(name: str, value: Any) -> None:  # noqa: ANN401
    if isinstance(value, bool):
        message = f"The '{name}' must be int and must > 0, but got '{value}' with type 'bool'."
        raise TypeError(message)
    if not isinstance(value, int):
        message = f"The '{name}' must be int, but got '{type(value).__name__}'"
        raise TypeError(message)
    if value <= 0:
        message = f"The '{name}' must be int and must > 0, but got '{value}' with type 'int'."
        raise ValueError(message)


def flag(name: str, value: Any) -> None:  # noqa: ANN401
    if not isinstance(value, bool):
        message = f"The '{name}' must be a bool, but got {type(value).__name__}."
        raise TypeError(message)


def choice(name: str, value: Any, known: list[str]) -> None:  # noqa: ANN401
    if value is not None and value not in known:
        message = f"The '{name}' must be str and must be in '{known}', but got '{value}'."
        raise ValueError(message)


def load_parallel(section: dict[str, Any]) -> dict[str, Any]:
    pp = section.get("pipeline_model_parallel_size", 1)
    vpp = section.get("virtual_pipeline_model_parallel_size")
    positive("tensor_model_parallel_size", section.get("tensor_model_parallel_size", 1))
    positive("pipeline_model_parallel_size", pp)
    if vpp is not None:
        positive("virtual_pipeline_model_parallel_size", vpp)
    flag("sequence_parallel", section.get("sequence_parallel", False))
    layer_list = section.get("num_layer_list")
    if isinstance(layer_list, str):
        layer_list = list(ast.literal_eval(layer_list))
    if layer_list is not None and not isinstance(layer_list, list):
        message = f"The type of 'num_layer_list' should be 'list', but got type '{type(layer_list).__name__}'."
        raise TypeError(message)
    recompute = section.get("recompute_config")
    if recompute is not None and not isinstance(recompute, dict):
        message = "recompute_config should be a dict."
        raise TypeError(message)
    for key, value in (recompute or {}).items():
        if key not in ("recompute", "select_recompute", "select_comm_recompute"):
            message = f"Key '{key}' is not supported in recompute_config."
            raise ValueError(message)
        if value and not isinstance(value, list):
            message = f"Key '{key}' should be list in recompute_config."
            raise TypeError(message)
    recompute = dict(recompute or {})
    for key in ("recompute", "select_recompute", "select_comm_recompute"):
        if section.get(key) is not None:
            recompute[key] = list(ast.literal_eval(section[key]))
    return {
        "pp": pp,
        "vpp": vpp if vpp is not None and vpp > 1 else None,
        "standalone": section.get("standalone_embedding_stage", False),
        "layer_list": layer_list,
        "recompute": recompute or None,
    }


def load_model(section: dict[str, Any]) -> dict[str, Any]:
    positive("num_layers", section["num_layers"])
    flag("use_flash_attention", section.get("use_flash_attention", False))
    choice("recompute_method", section.get("recompute_method"), ["uniform", "block"])
    number, most = section.get("recompute_num_layers"), section["num_layers"]
    if number is not None:
        if not isinstance(number, int) or isinstance(number, bool):
            message = f"The 'recompute_num_layers' must be 'int',  but got '{type(number).__name__}'."
            raise TypeError(message)
        if not 1 <= number <= most:
            message = f"The 'recompute_num_layers' must be in range of [1, {most}], but got {number} with type 'int'."
            raise ValueError(message)
    choice("recompute_granularity", section.get("recompute_granularity"), ["selective", "full"])
    for key in ("encoder_num_layers", "decoder_num_layers"):
        if section.get(key) is not None:
            positive(key, section[key])
    flag("select_comm_recompute", section.get("select_comm_recompute", False))
    flag("select_recompute", section.get("select_recompute", False))
    model = dict(section)
    if section.get("recompute_activations"):
        model["recompute_granularity"] = "selective"
    return model


def split(layers: int, parts: int, rank: int) -> tuple[int, int]:
    shares = [layers // parts] * parts
    for i in range(layers - sum(shares)):
        shares[-i - 2] += 1
    return shares[rank], sum(shares[:rank])


def cell_layers(  # noqa: C901 - told in one go
    parallel: dict[str, Any], model: dict[str, Any], v: int, p: int
) -> tuple[Any, Any]:
    """How many layers, and the first."""
    layers, pp, vpp = model["num_layers"], parallel["pp"], parallel["vpp"]
    if layers < pp * (vpp or 1):
        message = (
            f"The number of model layers is {layers}, but using pipeline parallel requires at least "
            f"'pp({pp}) * vpp({vpp or 1}) = {pp * (vpp or 1)}' layers for splitting"
        )
        raise RuntimeError(message)
    if model.get("encoder_num_layers") or model.get("decoder_num_layers"):
        message = "`encoder_num_layers` and `decoder_num_layers` are not supported for now."
        raise NotImplementedError(message)
    if pp == 1:
        return layers, 0
    if parallel["standalone"]:
        if p == 0:
            return 0, 0
        pp, p = pp - 1, p - 1
    given = parallel["layer_list"]
    if not given:
        if vpp is None:
            return split(layers, pp, p)
        share, first = split(layers, vpp, v)
        share, further = split(share, pp, p)
        return share, first + further
    array = np.array(given)
    if array.sum() != layers:
        message = f"The number of model layers is {layers}, but the sum of num_layer_list  {given} is {array.sum()}."
        raise ValueError(message)
    if not np.all(array > 0):
        message = f"All elements of num_layer_list should be larger than 0, but got {array}."
        raise ValueError(message)
    layout = (pp,) if vpp is None else (vpp, pp)
    if array.shape != layout:
        message = f"The shape of num_layer_list {array.shape} must equal to pp_layout {layout}"
        raise ValueError(message)
    if vpp is None:
        return array[p], array[:p].sum()
    return array[v][p], array[:v].sum() + array[v][:p].sum()


def listed(parallel: dict[str, Any], count: Any, v: int, p: int) -> tuple[Any, Any, Any]:  # noqa: ANN401
    """The numbers of this rank in the three lists."""
    pp, vpp = parallel["pp"], parallel["vpp"]
    if parallel["standalone"] and pp > 1:
        pp, p = pp - 1, p - 1
    layout: tuple[int, ...] = (pp,) if vpp is None else (vpp, pp)
    if parallel["pp"] == 1:
        layout, vpp = (1,), None
    numbers = []
    for key in ("recompute", "select_recompute", "select_comm_recompute"):
        value = parallel["recompute"].get(key)
        if not value:
            numbers.append(0)
            continue
        array = np.array(value)
        if not np.all(array >= 0):
            message = "recompute_num_array has element < 0"
            raise ValueError(message)
        if array.shape != layout:
            message = f"The shape of recompute_num_list {array.shape} must equal to pp_layout {layout}"
            raise ValueError(message)
        numbers.append(array[v][p] if vpp is not None else array[p])
    full, select, comm = numbers
    for name, number in (("select_comm", comm), ("select", select)):
        if number + full > count:
            message = (
                f"Recompute layers must less or equal num layers, but got {name}_recompute_layers {number} + "
                f"full_recompute_layers {full} > num_layers {count}."
            )
            raise ValueError(message)
    return full, select, comm


def build(  # noqa: PLR0913, PLR0917 - a config and a rank
    parallel: dict[str, Any], model: dict[str, Any], experts: int, v: int, p: int, outcome: Outcome
) -> None:
    """One chunk of one rank."""
    count, first = cell_layers(parallel, model, v, p)
    outcome.counts[v, p] = int(count)
    granularity = model.get("recompute_granularity")
    method, number = model.get("recompute_method"), model.get("recompute_num_layers")
    every, comm_every = model.get("select_recompute", False), model.get("select_comm_recompute", False)
    flags: list[list[bool]] = []
    full: Any = 0
    if parallel["recompute"] is not None:
        full, select, comm = listed(parallel, count, v, p)
        if full != 0 and not 1 <= full <= model["num_layers"]:
            message = (
                f"The 'recompute_num_layers' must be in range of [1, {model['num_layers']}], but got {full} with type "
                f"'{type(full).__name__}'."
            )
            raise ValueError(message)
        flags += [[every, comm_every] for _ in range(full)]
        both = min(select, comm)
        flags += [[True, True] for _ in range(both)]
        more = abs(comm - select)
        flags += [[every or comm <= select, comm_every or comm > select] for _ in range(more)]
        flags += [[every, comm_every] for _ in range(count - both - more - full)]
        whole = list(range(full))
    else:
        flags = [[every, comm_every] for _ in range(count)]
        whole = []
        if granularity == "full" and method and number:
            whole = list(range(count)) if method == "uniform" else list(range(min(count, number)))
    for i in range(count):
        select_on, comm_on = flags[i]
        select_on = select_on or (granularity == "selective" and i not in whole)
        if select_on and model.get("use_flash_attention") and experts > 1:
            message = "The 'MoELayer' object has no attribute 'act_func'."
            raise AttributeError(message)
        kind = "full" if i in whole else "select" if select_on else "comm" if comm_on else "none"
        outcome.layers[int(first) + i] = (v, p, kind, select_on and i not in whole, comm_on and i not in whole)
