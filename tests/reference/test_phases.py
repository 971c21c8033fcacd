"""Check that allocations in an optimizer's file belong to the phase of the update: the reference's files have such names."""

from __future__ import annotations

import numpy as np
import pytest

from ms_tune.footprint.phases import ORDER, Phase, Phases
from ms_tune.readers.memory_block import Frame
from tests.readers.rows import table_from
from tests.readers.samples import block
from tests.sources import modules


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("UnshardedWeights", Phase.UPDATE),
        ("make_adamw", Phase.UPDATE),
        ("squared_norm", Phase.UPDATE),
        ("ShardedWeights", None),  # it also receives gradients and gathers weights
        ("GradientBuffers", None),
        ("Trainer", None),
    ],
)
def test_the_update_is_what_is_in_the_file_of_the_optimizer(name: str, phase: Phase | None) -> None:
    (path,) = (
        module.path
        for module in modules()
        if module.inside("reference.transformer")
        for node in module.tree.body
        if getattr(node, "name", "") == name
    )
    made = block(1, stack=(Frame(str(path), 1, "step"),))
    (found,) = Phases(table_from([made]), np.array([False])).own_codes.tolist()
    assert (ORDER[found - 1] if found else None) is phase
