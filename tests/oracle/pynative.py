"""Run MindFormers' own dynamic-graph settings from the source in its wheels, without MindSpore and hyper-parallel.

The functions are extracted from the source with :mod:`ast`; names from outside (cells, wrappers, the logger) are small
stand-ins. Patterns are matched in a small tree of cells.
"""

from __future__ import annotations

import ast
import importlib.util
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.oracle import wheels

if TYPE_CHECKING:
    from ms_tune.dialects.operators import Tree

_CONFIG = "mindformers/pynative/config/config.py"
_TYPES = "mindformers/pynative/config/utils.py"
_RECOMPUTE = "mindformers/pynative/distributed/activation_checkpoint.py"
_PIPELINE = "mindformers/pynative/distributed/pipeline_parallel.py"
_OF_COMM = ("For communication recompute", "Set select comm recompute")
_OURS = ("mindspore", "mindformers", "hyper_parallel")


def wheel(version: str) -> Path:
    """Return the wheel of a MindFormers release.

    Raises:
        OSError: It cannot be downloaded.
    """
    found = wheels.wheel(version[:3])
    if isinstance(found, str):
        raise OSError(found)
    return found


def why_missing() -> str | None:
    """Return why the oracle cannot run here, or None."""
    return None if importlib.util.find_spec("regex") else "regex is not installed"


@dataclass
class Outcome:
    """The result of the framework for one config."""

    exception: str | None = None
    text: str = ""
    ranges: list[tuple[int, int]] = field(default_factory=list)
    full: set[int] = field(default_factory=set)
    maps: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    swapped: set[int] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)


class _Logger:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str, *values: object) -> None:
        self.lines.append(text % values if values else text)

    def warning(self, text: str, *_values: object) -> None:
        """Ignore warnings: each rank warns about patterns for the layers of other ranks."""

    error = debug = warning


class Cell:
    """A module with children. Wrappers of children are omitted, so that later steps find the children."""

    def __init__(self, children: dict[str, Cell], operators: tuple[str, ...] = ()) -> None:
        self.__dict__["_cells"] = children
        for name in operators:
            self.__dict__[name] = _operator

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self.__dict__["_cells"]:
            self.__dict__[name] = value


def _operator(value: object) -> object:
    return value


class Layers:
    """The layers of one part of the model, by their numbers in the whole model."""

    def __init__(self, layers: dict[int, Cell]) -> None:
        self._layers = layers

    def __getitem__(self, number: int) -> Cell:
        return self._layers[number]

    def __setitem__(self, number: int, layer: Cell) -> None:
        self._layers[number] = layer

    def __len__(self) -> int:
        return len(self._layers)


class _Schedule:
    """A schedule."""

    def __init__(self, stages: object, micro_batches: int) -> None:
        self.about = (stages, micro_batches)


class Block:
    """A part of the model."""

    def __init__(self, first: int, last: int, config: SimpleNamespace, layers: dict[int, Cell]) -> None:
        self.layer_start, self.layer_end = first, last
        self.config = config
        self.layers = Layers(layers)

    def construct(self, hidden_states: object) -> object:
        return hidden_states

    def register_forward_pre_hook(self, *_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(remove=lambda: None)


def layer() -> Cell:
    """Return a layer of a transformer."""
    attention = Cell(
        {name: Cell({}) for name in ("linear_qkv", "core_attention", "linear_proj")}, ("gather", "apply_rope")
    )
    mlp = Cell({name: Cell({}) for name in ("linear_fc1", "linear_fc2")}, ("activation_func", "gather"))
    return Cell({"input_layernorm": Cell({}), "self_attention": attention, "mlp": mlp}, ("cast",))


def cell_of(tree: Tree) -> Cell:
    """Return a module with the children and operators of a tree."""
    return Cell({name: cell_of(child) for name, child in tree.cells}, tuple(tree.operators))


class Oracle:
    """The framework's code of one release, ready to run."""

    devices = 8  # of the job

    def __init__(self, version: str) -> None:
        self._version = version
        self._logger = _Logger()
        with zipfile.ZipFile(wheel(version)) as archive:
            source = {path: archive.read(path).decode() for path in (_CONFIG, _TYPES, _RECOMPUTE, _PIPELINE)}
        shared: dict[str, Any] = {
            "logger": self._logger,
            "ms": SimpleNamespace(uint8="uint8", Tensor=_Logger),
            "nn": SimpleNamespace(Cell=Cell),
            "SwapManager": lambda: SimpleNamespace(set_forward_prefetch_layer=lambda *_: None),
            "CheckpointPolicy": SimpleNamespace(MUST_SAVE=0, MUST_RECOMPUTE=1, MUST_SWAP=2),
            "PipelineStage": object,
        }
        for name in ("checkpoint_wrapper", "swap_wrapper", "checkpoint_exclude_wrapper"):
            shared[name] = lambda cell, **_: cell
        types = self._run(source[_TYPES], dict(shared))
        self._config = self._run(source[_CONFIG], {**shared, "check_type": types["check_type"]})
        names = ("RecomputeConfig", "RecomputeCommConfig", "SwapConfig")
        self._recompute = self._run(source[_RECOMPUTE], {**shared, **{name: self._config[name] for name in names}})
        self._pipeline = self._run(source[_PIPELINE], dict(shared))

    def _run(self, source: str, names: dict[str, Any]) -> dict[str, Any]:
        """Run a module but for its imports of what is not here."""
        tree = ast.parse(source)
        tree.body = [node for node in tree.body if not self._is_foreign(node)]
        names["__name__"] = f"mindformers_oracle_{self._version}"
        names["check_yaml_depth_before_loading"] = None
        exec(compile(tree, "wheel", "exec", dont_inherit=True), names)  # noqa: S102 - the point of this module
        return names

    @staticmethod
    def _is_foreign(node: ast.stmt) -> bool:
        if isinstance(node, ast.ImportFrom):
            return bool(node.level) or (node.module or "").startswith(_OURS)
        return isinstance(node, ast.Import) and any(alias.name.startswith(_OURS) for alias in node.names)

    def modules(self) -> list[str]:
        """Return the paths inside a layer, as the framework collects them."""
        paths: list[str] = []
        self._recompute["_get_single_layer_whitelist"](layer(), paths)
        return paths

    def ask(self, config: dict[str, Any], layers: int, mtp: int, make: Callable[[int], Cell] | None = None) -> Outcome:
        """Load the settings, place the layers, set every part of the model.

        Args:
            config: The config.
            layers: Its layers.
            mtp: Its layers that predict further tokens.
            make: Makes a layer by its number; without it, all are alike.
        """
        self._logger.lines = []
        outcome = Outcome()
        try:
            self._go(config, layers, mtp, outcome, make or (lambda _: layer()))
        except Exception as error:  # noqa: BLE001 - whatever it is, ms-tune must say the same
            kind = type(error)
            outcome.exception = "regex.error" if kind.__module__.startswith("regex") else kind.__name__
            outcome.text = str(error)
            return outcome
        self._read_log(outcome)
        return outcome

    def _go(self, config: dict[str, Any], layers: int, mtp: int, outcome: Outcome, make: Callable[[int], Cell]) -> None:
        found = self._load(config)
        parallel = found["parallelism"]
        pp, chunks = parallel.pipeline_parallel, parallel.pipeline_parallel_interleave_num
        # The trainer works out the data-parallel size first.
        assert self.devices // pp
        if pp > 1:
            setting = self._pipeline["PpLayerSetting"](layers, parallel)
            outcome.ranges = [setting.get_layer_range(number) for number in range(pp * chunks)]
        else:
            outcome.ranges = [(0, layers - 1)]
        model = SimpleNamespace(num_layers=layers, mtp_num_layers=mtp, seq_length=8)
        for place, (first, last) in enumerate(outcome.ranges):
            block = Block(first, last, model, {number: make(number) for number in range(first, last + 1)})
            # Prediction layers are built where the last layer is (``GPTModel``).
            final = place == len(outcome.ranges) - 1 and last == layers - 1 and mtp
            behind = Block(0, mtp - 1, model, {index: make(layers + index) for index in range(mtp)}) if final else None
            self._recompute["apply_ac"](
                block, found["recompute"], found["recompute_comm"], found["swap"], pp, mtp_block=behind
            )
        if pp > 1:
            kind = self._pipeline["_infer_schedule_type"](parallel)
            schedule = self._pipeline["_create_schedule"]
            self._pipeline["_resolve_schedule_cls"] = self._resolver(self._pipeline["_SCHEDULE_REGISTRY"])
            schedule(kind, [], 1, parallel)

    @staticmethod
    def _resolver(known: dict[str, Any]) -> Any:  # noqa: ANN401
        def resolve(name: str) -> type:
            if name not in known:
                message = (
                    f"Unsupported pipeline_parallel_schedule '{name}'. Supported values: {', '.join(sorted(known))}"
                )
                raise ValueError(message)
            return _Schedule

        return resolve

    def _load(self, config: dict[str, Any]) -> dict[str, Any]:
        """Read the four sections like ``TrainConfig``; missing settings of its other sections must not fail."""
        classes = {
            "parallelism": self._config["ParallelismConfig"],
            "recompute": self._config["RecomputeConfig"],
            "recompute_comm": self._config["RecomputeCommConfig"],
            "swap": self._config["SwapConfig"],
        }
        base = self._config["TrainConfig"]
        found = {name: kind() for name, kind in classes.items()}
        for name, value in config.items():
            if name in classes:
                found[name] = base._convert_value(value, classes[name])
        for name, kind in classes.items():
            self._config["check_type"](found[name], kind, f"TrainConfig.{name}")
        return found

    def _read_log(self, outcome: Outcome) -> None:
        # The parallelism decides on the messages about communication in single layers.
        outcome.lines = [line for line in self._logger.lines if not line.startswith(_OF_COMM)]
        label = None
        for line in self._logger.lines:
            if line.startswith("--- Final"):
                label = line.split("Final ")[1].split(" Configuration")[0].removeprefix("Select ")
            elif line.startswith("-----"):
                label = None
            elif label:
                number, _, names = line.partition(": ")
                outcome.maps.setdefault(label, {})[int(number.removeprefix("layer"))] = names.split(", ")
            elif line.startswith("Set full recompute"):
                outcome.full.add(int(line.rsplit(" ", 1)[1]))
            elif line.startswith("Set layer swap"):
                outcome.swapped.add(int(line.rsplit(" ", 1)[1]))


def oracle_of(*versions: str) -> Any:  # noqa: ANN401 - pytest's own type
    """Return a module fixture: the code of each release; tests are skipped where it cannot run."""

    @pytest.fixture(scope="module", params=versions)
    def oracle(request: pytest.FixtureRequest) -> Oracle:
        missing = why_missing()
        if missing:
            pytest.skip(missing)
        try:
            return Oracle(request.param)
        except OSError as error:
            pytest.skip(f"the wheel of MindFormers {request.param} cannot be fetched: {error}")

    return oracle
