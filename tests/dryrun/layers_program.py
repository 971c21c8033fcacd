"""Train a static graph of equal layers, with or without a setting that lowers its memory: ``python layers_program.py SETTINGS``.

SETTINGS is JSON: ``kind`` (``gelu``, ``relu``, ``attention``), ``residual``, ``lazy`` (one graph for all layers), ``micro``
(micro-batches whose gradients are accumulated), ``remedy`` (none, ``recompute``).
"""

from __future__ import annotations

import json
import sys
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.graph.lazy_inline import lazy_inline

WIDTH, ROWS, LAYERS, HEADS = 512, 4096, 6, 8


class Layer(nn.Cell):  # type: ignore[misc]
    """A layer of Dense, activation, Dense; or with attention before them."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self.residual = settings.get("residual", True)
        self.attention = settings["kind"] == "attention"
        self.wide = nn.Dense(WIDTH, 4 * WIDTH)
        self.act = nn.ReLU() if settings["kind"] == "relu" else nn.GELU()
        self.narrow = nn.Dense(4 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm((WIDTH,))
        if self.attention:
            self.query, self.key, self.value = (nn.Dense(WIDTH, WIDTH) for _ in range(3))
            self.softmax = nn.Softmax(-1)

    def construct(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        if self.attention:
            x = x + self.attend(self.norm(x))
        y = self.narrow(self.act(self.wide(x)))
        return x + y if self.residual else y

    def attend(self, x: Tensor) -> Tensor:
        """Apply attention without FlashAttention: rows are sequences of 256 tokens."""
        shape = (ROWS // 256, 256, HEADS, WIDTH // HEADS)
        query, key, value = (
            ops.transpose(ops.reshape(each(x), shape), (0, 2, 1, 3)) for each in (self.query, self.key, self.value)
        )
        scores = self.softmax(ops.BatchMatMul(transpose_b=True)(query, key) * 0.125)
        return ops.reshape(ops.transpose(ops.BatchMatMul()(scores, value), (0, 2, 1, 3)), (ROWS, WIDTH))


class LazyLayer(Layer):
    """The same layer as one graph that all layers share."""

    @lazy_inline  # type: ignore[untyped-decorator]
    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)


class Net(nn.Cell):  # type: ignore[misc]
    """A network of the layers between two others, with a loss."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self.embed = nn.Dense(WIDTH, WIDTH)
        kind = LazyLayer if settings.get("lazy") else Layer
        self.layers = nn.CellList([kind(settings) for _ in range(LAYERS)])
        for layer in self.layers:
            if settings.get("remedy") == "recompute":
                layer.recompute()
        self.head = nn.Dense(WIDTH, WIDTH)

    def construct(self, x: Tensor) -> Tensor:
        """Return the loss."""
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return ops.reduce_mean(ops.square(self.head(x)))


def main(settings: dict[str, Any]) -> None:
    """Run two steps."""
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    mindspore.set_device("Ascend")
    net = Net(settings)
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9))
    step.set_train()
    rows = Tensor(np.ones((ROWS, WIDTH), np.float32))
    for _ in range(2):
        step(rows)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
