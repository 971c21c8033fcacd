"""Replace torch and everything based on it, so that the code that decides about layers runs without it.

A missing module is made on demand, and so is every name in it: a class that can be called, subclassed, used as a decorator,
compared and calculated with. Values have no meaning; decisions do not depend on them.
"""

# ruff: noqa: ANN401 - it stands in for everything

from __future__ import annotations

import sys
from abc import ABCMeta
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Modules that must be missing, because the frameworks test for them and create substitutes.
_ABSENT = frozenset(
    ("transformer_engine", "apex", "amp_C", "fused_layer_norm_cuda", "fused_weight_gradient_mlp_cuda", "flash_attn")
) | {"flashattn_hopper", "wandb", "nvidia_resiliency_ext", "modelopt", "megatron", "mindspeed", "mindspeed_llm"}

_REAL = frozenset(("packaging", "tests", "yaml", "pretrain_gpt"))


class _Meta(ABCMeta):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Meta(name, (Anything,), {"__module__": cls.__module__})
        setattr(cls, name, made)
        return made

    def __or__(cls, other: object) -> Any:
        return Any

    def __ror__(cls, other: object) -> Any:
        return Any

    def __getitem__(cls, item: object) -> Any:
        return cls

    def __iter__(cls) -> Any:
        return iter(())

    def __len__(cls) -> int:
        return 0

    def __bool__(cls) -> bool:
        return True

    def __lt__(cls, other: object) -> bool:
        return False

    def __gt__(cls, other: object) -> bool:
        return True

    def __ge__(cls, other: object) -> bool:
        return True

    def __le__(cls, other: object) -> bool:
        return False


def _same(self: Any, *_: object, **__: object) -> Any:
    return self


class Anything(metaclass=_Meta):
    """An object with every attribute and operation."""

    _base = None  # a tensor that is no view

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # As a decorator it changes nothing.
        if (
            cls.__init__ is Anything.__init__
            and len(args) == 1
            and not kwargs
            and callable(args[0])
            and not isinstance(args[0], _Meta)
        ):
            return args[0]
        return object.__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __init_subclass__(cls, **_: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], Anything):
            return args[0]
        return Anything()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __getitem__(self, item: object) -> Any:
        return Anything()

    def __setitem__(self, item: object, value: object) -> None:
        pass

    def __contains__(self, item: object) -> bool:
        return False

    def __bool__(self) -> bool:
        return True

    def __fspath__(self) -> str:
        return "/nonexistent"

    def __int__(self) -> int:
        return 1

    def __index__(self) -> int:
        return 1

    def __float__(self) -> float:
        return 1.0

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return True

    def __le__(self, other: object) -> bool:
        return False

    def __ge__(self, other: object) -> bool:
        return True

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = (
        _same
    )
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = __and__ = __or__ = __ror__ = __matmul__ = _same


class Module:
    """A replacement of ``torch.nn.Module`` for layers without weights."""

    training = True

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)  # type: ignore[attr-defined]

    def named_children(self) -> Any:
        return iter(())


class ModuleList(list[Any]):
    """A replacement of ``torch.nn.ModuleList``."""


class Function:
    """A replacement of ``torch.autograd.Function``."""

    @classmethod
    def apply(cls, *_: Any, **__: Any) -> Any:
        return Anything()


class _Module(ModuleType):
    __path__ = []  # noqa: RUF012 - of a module
    __version__ = "2.7.1"
    __file__ = "stand-in"

    def __getattr__(self, name: str) -> Any:
        # MindSpeed searches all modules for the objects that it replaces: it must find only existing ones.
        if name.startswith("__") or sys._getframe(1).f_code.co_name == "apply_patch":
            raise AttributeError(name)
        made = _Meta(name, (Anything,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        root = fullname.partition(".")[0]
        if root in _ABSENT or root in _REAL or root in sys.stdlib_module_names:
            return None
        if fullname.rpartition(".")[2][0].isupper():
            return None  # a class, which somebody tries to import
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        made = _Module(spec.name)
        parent, _, name = spec.name.rpartition(".")
        if parent in sys.modules:
            sys.modules[parent].__dict__[name] = made
        return made

    def exec_module(self, module: ModuleType) -> None:
        pass


def install() -> None:
    """Make every missing module importable."""
    sys.meta_path.insert(0, _Finder())
    torch: Any = import_module("torch.nn")
    torch.Module, torch.ModuleList = Module, ModuleList
    autograd: Any = import_module("torch.autograd")
    autograd.Function = Function
