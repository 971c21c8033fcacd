"""What a stage should hold for the whole run, beside what it was seen to hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.config.model import Sharding
from ms_tune.dryrun.ranks import rank_groups
from ms_tune.estimate.persistent import Ways, persistent_bytes
from ms_tune.texts import msg
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ms_tune.dryrun.job import ReferenceJob
    from ms_tune.memory.contents import Content
    from ms_tune.texts import Message

_SHARE = 0.001
_PADDING = 1 * MIB  # the allocator rounds every tensor up


def theory_of(job: ReferenceJob, rank: int) -> dict[str, int]:
    """Bytes by content (the names of :class:`ms_tune.memory.contents.Content`) that theory can tell for a rank."""
    groups, optimizer = rank_groups(job.config, job.data_parallel, rank), job.config.optimizer
    parts = optimizer.sharding is Sharding.PARAMETERS
    dense, experts = (groups.shards, groups.expert_shards) if parts else (groups.data, groups.expert_data)
    found = persistent_bytes(job.config, job.stage, Ways(len(dense), len(experts)))
    told = {"weights": found.weights, "optimizer_state": found.optimizer}
    return {**told, "gradients": found.gradients} if optimizer.gradient_buffers else told


def unlike_theory(theory: Mapping[str, int], contents: Mapping[Content, int]) -> Iterator[Message]:
    """What was measured otherwise than it should be: one of the two is wrong.

    Args:
        theory: Bytes by content, as they should be.
        contents: Bytes by content at the peak.
    """
    measured_by_name = {content.value: size for content, size in contents.items()}
    for content, expected in theory.items():
        measured = measured_by_name.get(content, 0)
        if abs(measured - expected) > max(_SHARE * expected, _PADDING):
            yield msg(
                "reference.unlike-theory", content=msg(f"memory.content.{content}"), measured=measured, theory=expected
            )
