"""Run steps of the reference transformer and record the memory in use at every event of its sharded weights.

``python sharding_child.py JOB OUT``: a separate program, in MindSpore's simulation. The notes are ``[event, unit,
bytes]`` of the last step: ``forward`` when a cell starts, ``gradients`` when all gradients of its weights are complete,
``behind`` when their reduction has started, ``update`` before the optimizer's step.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import mindspore
from mindspore.communication import init

from ms_tune.records import from_plain
from ms_tune.reference.job import ReferenceJob, rank_groups
from ms_tune.reference.transformer import sharding
from ms_tune.reference.transformer.parallel import make_groups
from ms_tune.reference.transformer.settings import NetworkSettings
from ms_tune.reference.transformer.training import Trainer
from ms_tune.training_process import make_initialisation_cheap


class Notes:
    """The memory in use, by event."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str, int]] = []
        self.names: dict[int, str] = {}

    def take(self, event: str, unit: str) -> None:
        # Without waiting for the device, which would free memory that another stream still reads.
        self.notes.append((event, unit, mindspore.runtime.memory_allocated()))

    def watch(self, trainer: Trainer) -> None:
        """Record every cell of every chunk at its start, and every unit after its backward pass."""
        for place, network in enumerate(trainer.networks):
            named = {"embedding": network.embedding, "norm": network.final_norm, "output": network.output}
            named |= {f"layer {number}": layer for number, layer in enumerate(network.layers)}
            named |= {f"prediction {number}": layer for number, layer in enumerate(network.predictions)}
            for name, cell in named.items():
                if cell is None:
                    continue
                full = f"{place}: {name}"
                cell.register_forward_pre_hook(lambda _cell, _inputs, full=full: self.take("forward", full))
                for unit in network.units._units[id(cell)]:
                    self.names[id(unit)] = full
        behind: Any = sharding.Units._after_backward

        def noted(units: sharding.Units, unit: sharding.ShardedUnit) -> None:
            self.take("gradients", self.names[id(unit)])
            behind(units, unit)
            self.take("behind", self.names[id(unit)])

        sharding.Units._after_backward = noted  # type: ignore[assignment, method-assign]


def run(job_path: Path, out: Path) -> None:
    """Run two steps, and record the second one."""
    job = from_plain(ReferenceJob, json.loads(job_path.read_text("utf-8")))
    mindspore.set_device("Ascend", 0)
    make_initialisation_cheap()
    init()
    groups = make_groups(rank_groups(job.config, job.data_parallel, int(os.environ["RANK_ID"])))
    trainer = Trainer(job.stage, NetworkSettings(job.config, groups))
    notes = Notes()
    notes.watch(trainer)
    update = trainer.state.update

    def noted_update() -> None:
        notes.take("update", "")
        update()

    trainer.state.update = noted_update  # type: ignore[method-assign]
    for _ in range(2):
        notes.notes.clear()
        trainer.step()
    out.write_text(json.dumps(notes.notes), encoding="utf-8")


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]))
