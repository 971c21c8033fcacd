"""Generate traces of STAlloc by its grammar, as no real one is public."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass
class Writer:
    """A writer of lines with its own account of every block, as (size, kind, begin, end)."""

    lines: list[str] = field(default_factory=list)
    events: int = 0
    blocks: dict[int, list[object]] = field(default_factory=dict)
    _next: int = 0x7F0000000000

    def mark(self, line: str) -> None:
        self.lines.append(line)

    def allocate(self, size: int, kind: str) -> int:
        pointer, self._next = self._next, self._next + 1024 + size
        self.lines.append(f"1 {pointer:#x} {size} 0")
        self.blocks[pointer] = [size, kind, self.events, None]
        self.events += 1
        return pointer

    def release(self, pointer: int) -> None:
        self.lines.append(f"0 {pointer:#x} {self.blocks[pointer][0]} 0x55d0")
        self.blocks[pointer][3] = self.events
        self.events += 1

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def training(seed: int, *, layers: int = 3, micro_batches: int = 2, iterations: int = 3) -> Writer:
    """Write a training with weights, optimizer state, activations, recurring buffers, small blocks and leftovers."""
    choose = random.Random(seed)  # noqa: S311 - not for secrets

    def size() -> int:
        return choose.randint(513, 1 << 20)

    log = Writer()
    weights = [log.allocate(size(), "weights") for _ in range(layers * 2)]
    early = log.allocate(size(), "init")
    log.allocate(choose.randint(1, 512), "small")
    log.release(early)
    leftover = log.allocate(size(), "unreleased")
    state: list[int] = []
    crossing: list[int] = []
    for iteration in range(iterations):
        log.mark(f"Iteration Index : {iteration}")
        for pointer in crossing:
            log.release(pointer)
        saved: list[list[int]] = []
        for _ in range(micro_batches):
            log.mark("micro-batch : F")
            saved.append([])
            for layer in range(layers):
                name = f"decoder.layers.{layer}.mlp->ParallelMLP Layer : F"
                log.mark(f"{name}-start")
                temporary = log.allocate(size(), "temporary")
                saved[-1].append(log.allocate(size(), "saved"))
                log.release(temporary)
                log.mark(f"{name}-end")
        for kept in reversed(saved):
            log.mark("micro-batch : B")
            for pointer in reversed(kept):
                temporary = log.allocate(size(), "temporary")
                log.release(pointer)
                log.release(temporary)
        if iteration == 0:
            log.release(leftover)
            state = [log.allocate(size(), "optimizer") for _ in range(layers)]
        crossing = [log.allocate(size(), "saved")] if iteration + 1 < iterations else []
    log.mark("Iteration Index : end")
    for pointer in [*weights, *state[:1]]:
        log.release(pointer)
    return log
