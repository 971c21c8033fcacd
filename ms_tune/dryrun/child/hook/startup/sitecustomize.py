"""Install the hook in every process of a simulated program: Python imports this before the program's own code.

Errors here must not stop the user's program. The user's own ``sitecustomize`` is run afterwards.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types

_HERE = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - every Python process of a program pays for pathlib
_PACKAGE = "_ms_tune_hook"


def _begin() -> None:
    # Load the hook as a separate package: ms-tune need not be installed for the program's Python.
    package = types.ModuleType(_PACKAGE)
    package.__path__ = [os.path.dirname(_HERE)]  # noqa: PTH120 - as above
    sys.modules[_PACKAGE] = package
    process = importlib.import_module(f"{_PACKAGE}.process")
    process.become_launcher()
    process.begin()


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
        _begin()
    _run_user_sitecustomize()
