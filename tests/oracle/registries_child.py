"""Print the names of classes that one release of MindFormers accepts in a config, from the real package's registry.

Run where MindSpore is installed, with the folder of an unpacked wheel first on the path. ``hyper_parallel`` is replaced by
objects that do nothing, as in :mod:`tests.oracle.make_trees`.
"""

from __future__ import annotations

import ast
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

# Names in a config, and the registry's names.
KINDS = {
    "optimizer": "optimizer",
    "lr_schedule": "lr",
    "trainer": "trainer",
    "callback": "callback",
    "dataset": "dataset",
    "dataset_loader": "dataset_loader",
    "model": "models",
    "config": "config",
    "runner_wrapper": "wrapper",
    "metric": "metric",
    "processor": "processor",
    "tokenizer": "tokenizer",
}
_NEW = "mcore_"


def dynamic() -> dict[str, list[str]]:
    """Return the names that only the dynamic graph accepts: those that its builders compare with, and the callbacks that it imports.

    Names that its builders look up in the registry are not included.
    """
    path = Path(str(import_module("mindformers").__file__)).parent / "pynative" / "trainer" / "utils.py"
    if not path.exists():
        return {}
    import_module("mindformers.pynative.callback")
    return {
        "callback": static()["callback"],
        "optimizer": compared(path, "_build_optimizer"),
        "dataset_loader": compared(path, "_build_dataset"),
    }


def static() -> dict[str, list[str]]:
    """Return the names that ``MindFormerRegister`` finds, by kind; Mcore models and legacy ones are separate."""
    import_module("mindformers")
    register: Any = import_module("mindformers.tools.register").MindFormerRegister
    found: dict[str, set[str]] = {}
    for kind, module in KINDS.items():
        names = {*register.registry.get(module, ())}
        names |= {name for where, name in getattr(register, "search_names_map", {}) if where == module}
        if kind in ("model", "config"):
            found[f"core_{kind}"] = {name.removeprefix(_NEW) for name in names if name.startswith(_NEW)}
            names = {name for name in names if not name.startswith(_NEW)}
        found[kind] = names
    return {kind: sorted(name for name in names if not name.startswith(_NEW)) for kind, names in found.items()}


def compared(path: Path, function: str) -> list[str]:
    """Return the texts that a function compares with."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (found,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function)
    texts = set()
    for node in ast.walk(found):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
            texts |= {one.value for one in node.comparators if isinstance(one, ast.Constant)}
    return sorted(text for text in texts if isinstance(text, str))


if __name__ == "__main__":
    trees: Any = import_module("make_trees")  # the folder of this file is the first on the path
    sys.meta_path.insert(0, trees._Finder())
    print(json.dumps({"static": static(), "dynamic": dynamic()}))  # noqa: T201 - read by the parent process
