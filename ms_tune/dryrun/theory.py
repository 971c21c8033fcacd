"""What a stage should hold for the whole run, beside what it was seen to hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.config.model import DType, Sharding
from ms_tune.dryrun.ranks import rank_groups
from ms_tune.estimate.persistent import Ways, persistent_bytes, stage_weights
from ms_tune.texts import msg
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ms_tune.dryrun.job import ReferenceJob
    from ms_tune.memory.contents import Content
    from ms_tune.texts import Message

_SHARE = 0.001
_MOMENTS = 2
_PADDING = 1 * MIB  # the allocator rounds every tensor up


@dataclass(frozen=True, slots=True)
class BesideTheory:
    """One content of a rank's memory.

    Attributes:
        content: Its name, as :class:`ms_tune.memory.contents.Content` has it.
        measured: Bytes at the peak.
        expected: Bytes by theory.
    """

    content: str
    measured: int
    expected: int

    @property
    def difference(self) -> float | None:
        """How much more than by theory, as a part of theory; None where theory expects nothing."""
        return (self.measured - self.expected) / self.expected if self.expected else None

    @property
    def agrees(self) -> bool:
        """Whether the two differ by no more than the allocator's padding."""
        return abs(self.measured - self.expected) <= max(_SHARE * self.expected, _PADDING)


def theory_of(job: ReferenceJob, rank: int) -> dict[str, int]:
    """Bytes by content (the names of :class:`ms_tune.memory.contents.Content`) that theory can tell for a rank."""
    groups, optimizer = rank_groups(job.config, job.data_parallel, rank), job.config.optimizer
    parts = optimizer.sharding is Sharding.PARAMETERS
    dense, experts = (groups.shards, groups.expert_shards) if parts else (groups.data, groups.expert_data)
    ways = Ways(len(dense), len(experts))
    found = persistent_bytes(job.config, job.stage, ways)
    state = found.optimizer + (_legacy_state(job, ways) if job.config.shape.legacy else 0)
    told = {"weights": found.weights, "optimizer_state": state}
    return {**told, "gradients": found.gradients} if optimizer.gradient_buffers else told


def _legacy_state(job: ReferenceJob, ways: Ways) -> int:
    """How many bytes more MindSpeed-Core-MS r0.1.0's optimizers hold (core/optimizer/optimizer.py, distrib_optimizer.py).

    Weights that are float32 already have no copy. Without the distributed optimizer, the moments that AdamW made in the
    number format of a narrow weight stay beside the float32 ones.
    """
    config, more = job.config, 0
    for weight in stage_weights(config, job.stage):
        parts = ways.expert_shards if weight.experts else ways.shards
        if weight.dtype is DType.FLOAT32 and config.optimizer.distributed:
            more -= -(-weight.size // parts) * DType.FLOAT32.bytes
        elif weight.dtype is DType.FLOAT32 and config.precision.mixed:
            more -= weight.size * DType.FLOAT32.bytes
        elif config.precision.mixed and not config.optimizer.distributed:
            more += _MOMENTS * weight.size * weight.dtype.bytes
    return more


def beside_theory(theory: Mapping[str, int], contents: Mapping[Content, int]) -> tuple[BesideTheory, ...]:
    """Theory and measurement side by side; empty where theory tells nothing.

    Args:
        theory: Bytes by content, as they should be.
        contents: Bytes by content at the peak.
    """
    measured = {content.value: size for content, size in contents.items()}
    return tuple(BesideTheory(content, measured.get(content, 0), expected) for content, expected in theory.items())


def unlike_theory(pairs: Iterable[BesideTheory]) -> Iterator[Message]:
    """What was measured otherwise than it should be: one of the two is wrong."""
    for pair in pairs:
        if not pair.agrees:
            yield msg(
                "reference.unlike-theory",
                content=msg(f"memory.content.{pair.content}"),
                measured=pair.measured,
                theory=pair.expected,
            )
