"""Run random dynamic-graph programs on several streams: ``python streams_program.py SEED...``, each in a process of its own.

Each runs in the folder of its seed, leaves ``memory_block.csv`` there, and writes the figures of MindSpore itself to ``said.json``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

import mindspore as ms
from mindspore import mint
from mindspore.communication import comm_func

STEPS, ACTIONS, ROWS = 4, 16, 256


class Program:
    """A program of some steps: what it does depends on the seed alone."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - the same program every time
        ms.set_device("Ascend")
        if seed % 3 == 2:
            ms.runtime.set_memory(init_size="2GB", increase_size=f"{self.random.choice((1, 2, 3))}GB")
        ms.communication.init()
        self.streams = [ms.runtime.default_stream(), *(ms.runtime.Stream() for _ in range(self.random.randrange(3)))]
        self.tensors = [mint.ones((ROWS, 1024 * width)) for width in (1, 4, 7)]
        self.handles: list[Any] = []

    def act(self) -> None:
        """Do one thing: launch an operator or a collective, or wait for some of them."""
        actions = (self.make, self.make, self.compute, self.compute, self.compute, self.reduce, self.reduce, self.drop)
        action = self.random.choice((*actions, self.wait_for_handle, self.wait_for_event, self.synchronize))
        with ms.runtime.StreamCtx(self.random.choice(self.streams)):
            action()

    def make(self) -> None:
        self.tensors.append(mint.ones((ROWS, 1024 * self.random.choice((1, 3, 8, 20, 50, 300)))))

    def compute(self) -> None:
        one = self.random.choice(self.tensors)
        self.tensors.append(mint.cat((one, one), 1) if one.nbytes < 2**27 and self.random.random() < 0.3 else one + 1)

    def reduce(self) -> None:
        tensor, handle = comm_func.all_reduce(self.random.choice(self.tensors), async_op=True)
        self.tensors.append(tensor)
        self.handles.append(handle)

    def drop(self) -> None:
        if len(self.tensors) > 1:
            del self.tensors[self.random.randrange(len(self.tensors))]

    def wait_for_handle(self) -> None:
        if self.handles:
            self.handles.pop(self.random.randrange(len(self.handles))).wait()

    def wait_for_event(self) -> None:
        self.random.choice(self.streams).wait_event(self.random.choice(self.streams).record_event())

    def synchronize(self) -> None:
        self.random.choice((ms.runtime.synchronize, self.random.choice(self.streams).synchronize))()

    def run(self) -> None:
        """Run all steps; most end with a synchronisation, after which few tensors are kept."""
        for _ in range(STEPS):
            for _ in range(ACTIONS):
                self.act()
            if self.random.random() < 0.7:
                ms.runtime.synchronize()
            self.tensors = self.random.sample(self.tensors, min(len(self.tensors), 3))
            if self.random.random() < 0.1:
                ms.runtime.empty_cache()
        said = {"used": ms.runtime.max_memory_allocated(), "reserved": ms.runtime.max_memory_reserved()}
        Path("said.json").write_text(json.dumps(said), encoding="utf-8")


def main(seeds: list[str]) -> None:
    """Fork a process for every seed: neither the tracker nor the pool begins before the first tensor."""
    for seed in seeds:
        if not os.fork():
            Path(seed).mkdir()
            os.chdir(seed)
            os.environ["MS_ALLOC_CONF"] = "memory_tracker:True"
            Program(int(seed)).run()
            return
        os.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
