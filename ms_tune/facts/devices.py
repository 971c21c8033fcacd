"""Look up devices (``data/devices.json``): their free memory, MindSpore's share of it, and their peak speed."""

from __future__ import annotations

from functools import cache

from ms_tune.facts.query import load
from ms_tune.records import Record
from ms_tune.units import GIB, MIB

NO_CAP_BYTES = 1024 * GIB  # MindSpore's default for max_device_memory


class Chip(Record):
    """A device type, known by name."""

    name: str  # the name in ms-tune
    names: tuple[str, ...]  # other names
    card_bytes: int  # memory as sold
    free_bytes: int  # memory that is free when MindSpore starts
    published: bool  # whether `free_bytes` was published; otherwise it is derived
    heeded_bytes: int  # the largest `max_device_memory` that MindSpore respects


@cache
def chips() -> tuple[Chip, ...]:
    """Return all known device types."""
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


def find_chip(text: str) -> Chip | None:
    """Return the chip named ``910B2``, ``Ascend910B2`` or ``910b2``; None for an unknown name."""
    wanted = text.lower().removeprefix("ascend").strip()
    return next((chip for chip in chips() if wanted in (chip.name.lower(), *chip.names)), None)


class Peak(Record):
    """The peak speed of a device type."""

    name: str  # the name in ms-tune
    names: tuple[str, ...]  # other names
    tflops: float  # 10^12 16-bit floating-point operations per second, on dense matrices
    basis: str  # `published` by its maker, `derived` from cores and clock, or `reported` without a data sheet
    maker: str = "ascend"  # or `nvidia`, `amd`


@cache
def peaks() -> tuple[Peak, ...]:
    """Return all known peaks."""
    return tuple(
        Peak(name, tuple(one["names"]), float(one["tflops"]), one["basis"], one.get("maker", "ascend"))
        for name, one in load("devices")["peaks"].items()
    )


def find_peak(text: str) -> Peak | None:
    """Return the peak of ``Ascend910B2``, ``910b2`` or ``NVIDIA A100-SXM4``; None for unknown names and families of peaks."""
    wanted = text.lower().removeprefix("ascend").removeprefix("nvidia").removeprefix("amd instinct").strip()
    wanted = wanted if wanted.startswith("910") else wanted.replace("-", "").replace(" ", "").replace("_", "")
    return next((peak for peak in peaks() if wanted in (peak.name.lower().replace("-", ""), *peak.names)), None)


DEFAULT_SPEED = "910B2"  # of the family 910B, MindSpore's usual device


class Speed(Record):
    """The machine that a step runs on: a device and its links. GB are 10^9 bytes, and rates are those of one direction."""

    name: str  # of the device, or of the user's file
    tflops: float  # as in :class:`Peak`
    memory_gbs: float
    link_gbs: float  # all links of a device inside its node
    node: int  # devices of a node
    between_gbs: float  # adapter of a device to other nodes
    mesh: bool  # each pair of a node's devices has a link of its own, which others cannot use
    # Fractions of these rates that are reached, fitted to published runs (`benchmarks/step_time.py`).
    matmul: float
    attention: float  # flash attention
    memory: float
    link: float
    between: float
    fused: float  # of TP communication that is hidden where it runs next to matrix products
    launch_us: float  # of the shortest operator
    hop_us: float  # latency of a collective, for each doubling of its ranks
    like: str  # device whose runs these fractions were fitted to
    error: (
        float  # median error of predicted steps of that device, on published runs that the fractions were not fitted to
    )


@cache
def find_speed(text: str) -> Speed | None:
    """Return the speed of a device with known links, by the names of :func:`find_peak`; None for others."""
    peak, data = find_peak(text), load("devices")
    links = None if peak is None else data["peaks"][peak.name].get("links")
    if peak is None or links is None:
        return None
    known = {name: links.get(name, False) for name in ("memory_gbs", "link_gbs", "node", "between_gbs", "mesh", "like")}
    return Speed(name=peak.name, tflops=peak.tflops, **known, **data["reached"][links["like"]])


def fastest_peak(*, ascend: bool = True) -> float:
    """Return the highest peak of the Ascend devices, or of all known ones, in TFLOP/s."""
    return max(peak.tflops for peak in peaks() if not ascend or peak.maker == "ascend")


def default_chip() -> Chip:
    """Return the chip to assume if the user names none."""
    name = load("devices")["default"]
    return next(chip for chip in chips() if chip.name == name)


def free_of_card(card_bytes: int) -> int:
    """Return the bytes assumed to be free on a device sold with this much memory.

    For a known size it is the least among the known devices of this size. For any other it is the smallest known share, but at
    least the free memory of each smaller known device.
    """
    known: dict[int, int] = {}
    for chip in chips():
        known[chip.card_bytes] = min(chip.free_bytes, known.get(chip.card_bytes, chip.free_bytes))
    if card_bytes in known:
        return known[card_bytes]
    percent: int = load("devices")["small_percent"]
    return max([card_bytes * percent // 100, *(free for card, free in known.items() if card < card_bytes)])


def pool_of(free_bytes: int) -> int:
    """Return the bytes that MindSpore reserves for its memory pool, given the free bytes, if ``max_device_memory`` is not set.

    It leaves 1/16 to others, rounds the rest down to 2 MiB, and keeps back 10 MiB more.
    """
    rule = load("devices")["pool"]
    part, whole = rule["parts"]
    granule = rule["granule_mib"] * MIB
    taken: int = free_bytes * part // whole // granule * granule - rule["kept_mib"] * MIB
    return max(taken, 0)


def communicator_bytes(buffer_mib: int | None = None) -> int:
    """Return the bytes that HCCL allocates per communicator; ``buffer_mib`` is ``HCCL_BUFFSIZE`` in MiB, if set."""
    rule = load("devices")["communicator"]
    return int(rule["buffers"] * (buffer_mib or rule["buffer_mib"]) * MIB)


def workspace_bytes(*, torch: bool = False) -> int:
    """Return the largest published difference between a real footprint and its simulation, due to kernel workspaces."""
    return int(max(load("devices")["torch_workspace" if torch else "workspace"]["footprint_mib"]) * MIB)
