"""Define stand-ins for everything that :mod:`tests.oracle.framework_child` does not run: they accept any use.

:func:`install` replaces every module that is neither Python's, nor one of the few needed, nor in :data:`REAL`: these are
imported from MindFormers' wheel.
"""

# ruff: noqa: ANN401, EM101, EM102, TRY003 - they stand for anything, and raise in MindSpore's way

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

import yaml

from tests.oracle import framework_child_mindspore as checked
from tests.oracle.framework_child_mindspore import check_bool, check_number, check_string, current

_MODULES = yaml.safe_load((Path(__file__).parents[1] / "data" / "framework_modules.yaml").read_text("utf-8"))
NETWORKS: dict[str, str] = _MODULES["networks"]
REAL = {*_MODULES["real"], *NETWORKS.values()}
EXPORTS: dict[str, str] = _MODULES["exports"]
OUTSIDE = {*sys.stdlib_module_names, "numpy", "yaml", "_yaml", "regex"}


class Anything(type):
    """A class that replaces any name of MindSpore: it can be called, subclassed, and has every attribute."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        decorates = len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type))
        if decorates and cls.__bases__ == (Something,):
            return args[0]
        return super().__call__(*args, **kwargs)

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls

    def __iter__(cls) -> Any:
        return iter(())

    def __len__(cls) -> int:
        return 0

    def __bool__(cls) -> bool:
        return cls.__bases__ != (Something,)  # a class defined by MindFormers is one

    def __getitem__(cls, key: object) -> type:
        return cls


class Something(metaclass=Anything):
    """The result of calling a stand-in: an object with every attribute, which can be called, too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
            return args[0]
        return self

    def __iter__(self) -> Any:
        return iter(())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None: ...

    @staticmethod
    def shard(strategy: Any = (), *_: Any, **__: Any) -> Any:
        """Check like ``Primitive.shard``: a part of a strategy is a layout or a tuple without names."""
        for part in strategy if isinstance(strategy, tuple) else ():
            if isinstance(part, tuple) and not all(isinstance(ways, (int, Layout)) for ways in part):
                raise TypeError("the value of strategy must be int type")
        return stand_in("shard")


def stand_in(name: str) -> Any:
    """Return a new stand-in."""
    return Anything(name, (Something,), {})


class Layout(Something):
    """A replacement of MindSpore's layout, which knows the device axes by name, each of them once."""

    def __init__(self, devices: tuple[Any, ...], names: tuple[str, ...]) -> None:
        for ways in devices:
            if not isinstance(ways, int):
                raise TypeError(f"The element of device_matrix must be int type, but got:{type(ways)}")
        self.names = names

    def __call__(self, *axes: Any) -> Any:
        named = [name for axis in axes for name in (axis if isinstance(axis, tuple) else (axis,)) if name != "None"]
        if len({*named}) < len(named) or not {*named} <= {*self.names}:
            raise ValueError(f"The axis {axes} is not found in {self.names}, or set more than once")
        return self


class Cell(Something):
    """A replacement of MindSpore's cell: it knows its child cells, and ``offload`` checks its arguments."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Cell):
            vars(self).setdefault("inside", {})[name] = value
        super().__setattr__(name, value)

    def offload(self, backward_prefetch: Any = "Auto") -> None:
        if isinstance(backward_prefetch, str):
            check_string(backward_prefetch, ["Auto"], "backward_prefetch")
        else:
            check_number(int, 0, above=False)(backward_prefetch)


class Module(types.ModuleType):
    """A module or package that is not executed."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "2.9.0"
        if name.startswith("__"):
            raise AttributeError(name)
        inside = self.__name__.startswith("mindformers")
        if inside and f"{self.__name__}.{name}" in REAL:
            return importlib.import_module(f"{self.__name__}.{name}")
        if inside and name in EXPORTS:
            return getattr(importlib.import_module(f"mindformers.{EXPORTS[name]}"), name)
        value = type(name, (), {}) if name.endswith("Mixin") else stand_in(name)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import hook that returns a stand-in for every module that is not Python's, not needed and not real."""

    def __init__(self, wheel: str) -> None:
        self._wheel = wheel

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> Any:
        if name in REAL or name.partition(".")[0] in OUTSIDE:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        module = Module(spec.name)
        inside = spec.name.partition(".")[0] == "mindformers"
        module.__path__ = [f"{self._wheel}/{spec.name.replace('.', '/')}"] if inside else []
        return module

    def exec_module(self, module: types.ModuleType) -> None: ...


def install(wheel: str) -> None:
    """Put the stand-ins in place."""
    sys.meta_path.insert(0, Finder(wheel))
    for name in ("mindspore.context", "mindspore"):
        module: Any = importlib.import_module(name)
        module.set_auto_parallel_context = checked.set_auto_parallel_context
        module.get_auto_parallel_context = lambda key: current[key]
        module.set_context = checked.set_context
        module.GRAPH_MODE, module.PYNATIVE_MODE = 0, 1
    for name in ("mindspore.nn.cell", "mindspore.nn"):
        cells: Any = importlib.import_module(name)
        cells.Cell = Cell
    for name in ("mindspore.parallel.shard", "mindspore"):
        layouts: Any = importlib.import_module(name)
        layouts.Layout = Layout
    context: Any = sys.modules["mindspore.context"]
    for name in ("mindspore.communication", "mindspore.communication.management"):
        module = importlib.import_module(name)
        module.get_group_size = lambda *_: current["devices"]
        module.get_rank = module.get_local_rank = lambda *_: 0
    modes = ("stand_alone", "data_parallel", "hybrid_parallel", "semi_auto_parallel", "auto_parallel")
    context.ParallelMode = types.SimpleNamespace(**{mode.upper(): mode for mode in modes})
    mindspore: Any = sys.modules["mindspore"]
    mindspore.context = context
    mindspore.runtime = types.SimpleNamespace(set_memory=checked.set_memory, set_cpu_affinity=lambda *_: None)
    checks: Any = importlib.import_module("mindspore._checkparam")
    checks.Validator = types.SimpleNamespace(
        check_bool=check_bool,
        check_type_name=lambda *_, **__: None,
        check_subclass=lambda *_, **__: None,
        check_value_type=lambda *_, **__: None,
        check_string=check_string,
        check_positive_int=check_number(int, 0, above=True),
        check_non_negative_int=check_number(int, 0, above=False),
        check_positive_float=check_number(float, 0.0, above=True),
        check_non_negative_float=check_number(float, 0.0, above=False),
    )
    checks.args_type_check = lambda **_: lambda function: function
    parallel: Any = importlib.import_module("mindspore.parallel._utils")
    parallel._get_parallel_mode = lambda: current["parallel_mode"]
    parallel._is_sharding_propagation = lambda: (
        current["search_mode"] == "sharding_propagation" or current["sharding_propagation"]
    )
    logger: Any = importlib.import_module("mindformers.tools.logger")
    logger.logger = Something()
    versions: Any = importlib.import_module("mindformers.version_control")
    versions.check_tft_valid = lambda: False  # no fault tolerance unless an environment variable enables it
    yaml: Any = importlib.import_module("yaml")
    yaml.SafeLoader = yaml.CSafeLoader  # the same, and faster
    yaml.compose.__defaults__ = (yaml.CSafeLoader,)
    yaml.safe_load = lambda stream: yaml.load(stream, yaml.CSafeLoader)
