"""Load complete configs with MindSpeed-Core-MS r0.1.0 and MindSpore's own argument checks, as a separate program.

``python mindspeed_config.py WHEEL`` imports ``init_configs_from_yaml`` from the wheel of MindFormers 1.6.0, which
contains the library that became r0.1.0. Each line of standard input is a config as a JSON string; each line of standard
output is the exception of loading it. MindFormers itself cannot be imported with today's MindSpore: its packages are
imported without their ``__init__``, and the few names that the config module needs from others are defined here.
"""

from __future__ import annotations

import ast
import json
import logging
import sys
import tempfile
import types
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

_LIBRARY = "mindformers.experimental.parallel_core.pynative"
_FROM_UTILS = ("DictWithValueError", "divide", "ensure_divisibility")


def _package(wheel: str, name: str, **names: object) -> None:
    """Create a package with the modules of the wheel, without executing its own code."""
    module = types.ModuleType(name)
    module.__path__ = [f"{wheel}/{name.replace('.', '/')}"]
    for each, value in names.items():
        setattr(module, each, value)
    sys.modules[name] = module


def _extract(wheel: str, module: str, names: tuple[str, ...]) -> dict[str, object]:
    """Return functions and classes of a module, without the module's imports."""
    with zipfile.ZipFile(wheel) as archive:
        tree = ast.parse(archive.read(f"{module.replace('.', '/')}.py").decode())
    tree.body = [item for item in tree.body if isinstance(item, ast.FunctionDef | ast.ClassDef) and item.name in names]
    found: dict[str, object] = {}
    exec(compile(tree, module, "exec"), found)  # noqa: S102 - the framework's own source
    return {name: found[name] for name in names}


def library(wheel: str) -> Any:  # noqa: ANN401 - the framework has no types
    """Return the framework's module of config classes."""
    sys.path.insert(0, wheel)
    quiet = logging.getLogger("framework")
    quiet.disabled = True
    parts = _LIBRARY.split(".")
    _package(wheel, parts[0])
    _package(wheel, "mindformers.tools")
    _package(wheel, "mindformers.tools.register")
    sys.modules["mindformers.tools.check_rules"] = types.ModuleType("check_rules")
    # Depth is limited by lint itself, and does not matter here.
    sys.modules["mindformers.tools.check_rules"].check_yaml_depth_before_loading = lambda _file: None  # type: ignore[attr-defined]
    settings = import_module("mindformers.tools.register.config")
    _package(wheel, "mindformers.tools", DictConfig=settings.DictConfig, logger=quiet)
    for count in range(2, len(parts) + 1):
        _package(wheel, ".".join(parts[:count]))
    utils = types.ModuleType(f"{_LIBRARY}.utils")
    vars(utils).update(_extract(wheel, f"{_LIBRARY}.utils", _FROM_UTILS))
    sys.modules[utils.__name__] = utils
    return import_module(f"{_LIBRARY}.config")


def main(wheel: str) -> None:
    """Answer line by line."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # the framework prints
    load = library(wheel).init_configs_from_yaml
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.yaml"
        for line in sys.stdin:
            file.write_text(json.loads(line), encoding="utf-8")
            raised = None
            try:
                load(str(file))
            except Exception as error:  # noqa: BLE001 - whatever it is
                raised = f"{type(error).__name__}: {error}"
            print(json.dumps(raised), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
