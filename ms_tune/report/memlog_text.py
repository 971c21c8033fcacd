"""The result of ``ms-tune memory import-memlog``, in the terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.report import packing_text as placement
from ms_tune.report.packing_text import amount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.memory.plan import PlanReport, StallocPlan
    from ms_tune.pools.memlog import MemLogReport, SizeShare
    from ms_tune.readers.memlog import MemLog
    from ms_tune.report.console import Console


def to_json(log: MemLog, analysis: MemLogReport, plan: PlanReport, served: StallocPlan | None) -> dict[str, object]:
    """The report of ``--json``."""
    return {
        "allocations": len(log.blocks),
        "iterations": log.iterations,
        "micro_batches": log.micro_batches,
        "layers": len(log.layers),
        "missing": missing(log),
        "theoretical_peak_bytes": analysis.peak,
        "theoretical_peak_event": analysis.peak_time,
        "parts": {
            name: {"blocks": share.blocks, "at_peak_bytes": share.at_peak, "own_peak_bytes": share.own_peak}
            for name, share in _shares(analysis)
        },
        "torch": {
            "allocated_bytes": analysis.torch_allocated,
            "reserved_bytes": analysis.torch_reserved,
            "utilisation": analysis.torch_utilisation,
        },
        "plan": placement.to_json(plan),
        "stalloc_plan": None if served is None else _served_json(served),
    }


def _shares(analysis: MemLogReport) -> Iterator[tuple[str, SizeShare]]:
    """Each kind of block, then all activations together."""
    yield from ((share.kind.value, share) for share in analysis.shares)
    yield "activations", analysis.activations


def _served_json(served: StallocPlan) -> dict[str, object]:
    blocks = served.blocks
    return {
        "reserved_bytes": served.plan.plan.height,
        "lower_bound_bytes": served.plan.plan.lower_bound,
        "allocations": len(blocks.sizes),
        "once": blocks.once,
        "without_place": len(blocks.sizes) - len(blocks.planned),
        "later_allocations": blocks.later,
        "later_of_other_size": blocks.other,
    }


def stalloc_files(served: StallocPlan, device: int) -> dict[str, str]:
    """The files that STAlloc's allocator reads, by their paths below ``STALLOC_MODEL_INFO_PATH``.

    ``init_static_allocator`` and ``init_reuse_intervals`` of ``Allocator/main.cpp``: the blocks that PyTorch's allocator is to
    have (none), sizes and counts, then offset and size of each allocation; and that no layer is placed while the training runs.
    """
    blocks, offsets = served.blocks, [-1] * len(served.blocks.sizes)
    for number, address in zip(blocks.planned, served.plan.plan.address.tolist(), strict=True):
        offsets[number] = address
    head = (blocks.allocated, served.plan.plan.height, blocks.once, len(blocks.sizes) - blocks.once, blocks.small)
    rows = "".join(f"{offset} {size}\n" for offset, size in zip(offsets, blocks.sizes, strict=True))
    layers = f"output/activations_memlog/dynamic_intervals/dev{device}"
    return {
        f"output/plan/dev_{device}.txt": f"\n{' '.join(map(str, head))}\n{rows}",
        f"{layers}_cross_interval_spare_addr.txt": "0 0\n",
        f"{layers}_intra_interval_spare_addr.txt": "",
    }


def missing(log: MemLog) -> list[str]:
    """The kinds of marks that the trace lacks, without which blocks cannot be told apart."""
    counts = {"iteration": log.iterations, "micro-batch": log.micro_batches, "layer": len(log.layers)}
    return [name for name, count in counts.items() if not count]


def show(log: MemLog, analysis: MemLogReport, plan: PlanReport, served: StallocPlan | None, console: Console) -> None:
    """What was traced, the peak and its parts, PyTorch's allocator, the plan."""
    counts = {"blocks": len(log.blocks), "layers": len(log.layers)}
    counts |= {"iterations": log.iterations, "micro_batches": log.micro_batches}
    console.write(console.text("memlog.show.trace", **{name: f"{count:,}" for name, count in counts.items()}))
    for name in missing(log):
        console.write(console.text(f"memlog.missing.{name}"))
    console.write(console.labelled(console.text("memlog.show.peak"), amount(analysis.peak)))
    heads = [console.text(f"memlog.column.{column}") for column in ("kind", "blocks", "at-peak", "own-peak")]
    rows = [
        (console.text(f"memlog.kind.{name}"), f"{share.blocks:,}", amount(share.at_peak), amount(share.own_peak))
        for name, share in _shares(analysis)
    ]
    console.write("")
    console.write_table(heads, rows, right=range(1, len(heads)))
    console.write("")
    torch = {"allocated": amount(analysis.torch_allocated), "reserved": amount(analysis.torch_reserved)}
    console.write(console.text("memlog.show.torch", utilisation=f"{analysis.torch_utilisation:.2%}", **torch))
    console.write(console.text("memlog.show.note"))
    console.write("")
    console.write(console.text("memlog.show.plan"))
    placement.show_plan(plan, console)
    if served is not None:
        blocks = served.blocks
        counts = {"rows": len(blocks.sizes), "left": len(blocks.sizes) - len(blocks.planned)}
        counts |= {"later": blocks.later, "other": blocks.other}
        told = {name: f"{count:,}" for name, count in counts.items()}
        console.write("")
        console.write(console.text("memlog.show.stalloc", reserved=amount(served.plan.plan.height), **told))
