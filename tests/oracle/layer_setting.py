"""MindFormers' own ``LayerSetting``, run from its source without importing MindFormers or MindSpore.

Its source is taken out of the installed package with :mod:`ast`; the few names it needs from outside (MindSpore's
context, the logger, the config classes) are small stand-ins. A pattern's meeting with a real layer is recorded instead
of done: which layer gets which pattern is the question here.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import signal
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ms_tune.layers import ENDLESS_LOOP, KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from ms_tune.layers import RecomputeInputs

_LAYER_SETTING = "parallel_core/training_graph/transformer/utils.py"
_CHECK_RULES = "tools/check_rules.py"
_HANG_SECONDS = 0.15  # of this process's own time; a case that ends needs a millisecond


class _Hang(BaseException):
    """The framework used up its time."""


@dataclass
class Outcome:
    """What the framework did with one config."""

    log: list[str] = field(default_factory=list)
    exception: str | None = None
    text: str = ""
    layer: int | None = None
    counts: list[list[int]] | None = None
    formative: dict[str, Any] | None = None
    layers: list[dict[str, Any]] = field(default_factory=list)


def why_missing() -> str | None:
    """Why the oracle cannot run here, or None."""
    for module in ("mindformers", "numpy", "regex"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    if int(import_module("numpy").__version__.split(".")[0]) > 1:
        return "MindFormers needs NumPy below 2"
    if "legacy" not in (package() / _LAYER_SETTING).read_text():
        return "this MindFormers is too old"
    return None


def package() -> Path:
    """Where MindFormers is installed."""
    spec = importlib.util.find_spec("mindformers")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def configs() -> list[Path]:
    """The YAML files that come with MindFormers."""
    return sorted((package().parent / "configs").rglob("*.yaml"))


class _Logger:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str) -> None:
        self.lines.append(text)

    warning = info


class Oracle:
    """The framework's code, ready to be asked."""

    def __init__(self) -> None:
        self._logger = _Logger()
        self._context: dict[str, object] = {}
        self._legacy = True
        self._patterns: list[tuple[str, bool, bool]] = []
        self._names: dict[str, Any] = {
            "np": import_module("numpy"),
            "regex": import_module("regex"),
            "logger": self._logger,
            "ms": SimpleNamespace(get_auto_parallel_context=lambda name: self._context[name]),
            "is_legacy_model": lambda: self._legacy,
            "TransformerSwapConfig": SimpleNamespace,
            "TransformerRecomputeConfig": SimpleNamespace,
            "MAX_INT32": 2147483647,
        }
        self._load(_LAYER_SETTING, {"regex_match", "LayerSetting"})
        self._load(_CHECK_RULES, {"_rule_recompute"})
        self._names["LayerSetting"].set_pattern_recompute = staticmethod(self._record)

    def _load(self, path: str, names: set[str]) -> None:
        tree = ast.parse((package() / path).read_text())
        body: list[ast.stmt] = [
            node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in names
        ]
        assert len(body) == len(names)
        exec(compile(ast.Module(body, []), path, "exec"), self._names)  # noqa: S102 - the point of this module

    def _record(self, _layer: object, segments: list[str], is_comm: bool = False, is_on: bool = True) -> str:  # noqa: FBT001, FBT002 - the framework's signature
        self._patterns.append((r"\.".join(segments), is_comm, is_on))
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
            with _time_limit(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._run(inputs, values, outcome)
        except _Hang:
            outcome.exception = ENDLESS_LOOP
        except Exception as error:  # noqa: BLE001 - whatever it is, ms-tune must say the same
            outcome.exception, outcome.text = _class_name(error), str(error)
        outcome.log = [line for line in self._logger.lines if not line.startswith("Set ")]
        return outcome

    def _run(self, inputs: RecomputeInputs, values: dict[str, Any], outcome: Outcome) -> None:
        for key in KEYS[:3]:
            self._names["_rule_recompute"](inputs.stages, values[key], key)
        setting = self._setting(inputs, values, outcome)
        for layer_id in range(inputs.layers):
            outcome.layer = layer_id
            outcome.layers.append(self._set(setting, layer_id))
        outcome.layer = None
        if inputs.mtp_layers and not inputs.legacy:
            lines = list(self._logger.lines)
            try:
                self._setting(inputs, values, Outcome())
            finally:
                self._logger.lines = lines

    def _setting(self, inputs: RecomputeInputs, values: dict[str, Any], outcome: Outcome) -> Any:  # noqa: ANN401
        recompute = SimpleNamespace(recompute_slice_activation=False, **values)
        config = SimpleNamespace(
            pipeline_stage=inputs.stages,
            pipeline_model_parallel_size=inputs.stages,
            gradient_aggregation_group=4,
            cpu_offloading=False,
            cpu_offloading_num_layers=None,
            op_swap=None,
            swap=SimpleNamespace(swap=False),
            parallel_optimizer_comm_recompute=False,
            mp_comm_recompute=True,
        )
        if inputs.legacy:
            config.recompute = recompute
        else:
            vars(config).update(vars(recompute))
        setting = self._names["LayerSetting"](
            inputs.layers, inputs.offset, config, inputs.interleave_num, inputs.start_stage, inputs.stage_num
        )
        outcome.counts = setting.layer_list.tolist()
        outcome.formative = {
            "layer_recompute": _plain(setting.layer_recompute),
            **{key: {str(p): _plain(rows) for p, rows in getattr(setting, key).items()} for key in KEYS[1:]},
        }
        return setting

    def _set(self, setting: Any, layer_id: int) -> dict[str, Any]:  # noqa: ANN401
        full: list[bool] = []
        layer = SimpleNamespace(
            recompute=lambda **_: full.append(True), set_comm_fusion=lambda _: None, pipeline_segment=None
        )
        self._patterns.clear()
        setting(layer, layer_id)
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
        }


def _plain(rows: Any) -> list[list[int]]:  # noqa: ANN401 - lists, tuples and arrays
    return [[int(item) for item in row] for row in rows]


def _class_name(error: Exception) -> str:
    kind = type(error)
    return "regex.error" if kind.__module__.startswith("regex") else re.sub(r"^_(?=Array|UFunc)", "", kind.__name__)


@contextmanager
def _time_limit() -> Iterator[None]:
    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise _Hang

    previous = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, _HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
