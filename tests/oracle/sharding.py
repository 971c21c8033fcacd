"""Count the bytes of sharded weights and their gradients at every event of a step, by hand.

Follows HyperParallel's public sources at 019ed966 (``core/fully_shard/hsdp_scheduler.py``, ``hsdp_state.py``,
``platform/mindspore/fully_shard/state.py``, ``param.py``, ``param_group.py``, ``core/pipeline_parallel/scheduler.py``)
and how MindFormers 2.1 calls them (``apply_fsdp``). It shares no code with the reference transformer: a second
implementation of the same rules, with numbers instead of tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_FLOAT32 = 4


@dataclass(frozen=True)
class Wrapped:
    """The weights that one call of ``fully_shard`` wraps.

    Attributes:
        elements: Number of elements of all weights, unsharded.
        width: Bytes per element.
        reshards: ``reshard_after_forward``.
        fetches: Names of units that it gathers in advance in the forward pass (``set_modules_to_forward_prefetch``).
        fetches_back: The same in the backward pass.
        at_the_end: Whether no gradient passes through it: its reduction waits for the final callback.
    """

    name: str
    elements: int
    width: int
    reshards: bool
    fetches: tuple[str, ...] = ()
    fetches_back: tuple[str, ...] = ()
    at_the_end: bool = False


@dataclass
class Ledger:
    """The bytes in memory.

    Attributes:
        ways: The number of ranks that shard a weight.
        copies: The number of ranks with the same part.
    """

    units: dict[str, Wrapped]
    ways: int
    copies: int = 1
    whole: set[str] = field(default_factory=set)
    gradients: dict[str, int] = field(default_factory=dict)  # unsharded_param.grad, unsharded_accumulated_grad
    sums: dict[str, int] = field(default_factory=dict)  # sharded_param.main_grad
    scattering: dict[str, int] = field(default_factory=dict)  # _reduce_scatter_output
    casts: dict[str, int] = field(default_factory=dict)  # grad.to(reduce_dtype): another stream reads it
    filling: dict[str, int] = field(default_factory=dict)  # pre_all_reduce_groups
    adding: dict[str, int] = field(default_factory=dict)  # pending_all_reduce_groups

    @property
    def bytes(self) -> int:
        """Return the total bytes."""
        gathered = sum(self.units[name].elements * self.units[name].width for name in self.whole)
        held = (self.gradients, self.casts, self.sums, self.scattering, self.filling, self.adding)
        return gathered + sum(sum(part.values()) for part in held)

    def cast(self, name: str) -> int:
        """Return the bytes of the float32 copy of a unit's gradients; 0 if they are float32 already."""
        return 0 if self.units[name].width == _FLOAT32 else self.units[name].elements * _FLOAT32

    def part(self, name: str) -> int:
        """Return the bytes of one rank's part of a gradient."""
        return self.units[name].elements // self.ways * _FLOAT32

    def gather(self, unit: Wrapped) -> None:
        """Gather before a unit's backward pass; wait for weights that were not gathered in advance, and for pending reductions."""
        if unit.name not in self.whole:
            self.casts = {}
        self.whole |= {unit.name, *unit.fetches_back}

    def post_backward(self, name: str, *, last: bool) -> None:
        """Handle the complete gradients of a unit; those of the previous unit have arrived by now."""
        filled, self.filling = self.filling, {}
        for other in filled:
            del self.gradients[other]
            self.casts.pop(other, None)
        self.arrive()
        self.casts[name] = self.cast(name)
        if last and self.copies > 1:
            self.filling[name] = self.part(name)
        else:
            self.scattering[name] = self.part(name)
        self.add(filled)
        self.whole.discard(name)

    def arrive(self) -> None:
        """Finish reduce-scatters: the first part of a step is the sum, later ones are added."""
        for name, size in self.scattering.items():
            self.sums[name] = size
            self.gradients.pop(name, None)
            self.casts.pop(name, None)
        self.scattering = {}

    def add(self, filled: dict[str, int]) -> None:
        """Add up the copies of all ranks: the sum so far goes into the buffer."""
        for name, size in filled.items():
            self.sums.pop(name, None)
            self.adding[name] = size

    def end_of_backward(self) -> None:
        """Wait for everything in the final callback."""
        filled, self.filling = self.filling, {}
        for name in filled:
            self.gradients.pop(name, None)
            self.casts.pop(name, None)
        self.add(filled)
        self.arrive()
        self.sums |= self.adding
        self.adding = {}


def step(units: Sequence[Wrapped], ways: int, copies: int, micro_batches: int) -> Iterator[tuple[str, str, int]]:
    """Yield event, unit and bytes of a step without a pipeline."""
    named = {unit.name: unit for unit in units}
    ledger = Ledger(named, ways, copies)
    for number in range(micro_batches):
        for unit in units:
            ledger.whole |= {unit.name, *unit.fetches}
            yield "forward", unit.name, ledger.bytes
            if unit.reshards:
                ledger.whole.discard(unit.name)
        for unit in _backwards(units):
            ledger.gather(unit)
            ledger.gradients[unit.name] = unit.elements * unit.width
            yield "gradients", unit.name, ledger.bytes
            ledger.post_backward(unit.name, last=number == micro_batches - 1)
            yield "behind", unit.name, ledger.bytes
        ledger.end_of_backward()
    yield "update", "", ledger.bytes


def pipeline_step(
    units: Sequence[Wrapped], ways: int, passes: Sequence[tuple[bool, bool]]
) -> Iterator[tuple[str, str, int]]:
    """Yield the same in a pipeline of one chunk; ``passes``: whether each one is forward, and whether it is the last one."""
    ledger = Ledger({unit.name: unit for unit in units}, ways, whole={unit.name for unit in units})
    for forward, last in passes:
        for unit in units if forward else _backwards(units):
            if forward:
                yield "forward", unit.name, ledger.bytes
                continue
            before = ledger.gradients.get(unit.name, 0)
            ledger.gradients[unit.name] = before + unit.elements * unit.width
            yield "gradients", unit.name, ledger.bytes
            ledger.gradients[unit.name] = unit.elements * _FLOAT32
            yield "behind", unit.name, ledger.bytes
        if last and not forward:
            for unit in units:
                ledger.post_backward(unit.name, last=True)
            ledger.end_of_backward()
    yield "update", "", ledger.bytes


def _backwards(units: Sequence[Wrapped]) -> list[Wrapped]:
    """Return the units in the order in which their gradients are complete."""
    return [
        *(unit for unit in reversed(units) if not unit.at_the_end),
        *(unit for unit in units if unit.at_the_end),
    ]
