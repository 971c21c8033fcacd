"""Run MindSpeed-Core-MS r0.1.0's own code without MindSpore.

The wheel of MindFormers 1.6.0 contains the library that became MindSpeed-Core-MS r0.1.0, in
``mindformers/experimental/parallel_core/pynative``; ``../shared/reference/mindspeed_core_ms.md`` describes the same
rules. Its config classes and the two classes that build a transformer are extracted from the source with :mod:`ast` and
run rank by rank. Names from outside are small stand-ins; :class:`_Validator` reimplements the argument checks of
MindSpore, which need MindSpore to run.

One text differs from that of r0.1.0: see :data:`_MISSING_BLANK`.
"""

from __future__ import annotations

import ast
import copy
import warnings
from collections import OrderedDict
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from tests.oracle import wheels
from tests.oracle.framework_child_mindspore import check_bool, check_string

_FOLDER = "experimental/parallel_core/pynative"
_SECTIONS = {
    "parallel_config": "ModelParallelConfig",
    "moe_config": "MoEConfig",
    "model_config": "TransformerConfig",
}
_SIZES = {"vocab_size": 8, "seq_length": 8, "num_attention_heads": 2, "hidden_size": 8, "ffn_hidden_size": 8}
# The wheel's text for a wrong num_layer_list lacks a blank that the one of r0.1.0 has.
_MISSING_BLANK = ("must equal topp_layout", "must equal to pp_layout")

MISSING = None
try:
    np: Any = import_module("numpy")
    if int(np.__version__.split(".")[0]) > 1:
        MISSING = "MindSpeed-Core-MS r0.1.0 needs NumPy below 2"
except ImportError:
    MISSING = "numpy is not installed"


@dataclass
class Outcome:
    """The result of the framework: the layers of every cell, or its exception.

    Args:
        exception: The class of the first exception, if any.
        text: The exception's text.
        counts: The layers of each (chunk, stage).
        layers: Chunk, stage, strongest recomputation, select and comm of each layer.
        log: The logged lines.
    """

    exception: str | None = None
    text: str = ""
    counts: dict[tuple[int, int], int] = field(default_factory=dict)
    layers: dict[int, tuple[int, int, str, bool, bool]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)


class _Validator:
    """A replacement of ``mindspore/_checkparam.py`` with the checks that the config classes use."""

    @staticmethod
    def check_positive_int(value: Any, name: str) -> None:  # noqa: ANN401 - whatever a config holds
        if not isinstance(value, int):
            message = f"The '{name}' must be int, but got '{type(value).__name__}'"
            raise TypeError(message)
        if isinstance(value, bool) or value <= 0:
            message = f"The '{name}' must be int and must > 0, but got '{value}' with type '{type(value).__name__}'."
            raise TypeError(message) if isinstance(value, bool) else ValueError(message)

    check_bool, check_string = staticmethod(check_bool), staticmethod(check_string)

    @staticmethod
    def check_int_range(value: Any, least: int, most: int, _relation: object, name: str) -> None:  # noqa: ANN401
        # MindSpore lets every scalar of NumPy through, True and False among them.
        if isinstance(value, bool) or not isinstance(value, (int, np.generic)):
            message = f"The '{name}' must be 'int',  but got '{type(value).__name__}'."
            raise TypeError(message)
        if not least <= value <= most:
            kind = type(value).__name__
            message = f"The '{name}' must be in range of [{least}, {most}], but got {value} with type '{kind}'."
            raise ValueError(message)

    @staticmethod
    def check_value_type(name: str, value: Any, kind: Any) -> None:  # noqa: ANN401
        kinds = tuple(kind) if isinstance(kind, (list, tuple)) else (kind,)
        if not isinstance(value, kinds):
            message = f"The type of '{name}' should be '{kinds[0].__name__}', but got type '{type(value).__name__}'."
            raise TypeError(message)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - checks of settings that do not matter here
        return lambda *_values, **_named: None


class _DictConfig(dict[str, Any]):
    """A replacement of ``mindformers/tools/register/config.py``: a mapping whose keys are attributes, missing ones None."""

    def __init__(self, **values: object) -> None:
        super().__init__(values)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get(name)


class _Logger:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str) -> None:
        self.lines.append(text)

    def warning(self, _text: str) -> None:
        """Ignore warnings, which concern other subjects."""


class _Cell:
    """Any cell; it records that it is recomputed."""

    def __init__(self, *_values: object, **_named: object) -> None:
        self.recomputed = False

    def recompute(self) -> None:
        self.recomputed = True


class _Attention(_Cell):
    def __init__(self, config: Any, *_values: object, **_named: object) -> None:  # noqa: ANN401
        super().__init__()
        self.core_attention = _Cell()
        self.comm = config.select_comm_recompute


class _Dense(_Cell):
    def __init__(self, _config: object) -> None:
        super().__init__()
        self.act_func = _Cell()


class _Experts(_Cell):
    """A mixture of experts without an activation; the error is that of MindSpore's cells."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        message = f"The 'MoELayer' object has no attribute '{name}'."
        raise AttributeError(message)


class _Several(list[Any]):
    """A replacement of ``SequentialCell`` and ``CellList``."""

    def __init__(self, cells: Any = ()) -> None:  # noqa: ANN401
        super().__init__(cells.values() if isinstance(cells, dict) else cells)


class _Group(_Cell):
    """Layers that are recomputed together."""

    def __init__(self, cells: list[Any]) -> None:
        super().__init__()
        self._cells = cells

    def recompute(self) -> None:
        for cell in self._cells:
            cell.recompute()


class _Anything:
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()

    def __call__(self, *_values: object, **_named: object) -> Any:  # noqa: ANN401
        return _Anything()


class Oracle:
    """The library's code, ready to run.

    Args:
        shared_config: Whether the chunks of a rank are built from one config object, as in a training script that keeps it;
            otherwise each chunk has its own config.
    """

    def __init__(self, *, shared_config: bool = False) -> None:
        self._shared = shared_config
        self._logger = _Logger()
        self._rank = SimpleNamespace(pp=1, vpp=None, stage=0, chunk=0)
        self._configs = self._load_configs(wheels.source("1.6", f"{_FOLDER}/config.py"))
        self._model = self._load_model(wheels.source("1.6", f"{_FOLDER}/transformer/transformer.py"))

    def _load_configs(self, source: str) -> dict[str, Any]:
        names: dict[str, Any] = {
            "__name__": "mindspeed_oracle",
            "mstype": SimpleNamespace(float16="float16", float32="float32", bfloat16="bfloat16"),
            "Validator": _Validator(),
            "Rel": _Anything(),
            "_INITIALIZER_ALIAS": {"normal": _Anything, "zeros": _Anything},
            "DictConfig": _DictConfig,
            "logger": _Logger(),
            "check_yaml_depth_before_loading": None,
            "DictWithValueError": dict,
            "divide": lambda one, other: one // other,
        }
        tree = ast.parse(source)
        tree.body = [node for node in tree.body if not _is_foreign(node) and not isinstance(node, ast.Try)]
        exec(compile(tree, "config.py", "exec", dont_inherit=True), names)  # noqa: S102 - the point of this module
        return names

    def _load_model(self, source: str) -> dict[str, Any]:
        rank = self._rank
        names: dict[str, Any] = {
            "__name__": "mindspeed_oracle",
            "np": np,
            "copy": copy,
            "OrderedDict": OrderedDict,
            "logger": self._logger,
            "nn": SimpleNamespace(Cell=_Cell, SequentialCell=_Several, CellList=_Several),
            "mint": _Anything(),
            "Module": _Cell,
            "Parameter": _Cell,
            "ParallelAttention": _Attention,
            "ParallelMLP": _Dense,
            "MoELayer": _Experts,
            "get_norm": _Cell,
            "CheckpointedRecomputeOrientedCell": _Group,
            "get_pipeline_model_parallel_rank": lambda: rank.stage,
            "get_pipeline_model_parallel_world_size": lambda: rank.pp,
            "get_virtual_pipeline_model_parallel_rank": lambda: rank.chunk,
            "get_virtual_pipeline_model_parallel_world_size": lambda: rank.vpp,
            "get_tensor_model_parallel_world_size": lambda: 1,
            **dict.fromkeys(("LayerType", "AttnType", "AttnMaskType", "ModelType"), _Anything()),
        }
        wanted = {"_get_custom_num_layers", "_get_num_layers", "ParallelTransformerLayer", "ParallelTransformer"}
        tree = ast.parse(source)
        tree.body = [node for node in tree.body if getattr(node, "name", None) in wanted]
        exec(compile(tree, "transformer.py", "exec", dont_inherit=True), names)  # noqa: S102 - as above
        return names

    def run(self, config: dict[str, Any]) -> Outcome:
        """Load a config, then build the chunks of all ranks: chunk 0 on every rank, then chunk 1, and so on."""
        outcome = Outcome()
        self._logger.lines = outcome.log
        first: Exception | None = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model = self._load(config)
                self._set_sizes(model.parallel_config)
            except Exception as error:  # noqa: BLE001 - whatever it is
                return _failed(outcome, error)
            models = [copy.deepcopy(model) for _ in range(self._rank.pp)]
            for chunk in range(self._rank.vpp or 1):
                for stage in range(self._rank.pp):
                    built = models[stage] if self._shared else copy.deepcopy(model)
                    try:
                        self._build(built, chunk, stage, outcome)
                    except Exception as error:  # noqa: BLE001 - whatever it is
                        first = first or error
        return _failed(outcome, first) if first else outcome

    def _load(self, config: dict[str, Any]) -> Any:  # noqa: ANN401
        """Return the sections, in the order in which the framework initialises them."""
        found: dict[str, Any] = {}
        for section, kind in _SECTIONS.items():
            values = dict(config.get(section) or {})
            if section == "model_config":
                values = {**_SIZES, **values, **found}
            found[section] = self._configs[kind](**values)
        return found["model_config"]

    def _set_sizes(self, parallel: Any) -> None:  # noqa: ANN401
        """Set the sizes: ``training.get_model`` passes on the number of chunks if it is more than one; then the groups follow."""
        chunks = parallel.virtual_pipeline_model_parallel_size
        self._rank.pp = parallel.pipeline_model_parallel_size
        self._rank.vpp = chunks if chunks is not None and chunks > 1 else None
        if self._rank.vpp is not None and self._rank.pp == 1:
            message = "pipeline-model-parallel size should be greater than 1 with interleaved schedule"
            raise RuntimeError(message)

    def _build(self, config: Any, chunk: int, stage: int, outcome: Outcome) -> None:  # noqa: ANN401
        """Build one chunk of one rank."""
        self._rank.chunk, self._rank.stage = chunk, stage
        logged = len(outcome.log)
        count, first = self._model["_get_num_layers"](config, model_type=None)
        outcome.counts[chunk, stage] = int(count)
        del outcome.log[logged:]  # the transformer logs it again
        transformer = self._model["ParallelTransformer"](config, model_type=None)
        for place, layer in enumerate(transformer.layers):
            full = layer.recomputed
            select = not full and (layer.attention.core_attention.recomputed or _activation(layer).recomputed)
            comm = bool(layer.attention.comm) and not full
            kind = "full" if full else "select" if select else "comm" if comm else "none"
            outcome.layers[int(first) + place] = (chunk, stage, kind, select, comm)


def _activation(layer: Any) -> Any:  # noqa: ANN401
    return _Cell() if isinstance(layer.mlp, _Experts) else layer.mlp.act_func


def _is_foreign(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith(("mindspore", "mindformers"))
    return isinstance(node, ast.Import) and any(alias.name.startswith("mindspore") for alias in node.names)


def _failed(outcome: Outcome, error: Exception) -> Outcome:
    outcome.exception = "UFuncTypeError" if "UFunc" in type(error).__name__ else type(error).__name__
    outcome.text = str(error).replace(*_MISSING_BLANK)
    outcome.layers = {}
    return outcome
