"""Look up the causes of slow steps on Ascend devices (``data/profile_causes.json``): host activities, kernels, thresholds."""

from __future__ import annotations

import re
from functools import cache

from ms_tune.facts.query import load
from ms_tune.records import Record

_CONVERTS = "(?:(?:Cast|TransData|Transpose|TensorMove|Identity|ViewCopy|AsStrided|Slice|StridedSlice|Split) ){0,2}"


class Activity(Record):
    """An activity of the host other than launching kernels."""

    cause: str
    names: re.Pattern[str]  # of its events
    idle_after: bool  # whether the idle time after it counts too


@cache
def activities() -> tuple[Activity, ...]:
    """Return the activities of the host, in the order in which they are looked for."""
    return tuple(
        Activity(one["cause"], re.compile(one["names"]), one.get("after", False))
        for one in load("profile_causes")["activities"]
    )


@cache
def kernel_kind(name: str) -> str:
    """Return the kind of a kernel's type: `input`, `conversion`, `cube`, or an empty text."""
    return next((kind for kind, types in _kinds() if types.search(name)), "")


@cache
def _kinds() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((kind, re.compile(one["types"])) for kind, one in load("profile_causes")["kernels"].items())


@cache
def sequences() -> tuple[tuple[str, re.Pattern[str], float], ...]:
    """Return the sequences that one fused operator replaces.

    Each has a name, a pattern of types with a space after each, and the microseconds of its kernels on average from which
    it counts: many small kernels of any type are launched too slowly, rather than not fused.
    """
    return tuple(
        (one["name"], re.compile(r"(?<!\S)" + one["types"].replace("~", _CONVERTS)), float(one.get("least_us", 0)))
        for one in load("profile_causes")["sequences"]
    )


def limit(name: str, kind: str = "") -> float:
    """Return a threshold, for a kind of link if it has one."""
    value = load("profile_causes")["limits"][name]["value"]
    if isinstance(value, dict):
        value = value[kind if kind in value else ""]
    return float(value)


def least_share(cause: str) -> float:
    """Return the share of a step from which a cause is named."""
    shares = load("profile_causes")["least"]
    return float(shares.get(cause, shares[""]))


def unknown_share(kind: str) -> float:
    """Return the share of a step from which a cause should be known."""
    return float(load("profile_causes")["unknown"][kind])
