"""Run MindFormers' own classes and checks from their source, without importing MindFormers or MindSpore.

The source is extracted from a wheel with :mod:`ast`; the few names it needs from outside (MindSpore's context, the
logger, argument checks) are small stand-ins. Patterns are recorded instead of applied to real layers: only the
assignment of patterns to layers matters here.
"""

from __future__ import annotations

import ast
import gc
import importlib.util
import re
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from ms_tune.dialects import ENDLESS_LOOP
from ms_tune.dialects.mindformers.placement import KEYS, RecomputeInputs, SwapValues
from tests.oracle import wheels
from tests.oracle.framework_child_mindspore import check_bool

_LAYER_SETTING = "parallel_core/training_graph/transformer/utils.py"
_OLD_LAYER_SETTING = "models/utils.py"  # legacy models of 1.6
_CHECK_RULES = "tools/check_rules.py"
_CONFIGS = "modules/transformer/transformer.py"
_HANG_SECONDS = 0.15  # of this process's own time; a case that ends needs a millisecond
_SLOW_SECONDS = 20.0  # the same where patterns are looked up in layers


class _Hang(BaseException):
    """A timeout of the framework."""


@dataclass
class Outcome:
    """The result of the framework for one config."""

    log: list[str] = field(default_factory=list)
    exception: str | None = None
    text: str = ""
    layer: int | None = None
    counts: list[list[int]] | None = None
    formative: dict[str, Any] | None = None
    layers: list[dict[str, Any]] = field(default_factory=list)


def why_missing(version: str) -> str | None:
    """Return why the oracle cannot run here, or None."""
    for module in ("numpy", "regex"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    if int(import_module("numpy").__version__.split(".")[0]) > 1:
        return "MindFormers needs NumPy below 2"
    found = wheels.wheel(version)
    return None if isinstance(found, Path) else found


class _Logger:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str) -> None:
        self.lines.append(text)

    warning = info


def check_offload(backward_prefetch: object) -> None:
    """Check like ``mindspore.nn.Cell.offload``."""
    prefix, given = (
        "The input value must be int",
        f"'{backward_prefetch}' with type '{type(backward_prefetch).__name__}'",
    )
    if isinstance(backward_prefetch, str):
        if backward_prefetch != "Auto":
            message = "For 'Cell', the 'backward_prefetch' must be str and must be in '['Auto']', but got "
            raise ValueError(message + f"'{backward_prefetch}'.")
    elif not isinstance(backward_prefetch, int):
        raise TypeError(f"{prefix}, but got '{type(backward_prefetch).__name__}'")  # noqa: EM102, TRY003
    elif isinstance(backward_prefetch, bool):
        raise TypeError(f"{prefix} and must >= 0, but got {given}.")  # noqa: EM102, TRY003
    elif backward_prefetch < 0:
        raise ValueError(f"{prefix} and must >= 0, but got {given}.")  # noqa: EM102, TRY003


class Oracle:
    """The framework's code, ready to run.

    Args:
        version: The release whose wheel is read.
        make_layer: Makes a layer in which patterns are matched; without it, patterns are recorded.
    """

    def __init__(self, version: str, make_layer: Callable[[int], Any] | None = None) -> None:
        self.version = version
        self._make_layer = make_layer
        self._logger = _Logger()
        self._context: dict[str, object] = {}
        self._legacy = True
        self._patterns: list[tuple[str, bool, bool]] = []
        self._swapped: list[tuple[str, object]] = []
        self._names: dict[str, Any] = {
            "np": import_module("numpy"),
            "re": re,
            "regex": import_module("regex"),
            "logger": self._logger,
            "ms": SimpleNamespace(get_auto_parallel_context=lambda name: self._context[name]),
            "is_legacy_model": lambda: self._legacy,
            "Validator": SimpleNamespace(check_bool=check_bool),
            "_Config": object,
            "MAX_INT32": 2147483647,
        }
        self._load(_CONFIGS, {"TransformerSwapConfig", "TransformerRecomputeConfig"})
        checks = {"_rule_recompute", "_rule_recompute_no_pp", "_check_recompute", "_rule_swap_no_pp", "_check_swap"}
        self._load(_CHECK_RULES, checks)
        self.core = self._load(_LAYER_SETTING, {"LayerSetting"}, {"regex_match"})
        self.legacy = self._load(_OLD_LAYER_SETTING, {"LayerSetting"}) if version == "1.6" else self.core
        for kind in () if make_layer else (self.core, self.legacy):
            kind.set_pattern_recompute = staticmethod(self._record)
            kind.set_pattern_swap = staticmethod(self._record_swap)

    def _load(self, path: str, names: set[str], if_there: frozenset[str] | set[str] = frozenset()) -> Any:  # noqa: ANN401
        text = wheels.source(self.version, path)
        body: list[ast.stmt] = [
            node
            for node in ast.parse(text).body
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in names | if_there
        ]
        assert len(body) >= len(names)
        exec(compile(ast.Module(body, []), path, "exec"), self._names)  # noqa: S102 - the point of this module
        return self._names.get("LayerSetting")

    def _record(self, _layer: object, segments: list[str], is_comm: bool = False, is_on: bool = True) -> str:  # noqa: FBT001, FBT002 - the framework's signature
        self._match(segments[0])
        self._patterns.append((r"\.".join(segments), is_comm, is_on))
        return ""

    def _match(self, segment: str) -> None:
        """Match the first segment with the names that every layer has; only valid segments matter."""
        match = re.fullmatch if self.version == "1.6" else self._names["regex"].fullmatch
        match(segment, "name")

    def _record_swap(self, _layer: object, segments: list[str], prefetch: object) -> str:
        self._match(segments[0])
        if segments != [""]:  # no name is empty
            self._swapped.append((r"\.".join(segments), prefetch))
        return ""

    def ask(self, inputs: RecomputeInputs, values: dict[str, Any]) -> Outcome:
        """Run the framework.

        Args:
            inputs: The case.
            values: The five values, for the framework to write into.
        """
        self._legacy = inputs.legacy
        self._context = {"pipeline_interleave": inputs.interleave, "pipeline_scheduler": inputs.scheduler}
        self._logger.lines = []
        outcome = Outcome()
        try:
            with _time_limit(_SLOW_SECONDS if self._make_layer else _HANG_SECONDS), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._run(inputs, values, outcome)
        except _Hang:
            outcome.exception = ENDLESS_LOOP
        except Exception as error:  # noqa: BLE001 - whatever it is, ms-tune must say the same
            outcome.exception, outcome.text = _class_name(error), str(error)
        every = self._make_layer is not None
        outcome.log = [line for line in self._logger.lines if every or not line.startswith("Set ")]
        return outcome

    def _run(self, inputs: RecomputeInputs, values: dict[str, Any], outcome: Outcome) -> None:
        swap = self._names["TransformerSwapConfig"](**_swap_section(inputs.swap))
        section = SimpleNamespace(
            parallel_config=SimpleNamespace(pipeline_stage=inputs.stages),
            recompute_config=self._names["TransformerRecomputeConfig"](**values),
            swap_config=swap,
        )
        self._names["_check_recompute"](section)
        self._names["_check_swap"](section)
        setting = self._setting(inputs, values, swap, outcome)
        reduced = not inputs.legacy and self.version == "1.6"
        for layer_id in range(inputs.layers):
            outcome.layer = layer_id
            outcome.layers.append(self._set(setting, layer_id))
        outcome.layer = None
        if inputs.mtp_layers and not inputs.legacy:
            lines = list(self._logger.lines)
            keeps = self._make_layer is not None and not reduced
            try:
                setting = self._setting(inputs, values, swap, Outcome())
            except Exception:
                keeps = False
                raise
            finally:
                if not keeps:
                    self._logger.lines = lines
            for layer_id in range(inputs.layers, inputs.layers + inputs.mtp_layers):
                if reduced:
                    outcome.layer = layer_id
                    outcome.layers.append(self._set(setting, layer_id))
                elif self._make_layer is not None:
                    self._set(setting, inputs.layers - 1, layer_id)
            outcome.layer = None

    def _setting(self, inputs: RecomputeInputs, values: dict[str, Any], swap: object, outcome: Outcome) -> Any:  # noqa: ANN401
        core = _swap_section(inputs.core_swap)
        config = SimpleNamespace(
            pipeline_stage=inputs.stages,
            pipeline_model_parallel_size=inputs.stages,
            gradient_aggregation_group=4,
            cpu_offloading=core["swap"],
            cpu_offloading_num_layers=core["layer_swap"],
            op_swap=core["op_swap"],
            swap=swap,
            parallel_optimizer_comm_recompute=False,
            mp_comm_recompute=True,
            recompute_slice_activation=False,
        )
        if inputs.legacy:
            config.recompute = self._names["TransformerRecomputeConfig"](**values)
        else:
            vars(config).update(values)
        reduced = not inputs.legacy and self.version == "1.6"
        setting = (self.legacy if inputs.legacy else self.core)(
            inputs.layers + inputs.mtp_layers if reduced else inputs.layers,
            inputs.offset,
            config,
            inputs.interleave_num,
            inputs.start_stage,
            inputs.stage_num,
        )
        outcome.counts = setting.layer_list.tolist()
        outcome.formative = {
            "layer_recompute": _plain(setting.layer_recompute),
            **{key: {str(p): _plain(rows) for p, rows in getattr(setting, key, {}).items()} for key in KEYS[1:]},
            "layer_swap": getattr(setting, "layer_swap", []),
            "op_swap": getattr(setting, "op_swap", {}),
        }
        return setting

    def _set(self, setting: Any, layer_id: int, built: int | None = None) -> dict[str, Any]:  # noqa: ANN401
        """Set a layer; ``built`` is its number when built, if it is set by another layer's number."""
        full: list[bool] = []
        swapped: list[tuple[str, object]] = []

        def offload(backward_prefetch: object) -> None:
            check_offload(backward_prefetch)
            swapped.append(("", backward_prefetch))

        layer = SimpleNamespace(
            recompute=lambda **_: full.append(True),
            offload=offload,
            set_comm_fusion=lambda _: None,
            pipeline_segment=None,
            pipeline_stage=None,
        )
        self._patterns.clear()
        self._swapped.clear()
        made = self._make_layer(layer_id if built is None else built) if self._make_layer else layer
        setting(made, layer_id)
        found: dict[tuple[bool, bool], list[str]] = {}
        for pattern, is_comm, is_on in self._patterns:
            found.setdefault((is_comm, is_on), []).append(pattern)
        return {
            "layer": layer_id,
            "stage": layer.pipeline_stage,
            "chunk": int(setting.interleave_ids[layer_id]),
            "full": bool(full),
            "select": found.get((False, True), []),
            "comm": found.get((True, True), []),
            "select_exclude": found.get((False, False), []),
            "comm_exclude": found.get((True, False), []),
            "swap": [*swapped, *self._swapped],
        }


def _swap_section(values: SwapValues) -> dict[str, Any]:
    return {
        "swap": values.swap,
        "layer_swap": values.layer_swap,
        "op_swap": values.op_swap,
        "default_prefetch": values.default_prefetch,
    }


def _plain(value: Any) -> Any:  # noqa: ANN401 - lists, tuples and arrays, or True
    if isinstance(value, bool):
        return value
    return [[int(item) for item in row] if hasattr(row, "__len__") else row for row in value]


def _class_name(error: Exception) -> str:
    kind = type(error)
    if kind is re.error:
        return "re.error"
    return "regex.error" if kind.__module__.startswith("regex") else re.sub(r"^_(?=Array|UFunc)", "", kind.__name__)


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise _Hang

    previous = signal.signal(signal.SIGVTALRM, give_up)
    # A signal during hypothesis' hook on the garbage collector would be raised there, and be lost.
    collecting = gc.isenabled()
    gc.disable()
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
        if collecting:
            gc.enable()
