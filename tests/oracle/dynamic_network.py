"""Run one forward and backward pass of MindFormers 2.1's dynamic-graph network on one device, as a separate program.

``python dynamic_network.py WHEEL_FOLDER CONFIG``. MindFormers needs HyperParallel, which is not on the package index;
on one device it does not call it, so that the empty objects of ``make_trees`` are sufficient.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml


def run(config: Path, trees: Any) -> None:  # noqa: ANN401 - the module
    """Build the network and differentiate its loss."""
    import mindspore  # noqa: PLC0415 - after the path is set
    import numpy as np  # noqa: PLC0415

    not_legacy = lambda: False  # noqa: E731 - as the dynamic-graph trainer does
    import_module("mindformers.tools.register.register").is_legacy_model = not_legacy  # type: ignore[attr-defined]
    import_module("mindformers.core.context").is_legacy_model = not_legacy  # type: ignore[attr-defined]
    mindspore.set_device("Ascend", 0)
    model = yaml.safe_load(config.read_text(encoding="utf-8"))["model"]
    words = model["seq_length"]
    network = trees.dynamic_network(model.pop("model_type"), model)
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
    made: Any = import_module("make_trees")  # the folder of this file is the first on the path
    sys.meta_path.insert(0, made._Finder())
    sys.path.insert(0, sys.argv[1])
    run(Path(sys.argv[2]), made)
