"""One forward and backward pass of MindFormers 2.1's dynamic-graph network, on one device: a program of its own.

``python dynamic_network.py WHEEL_FOLDER CONFIG``. MindFormers needs HyperParallel, which is not on the package index; on
one device it calls nothing of it, so that empty classes of the same names will do.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

_MODELS = {
    "qwen3": (
        "qwen3.configuration_qwen3",
        "Qwen3Config",
        "qwen3.modeling_qwen3_train_pynative",
        "PyNativeQwen3ForCausalLM",
    ),
    "deepseek_v3": (
        "deepseek3.configuration_deepseek_v3",
        "DeepseekV3Config",
        "deepseek3.modeling_deepseek_v3_pynative",
        "PyNativeDeepseekV3ForCausalLM",
    ),
}
_ABSENT = "hyper_parallel"


class _Nothing:
    """Can be made and called, and used as a decorator or around a block."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __call__(self, *_: object, **__: object) -> _Nothing:
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class _Module(types.ModuleType):
    """A module in which every name is a class that does nothing."""

    __path__: list[str] = []  # noqa: RUF012 - how a package is told

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (_Nothing,), {})
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != _ABSENT:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is in it."""


def _network(model: dict[str, Any]) -> Any:  # noqa: ANN401 - MindFormers has no types
    configs, config_class, networks, network_class = _MODELS[model.pop("model_type")]
    config = getattr(import_module(f"mindformers.models.{configs}"), config_class)(**model)
    return getattr(import_module(f"mindformers.models.{networks}"), network_class)(config)


def run(config: Path) -> None:
    """Build the network and differentiate its loss."""
    import mindspore  # noqa: PLC0415 - after the path is set
    import numpy as np  # noqa: PLC0415

    not_legacy = lambda: False  # noqa: E731 - as the dynamic-graph trainer does
    import_module("mindformers.tools.register.register").is_legacy_model = not_legacy  # type: ignore[attr-defined]
    import_module("mindformers.core.context").is_legacy_model = not_legacy  # type: ignore[attr-defined]
    mindspore.set_device("Ascend", 0)
    model = yaml.safe_load(config.read_text(encoding="utf-8"))["model"]
    words = model["seq_length"]
    network = _network(model)
    for weight in network.get_parameters():
        weight.init_data()
    network.set_train()
    tokens = mindspore.Tensor(np.zeros((1, words), np.int32))
    mask = mindspore.Tensor(np.ones((1, words), np.float32))

    def loss() -> Any:  # noqa: ANN401 - as above
        made = network(input_ids=tokens, labels=tokens, loss_mask=mask, position_ids=tokens)
        if isinstance(made, dict):
            return made["loss"]
        return made[0] if isinstance(made, tuple) else made

    mindspore.value_and_grad(loss, None, mindspore.ParameterTuple(network.trainable_params()))()
    mindspore.runtime.synchronize()


if __name__ == "__main__":
    sys.meta_path.insert(0, _Finder())
    sys.path.insert(0, sys.argv[1])
    run(Path(sys.argv[2]))
