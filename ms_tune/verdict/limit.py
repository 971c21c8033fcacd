"""Determine the memory of a device that MindSpore's pool can use, and the setting or rule that limits it."""

from __future__ import annotations

from enum import Enum

from ms_tune.errors import UsageError, closest
from ms_tune.facts.devices import NO_CAP_BYTES, Chip, chips, default_chip, find_chip, free_of_card, pool_of
from ms_tune.records import Record
from ms_tune.text import Message, msg
from ms_tune.units import MIB, short_gib


class Device(Record):
    """A device and its memory."""

    card_bytes: int  # total memory; None if a log of a real run describes the device instead
    free_bytes: int  # memory that is free when MindSpore starts, or assumed to be
    name: Message  # the device's description for users
    # The largest `max_device_memory` that MindSpore accepts; None if unknown.
    heeded_bytes: int | None = None


class Cap(str, Enum):
    """The source of a ``max_device_memory``."""

    CONFIG = "config"
    FRAMEWORK = "framework"  # the framework's own default
    SCRIPT = "script"
    USER = "user"  # the command line, which is not checked against a device
    LOG = "log"  # the log of a run on a device, which granted this size


class Limit(Record):
    """The usable memory that a footprint is compared with."""

    bytes: int  # the usable memory of the pool
    device: Device  # the device
    source: Message  # the rule or setting that sets the limit

    @property
    def outside_pool_bytes(self) -> int:
        """Return the free bytes outside the pool."""
        return max(self.device.free_bytes - self.bytes, 0)


def device_of(chip: str | None = None, card_bytes: int | None = None) -> Device:
    """Return the device that the user named, or the default."""
    if chip is not None:
        found = find_chip(chip)
        if found is None:
            known = ", ".join(name for one in chips() for name in (one.name, *(other.upper() for other in one.names)))
            near = closest(chip.upper(), known.split(", "))
            hint = msg("verdict.chip.near", name=near) if near else msg("verdict.chip.hint")
            raise UsageError(msg("verdict.chip.unknown", chip=chip, known=known), hint)
        return _make_device(found, chip.upper().removeprefix("ASCEND"), "published" if found.published else "derived")
    if card_bytes is None:
        one = default_chip()
        return _make_device(one, one.name, "default")
    free = free_of_card(card_bytes)
    return Device(card_bytes, free, msg("verdict.device.size", card=short_gib(card_bytes), free=short_gib(free)))


def _make_device(chip: Chip, name: str, known_by: str) -> Device:
    sizes = {"card": short_gib(chip.card_bytes), "free": short_gib(chip.free_bytes)}
    text = msg(f"verdict.device.{known_by}", chip=name, **sizes)
    return Device(chip.card_bytes, chip.free_bytes, text, chip.heeded_bytes)


def limit_of(device: Device, cap_bytes: int | None = None, cap: Cap = Cap.CONFIG) -> Limit:
    """Return the usable memory of a device.

    MindSpore uses 15/16 of the free memory, or ``max_device_memory``, which must be below the free memory
    (AscendMemAdapter::Initialize). It ignores a value above the chip's known memory size
    (``GetDeviceMemSizeFromContext``); its default of 1024 GiB therefore means no limit. In a config, any other value that
    is too large is an error here, because the config was written for another device.
    """
    if cap_bytes is None or (cap_bytes >= NO_CAP_BYTES and cap is not Cap.USER):
        return Limit(pool_of(device.free_bytes), device, msg("verdict.limit.pool", device=device.name))
    if cap is Cap.LOG:
        return Limit(cap_bytes, device, msg("verdict.limit.log"))
    if cap is Cap.USER:
        return Limit(cap_bytes, device, msg("verdict.limit.user"))
    if cap is Cap.SCRIPT and device.heeded_bytes is not None and cap_bytes > device.heeded_bytes:
        sizes = {"cap": short_gib(cap_bytes), "heeded": short_gib(device.heeded_bytes)}
        return Limit(pool_of(device.free_bytes), device, msg("verdict.limit.unheeded", device=device.name, **sizes))
    if cap_bytes >= device.free_bytes:
        whole = pool_of(device.free_bytes) // (1024 * MIB)
        raise UsageError(
            msg(f"verdict.limit.refused.{cap.value}", cap=short_gib(cap_bytes), device=device.name),
            msg(f"verdict.limit.refused.{cap.value}.hint", size=f"{whole}GB"),
        )
    return Limit(cap_bytes, device, msg(f"verdict.limit.{cap.value}", cap=short_gib(cap_bytes), device=device.name))


def limit_of_torch(device: Device) -> Limit:
    """Return the usable memory of a device for PyTorch, whose pool grows until the device has no free memory."""
    return Limit(device.free_bytes, device, msg("verdict.limit.torch", device=device.name))
