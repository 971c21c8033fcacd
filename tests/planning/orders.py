"""Define orders of passes independently, step by step from each framework's own counting, as the oracle of the tests."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

Step = tuple[bool, int, int]  # forward, chunk, micro-batch


def hyper_parallel(stage: int, stages: int, chunks: int, count: int) -> list[Step]:
    """Return the order, operation by operation: ``forward_stage_index``, ``backward_stage_index`` and a count per chunk."""
    rounds = max(1, count // stages)
    # With fewer micro-batches than stages, the only round has as many passes as micro-batches.
    base, rest = (count - stages, 0) if count < stages else divmod(count % stages, rounds)
    sizes = [stages + base + (1 if number < rest else 0) for number in range(rounds)]
    starts = [0, *accumulate(size * chunks for size in sizes)]
    seen: Counter[tuple[bool, int]] = Counter()

    def take(number: int, *, forward: bool) -> Step:
        own = max(place for place, start in enumerate(starts[:-1]) if start <= number)
        chunk = (number - starts[own]) // sizes[own]
        chunk = chunk if forward else chunks - 1 - chunk
        seen[forward, chunk] += 1
        return forward, chunk, seen[forward, chunk] - 1

    total = chunks * count
    warm_up = min((chunks - 1) * sizes[0] + 2 * (stages - 1 - stage), total)
    order = [take(number, forward=True) for number in range(warm_up)]
    for number in range(total - warm_up):
        order += [take(warm_up + number, forward=True), take(number, forward=False)]
    return order + [take(number, forward=False) for number in range(total - warm_up, total)]


def mindspore(stage: int, stages: int, chunks: int, count: int, *, less_memory: bool) -> list[Step]:
    """Return the order by the comparison of ``SortFuncBetweenMicro``, with the ``bias_`` of both ways to reorder."""
    offset = count % stages

    def loop(micro: int) -> int:
        return 0 if micro // (stages + offset) == 0 else (micro - offset) // stages

    everything = [(chunk, micro) for chunk in range(chunks) for micro in range(count)]
    forward = sorted(everything, key=lambda one: (loop(one[1]), one[0], one[1]))
    backward = sorted(everything, key=lambda one: (loop(one[1]), -one[0], one[1]))
    bias = (stages + offset) * (chunks - 1) + (stages - stage - 1) * (1 if less_memory else 2)
    order: list[Step] = []
    for index, (chunk, micro) in enumerate(forward):
        order.append((True, chunk, micro))
        if index >= bias:
            order.append((False, *backward[index - bias]))
    done = sum(not one[0] for one in order)
    return order + [(False, *one) for one in backward[done:]]


def megatron(stage: int, stages: int, chunks: int, count: int, *, full_warm_up: bool) -> list[Step]:
    """Return the order by ``get_model_chunk_id`` and ``get_microbatch_id_in_model_chunk`` of Megatron-LM, for full groups."""

    def place(number: int, *, forward: bool) -> Step:
        inside = number % (stages * chunks)
        chunk = inside // stages
        micro = number // (stages * chunks) * stages + number % stages
        return forward, chunk if forward else chunks - chunk - 1, micro

    total = chunks * count
    warm_up = (stages - stage - 1) * 2 + (chunks - 1) * stages if chunks > 1 else stages - stage - 1
    if full_warm_up and chunks > 1 and count == stages:
        warm_up = total
    warm_up = min(warm_up, total)
    order = [place(number, forward=True) for number in range(warm_up)]
    for number in range(warm_up, total):
        order += [place(number, forward=True), place(number - warm_up, forward=False)]
    return order + [place(number, forward=False) for number in range(total - warm_up, total)]


def one_chunk(stage: int, stages: int, count: int) -> list[Step]:
    """Return 1F1B: a forward pass whenever fewer micro-batches are in flight than there are stages from here on."""
    order: list[Step] = []
    forward = backward = 0
    while backward < count:
        if forward < count and forward - backward < stages - stage:
            order.append((True, 0, forward))
            forward += 1
        else:
            order.append((False, 0, backward))
            backward += 1
    return order
