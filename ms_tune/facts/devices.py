"""The devices that there are facts about (``data/devices.json``): what they leave free, and what MindSpore takes of it."""

from __future__ import annotations

from functools import cache

from ms_tune.facts.query import load
from ms_tune.records import Record
from ms_tune.units import GIB, MIB

NO_CAP_BYTES = 1024 * GIB  # MindSpore's max_device_memory where nobody sets one


class Chip(Record):
    """A device by name."""

    name: str  # what ms-tune calls it
    names: tuple[str, ...]  # what else it is called
    card_bytes: int  # memory as sold
    free_bytes: int  # memory that is free when MindSpore starts
    published: bool  # whether somebody published what is left; otherwise it is derived
    heeded_bytes: int  # the largest `max_device_memory` that MindSpore takes notice of


@cache
def chips() -> tuple[Chip, ...]:
    """All that are known."""
    return tuple(
        Chip(
            name=name,
            names=tuple(one["names"]),
            card_bytes=one["card_gib"] * GIB,
            free_bytes=one["free_mib"] * MIB,
            published=one["published"],
            heeded_bytes=one["heeded_gib"] * GIB,
        )
        for name, one in load("devices")["chips"].items()
    )


def chip_named(text: str) -> Chip | None:
    """``910B2``, ``Ascend910B2`` or ``910b2`` as a chip; None if there are no facts about it."""
    wanted = text.lower().removeprefix("ascend").strip()
    return next((chip for chip in chips() if wanted in (chip.name.lower(), *chip.names)), None)


class Peak(Record):
    """How fast a device is at most."""

    name: str  # what ms-tune calls it
    names: tuple[str, ...]  # what else it is called
    tflops: float  # 10^12 floating-point operations of 16 bits a second, on matrices without zeros left out
    basis: str  # `published` by its maker, `derived` from its cores and their clock, or `reported` without a data sheet


@cache
def peaks() -> tuple[Peak, ...]:
    """All that are known."""
    return tuple(
        Peak(name, tuple(one["names"]), float(one["tflops"]), one["basis"])
        for name, one in load("devices")["peaks"].items()
    )


def peak_named(text: str) -> Peak | None:
    """The peak of ``910B2``, ``Ascend910B2`` or ``910b2``; None for others, and for a family of several peaks."""
    wanted = text.lower().removeprefix("ascend").strip()
    return next((peak for peak in peaks() if wanted in (peak.name.lower(), *peak.names)), None)


def fastest_peak() -> float:
    """TFLOP/s that no device exceeds that is known."""
    return max(peak.tflops for peak in peaks())


def default_chip() -> Chip:
    """What stands in where nobody names one."""
    name = load("devices")["default"]
    return next(chip for chip in chips() if chip.name == name)


def free_of_card(card_bytes: int) -> int:
    """Bytes that are assumed free on a card with so much memory as sold.

    A size that a known card has is that card with the least left; any other leaves the smallest share that is known of
    any card, and never less than a smaller card that is known.
    """
    known: dict[int, int] = {}
    for chip in chips():
        known[chip.card_bytes] = min(chip.free_bytes, known.get(chip.card_bytes, chip.free_bytes))
    if card_bytes in known:
        return known[card_bytes]
    percent: int = load("devices")["small_percent"]
    return max([card_bytes * percent // 100, *(free for card, free in known.items() if card < card_bytes)])


def pool_of(free_bytes: int) -> int:
    """Bytes that MindSpore takes for its pool where so many are free, and nobody sets ``max_device_memory``.

    A sixteenth is left to others, the rest is rounded down to 2 MiB, and 10 MiB more are kept back.
    """
    rule = load("devices")["pool"]
    part, whole = rule["parts"]
    granule = rule["granule_mib"] * MIB
    taken: int = free_bytes * part // whole // granule * granule - rule["kept_mib"] * MIB
    return max(taken, 0)


def communicator_bytes(buffer_mib: int | None = None) -> int:
    """Bytes that HCCL takes for one communicator, with ``HCCL_BUFFSIZE`` in MiB if it is set."""
    rule = load("devices")["communicator"]
    return int(rule["buffers"] * (buffer_mib or rule["buffer_mib"]) * MIB)


def workspace_bytes() -> int:
    """The most that a real footprint was published to be above its simulation: workspaces of kernels."""
    return int(max(load("devices")["workspace"]["footprint_mib"]) * MIB)
