"""Return the network that MindFormers' own classes build from a model's section, from the source in a wheel, as a separate process.

Run as a module with the wheel's path, the release and the mode (0: static graph, 1: dynamic graph). Each line of standard
input is a model's section as JSON; each line of standard output is the result of the real registry, the model's real config
class, its real conversion and its real network class: the number of layers and of prediction layers, and which layers have
experts, or the exception. Everything else (MindSpore, cells) is a stand-in (:mod:`tests.oracle.framework_child_stand_ins`).
"""

# ruff: noqa: ANN401 - MindFormers has no types

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import types
import zipfile
from typing import Any

from tests.oracle import framework_child_stand_ins as stand_ins

_SPECS = ("mindformers.parallel_core.training_graph.base_models.gpt", "mindformers.pynative.base_models.gpt")
_REAL = {
    *(f"{folder}.{name}" for folder in _SPECS for name in ("gpt_layer_specs", "moe_module_specs")),
    "mindformers.models.build_config",
    *("mindformers.tools.register.register", "mindformers.parallel_core.utils.model_mixin"),
    *("mindformers.parallel_core.utils.spec_utils", "mindformers.parallel_core.process_group_config"),
}
_EXPORTS = {
    "MindFormerRegister": "tools.register.register",
    "MindFormerModuleType": "tools.register.register",
    "ModuleSpec": "parallel_core.utils.spec_utils",
}


class Models:
    """The registry of a release, for sections of models.

    Args:
        wheel: The wheel's path.
        mode: 0 for the static graph, 1 for the dynamic one.
    """

    def __init__(self, wheel: str, mode: int) -> None:
        models = add_models(wheel)
        install(wheel)
        context: Any = importlib.import_module("mindformers.core.context.build_context")
        context.is_legacy_model = lambda: False
        context.get_context = lambda name: mode if name == "mode" else None
        mindspore: Any = sys.modules["mindspore"]
        mindspore.context.PYNATIVE_MODE, mindspore.context.GRAPH_MODE = 1, 0
        self.made: list[Any] = []
        for folder in _SPECS:
            network: Any = importlib.import_module(f"{folder}.gpt_model")
            network.GPTModel = self._remember
        for name in models:
            importlib.import_module(name)
        self.register: Any = importlib.import_module("mindformers.tools.register.register")

    def _remember(self, config: Any, transformer_layer_spec: Any = None, **_: Any) -> Any:
        self.made.append((config, transformer_layer_spec))
        return stand_ins.Something()

    def make(self, section: dict[str, Any]) -> dict[str, Any]:
        """Return the network of a section.

        Raises:
            Exception: Any exception of MindFormers.
        """
        kinds, register = self.register.MindFormerModuleType, self.register.MindFormerRegister
        self.made.clear()
        config = register.get_instance_from_cfg(dict(section), kinds.CONFIG)
        register.get_instance_from_cfg(config.to_dict(), kinds.MODELS, default_args={"config": config})
        made, spec = self.made[-1]
        layers = made.num_layers
        specs = getattr(spec, "layer_specs", None) or [spec] * layers
        return {"layers": layers, "mtp": made.mtp_num_layers or 0, "experts": [has_experts(one) for one in specs]}


class _Parts(types.SimpleNamespace):
    """The parts of a layer or a block by their names."""


def install(wheel: str) -> None:
    """Install the stand-ins, including those that record the parts of a layer."""
    stand_ins.install(wheel)
    for folder in _SPECS:
        place = folder.removesuffix(".base_models.gpt") + (".transformer" if "training" in folder else ".transformers")
        for name in ("transformer_layer", "transformer_block"):
            module: Any = importlib.import_module(f"{place}.{name}")
            module.TransformerLayerSubmodules = module.TransformerBlockSubmodules = _Parts


def add_models(wheel: str) -> list[str]:
    """Import the models' own modules, and return their names."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name.removesuffix(".py").replace("/", ".") for name in archive.namelist() if name.endswith(".py")]
    models = [name for name in names if _is_of_models(name)]
    stand_ins.REAL |= {*_REAL, *models}
    stand_ins.EXPORTS |= _EXPORTS
    return models


def has_experts(spec: Any) -> bool:
    name: str = spec.submodules.mlp.module.__name__
    return "moe" in name.lower()


def _is_of_models(name: str) -> bool:
    parts = name.split(".")
    kinds = ("configuration_", "config_converter_", "modeling_")
    return (
        parts[:2] == ["mindformers", "models"]
        and (parts[-1].startswith(kinds) or (parts[-1] == "utils" and len(parts) == 4))
        and not parts[-1].endswith("_infer")
        and "auto" not in parts
        and "multi_modal" not in parts
    )


def main() -> None:
    """Answer until there are no more lines."""
    wheel, mode = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        _answer(Models(wheel, int(mode)))


def _answer(models: Models) -> None:
    out = sys.stdout
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the process ends
    for line in sys.stdin:
        try:
            answer = models.make(json.loads(line))
        except Exception as error:  # noqa: BLE001 - whatever it is
            answer = {"error": type(error).__name__, "text": str(error)[:300]}
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
