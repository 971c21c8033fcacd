"""What a rank of a Megatron program should hold for the whole run, by what the rank itself told of its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_FLOAT = 4
_MOMENTS = 2 * _FLOAT
_HALF = 2
_ADAM = "adam"
_MOST = 1 << 50  # elements, and bytes


@dataclass(frozen=True, slots=True)
class MegatronModel:
    """A rank's model and optimizer, once they were made.

    Attributes:
        weights: Bytes of its parameters.
        trained: Parameters that are trained.
        experts: Those of them that are experts', which are not the same on all data-parallel ranks.
        data: Ranks over which the optimizer's state of the others may be shared out.
        expert_data: Ranks over which that of the experts may be.
        distributed: It is shared out (``--use-distributed-optimizer``).
        float32_gradients: Gradients are kept in float32.
        mixed: Weights are not in float32, and the optimizer has a copy of them that is.
        optimizer: ``--optimizer``.
        reused: The weights are a part of that copy (``--reuse-fp32-param``).
    """

    weights: int
    trained: int
    experts: int
    data: int
    expert_data: int
    distributed: bool
    float32_gradients: bool
    mixed: bool
    optimizer: str
    reused: bool

    @classmethod
    def told(cls, facts: Mapping[str, object]) -> MegatronModel:
        """From what a process wrote.

        Raises:
            ValueError: It is not of this form, or its numbers cannot be.
            KeyError: Something is missing.
        """
        data, expert_data = (_count(facts[name]) for name in ("data", "expert_data"))
        if not data or not expert_data:
            raise ValueError(facts)
        return cls(
            weights=_count(facts["weights"]),
            trained=_count(facts["trained"]),
            experts=_count(facts["experts"]),
            data=data,
            expert_data=expert_data,
            distributed=facts["distributed"] is True,
            float32_gradients=facts["float32_gradients"] is True,
            mixed=facts["mixed"] is True,
            optimizer=str(facts["optimizer"]),
            reused=facts["reused"] is True,
        )

    def theory(self) -> dict[str, int]:
        """Bytes by content; what is not known is left out.

        In mixed precision 18 bytes a parameter: 2 and 4 for its gradient, and 12 of state, the copy in float32 and Adam's two
        moments; with the distributed optimizer 6 + 12 / ranks (Megatron-LM core_v0.12.1, ``docs/source/api-guide/dist_optimizer.md``).
        """
        each = _FLOAT if self.float32_gradients or not self.mixed else _HALF
        found = {"gradients": each * self.trained}
        if not self.reused:
            found = {"weights": self.weights, **found}
        if self.optimizer == _ADAM and not self.reused:
            state = _MOMENTS + (_FLOAT if self.mixed else 0)
            shared = self.trained
            if self.distributed:
                shared = -(-(self.trained - self.experts) // self.data) - (-self.experts // self.expert_data)
            found["optimizer_state"] = state * shared
        return found


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError(value)
    return value
