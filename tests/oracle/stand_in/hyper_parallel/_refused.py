"""Define modules and names that can only be imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import types
from typing import NoReturn


class _Refused(type):
    """The type of the names: classes, because MindFormers tests for them and derives its own classes from them."""

    def __call__(cls, *_: object, **__: object) -> NoReturn:
        message = f"{cls.__module__}.{cls.__qualname__}: this stand-in for HyperParallel does not have it"
        raise NotImplementedError(message)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        cls()


def thing(module: str, name: str) -> type:
    """Return a name of an unsupported module."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _Refused(name, (), {"__module__": module})


class Module(types.ModuleType):
    """A module of such names."""

    def __getattr__(self, name: str) -> type:
        made = thing(self.__name__, name)
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import hook for the modules of the package that have no file."""

    def __init__(self, package: str) -> None:
        self._prefix = f"{package}."

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """Find a module, see :class:`importlib.abc.MetaPathFinder`."""
        if not fullname.startswith(self._prefix):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Create a module, see :class:`importlib.abc.Loader`."""
        return Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Execute nothing."""
