"""Watch the import of PyTorch in every process of a training; Python imports this before the program's own code.

Errors here must not stop the training. The user's own ``sitecustomize`` is run afterwards.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType

_HERE = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - every Python process of a training pays for pathlib
_WATCHED = ("torch", "torch_npu")


def _load_training() -> ModuleType:
    # From its file: ms-tune need not be installed for the program's Python.
    spec = importlib.util.spec_from_file_location("_ms_tune_training", os.path.join(_HERE, os.pardir, "training.py"))  # noqa: PTH118
    if spec is None or spec.loader is None:
        raise ImportError
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class _Watch:
    """A finder that finds nothing itself, and calls back once PyTorch or torch_npu is imported."""

    def __init__(self, training: ModuleType) -> None:
        self._training = training
        self._waiting = list(_WATCHED)

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if name not in self._waiting:
            return None
        self._waiting.remove(name)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_tell(module: ModuleType) -> None:
                execute(module)
                self._training.begin(name)

            spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec


def _run_user_sitecustomize() -> None:
    others = [entry for entry in sys.path if os.path.realpath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    with contextlib.suppress(Exception):
        sys.meta_path.insert(0, _Watch(_load_training()))
    _run_user_sitecustomize()
