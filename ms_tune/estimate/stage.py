"""What the stages of a job hold by closed forms, and what that allows to say: that a job cannot fit, never that it does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.estimate.activations import Activations
    from ms_tune.verdict.limit import Limit

# Highest peaks of dryruns beside such estimates of the same jobs, as docs/check.md has them; a little is added to both ends.
_LOWEST, _HIGHEST, _HIGHEST_WITH_EXPERTS = 0.95, 1.5, 2.5


class Outlook(str, Enum):
    """What an estimate allows to say; it never says that a job fits."""

    OVER = "over"  # more than the limit by the estimate, which was never seen to be far too high
    UNSURE = "unsure"
    BELOW = "below"  # below the limit by more than estimates were seen to be too low


@dataclass(frozen=True, slots=True)
class StageEstimate:
    """What a stage holds at its peak."""

    stage: int
    layers: int
    recomputed: int  # those of them that are recomputed in full
    lasting_bytes: int  # weights, gradients and optimizer state
    activation_bytes: int  # what layers keep of the micro-batches in flight
    transient_bytes: int  # the layer that is recomputed, or the logits

    @property
    def peak_bytes(self) -> int:
        """All of it."""
        return self.lasting_bytes + self.activation_bytes + self.transient_bytes


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the stages of a job hold."""

    stages: tuple[StageEstimate, ...]  # the stages, in order
    limit: Limit  # what a stage may take
    reserve_bytes: int  # what is set aside of it
    experts: bool = False  # whether its layers have experts, of whose buffers nothing is known

    @property
    def fullest(self) -> StageEstimate:
        """The stage that holds most."""
        return max(self.stages, key=lambda one: one.peak_bytes)

    @property
    def room_bytes(self) -> int:
        """What a stage's peak may be."""
        return self.limit.bytes - self.reserve_bytes

    @property
    def seen(self) -> tuple[float, float]:
        """How many times as much simulated peaks of such jobs were, the least and the most."""
        return _LOWEST, _HIGHEST_WITH_EXPERTS if self.experts else _HIGHEST

    @property
    def outlook(self) -> Outlook:
        """What can be said of the job."""
        (low, high), peak = self.seen, self.fullest.peak_bytes
        if peak * low > self.limit.bytes or self.fullest.lasting_bytes > self.limit.bytes:
            return Outlook.OVER
        return Outlook.BELOW if peak * high < self.room_bytes else Outlook.UNSURE


@dataclass(frozen=True, slots=True)
class HeldLayers:
    """Layers of a stage that are alike."""

    activations: Activations  # what one of them keeps of a micro-batch
    in_flight: int  # Micro-batches that it holds when the stage holds most
    full: bool  # each is recomputed in full
    count: int = 1  # how many there are


def stage_estimate(number: int, layers: int, lasting: int, held: Iterable[HeldLayers], logits: int) -> StageEstimate:
    """What a stage holds: for the whole run, of the micro-batches in flight, and while a layer or the loss is worked out.

    Args:
        number: The stage.
        layers: Its layers, as users count them.
        lasting: Bytes of weights, gradients and optimizer state.
        held: All of its layers.
        logits: Bytes that the loss holds on the last stage; 0 elsewhere.
    """
    kept = again = recomputed = 0
    for one in held:
        kept += one.count * one.in_flight * (one.activations.full if one.full else one.activations.none)
        again = max(again, one.activations.none if one.full else 0)
        recomputed += one.count if one.full else 0
    return StageEstimate(number, layers, recomputed, lasting, kept, max(again, logits))
