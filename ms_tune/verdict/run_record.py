"""What a simulated run keeps for later, so that every command gives the verdict that ``dryrun`` gave (``judged.json``)."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ms_tune.text import Message, msg
from ms_tune.verdict.limit import Cap
from ms_tune.verdict.outcome import Need, Outside

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FILE = "judged.json"
OWN = "."  # the run's own folder, in ``Kept.doubts``
_VERSION = 1
_DEEPEST = 3  # messages in a message


@dataclass(frozen=True, slots=True)
class Whole:
    """A stage that was derived from runs with fewer layers."""

    layers: int
    run_layers: int  # layers of the run whose trace is there
    need: Need | None  # what it needs; None if it was not derived


@dataclass(frozen=True, slots=True)
class KeptRank:
    """What is known of one rank beside its trace: see :class:`~ms_tune.verdict.outcome.Outside`."""

    cap_bytes: int | None = None  # `max_device_memory`; None where nothing sets it
    cap: Cap = Cap.CONFIG  # what sets it
    outside: Outside = field(default_factory=Outside)  # what no trace shows
    whole: Whole | None = None  # the stage that the verdict is about, where the run has fewer layers


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What is known of a run."""

    chip: str | None = None  # the chip that the user named
    card_bytes: int | None = None  # the memory that the user named
    outside: Outside = field(default_factory=Outside)  # what no trace shows, of ranks that are not named
    ranks: Mapping[str, KeptRank] = field(default_factory=dict)  # by the folder of a rank
    # Why there is no verdict about the traces in a folder and below it; `.` is the run's own.
    doubts: Mapping[str, Message] = field(default_factory=dict)
    # `max_device_memory` of the programs that wrote the traces in a folder and below it, in bytes.
    asked: Mapping[str, int] = field(default_factory=dict)

    def doubt_about(self, names: Iterable[str]) -> Message | None:
        """Why there is no verdict about a trace; None where nothing speaks against one.

        Args:
            names: The folders that it is in, below the run's own.
        """
        return next((self.doubts[name] for name in (*names, OWN) if name in self.doubts), None)


def to_json(kept: RunRecord) -> dict[str, object]:
    """What is written to the file."""
    return {
        "version": _VERSION,
        "chip": kept.chip,
        "device_memory": kept.card_bytes,
        **_outside_json(kept.outside),
        "ranks": {name: _rank_json(rank) for name, rank in kept.ranks.items()},
        "no_verdict": {name: _message_json(doubt) for name, doubt in kept.doubts.items()},
        "asked": dict(kept.asked),
    }


def _message_json(message: Message) -> dict[str, object]:
    return {
        "id": message.id,
        "params": {
            name: _message_json(value) if isinstance(value, Message) else value if type(value) is int else str(value)
            for name, value in message.params.items()
        },
    }


def _rank_json(rank: KeptRank) -> dict[str, object]:
    whole = rank.whole
    return {
        "max_device_memory": rank.cap_bytes,
        "max_device_memory_by": rank.cap.value,
        **_outside_json(rank.outside),
        "whole": None
        if whole is None
        else {
            "layers": whole.layers,
            "run_layers": whole.run_layers,
            "peak": None if whole.need is None else whole.need.peak_bytes,
            "footprint": None if whole.need is None else whole.need.footprint_bytes,
            "least_footprint": None if whole.need is None else whole.need.least_footprint_bytes,
        },
    }


def _outside_json(outside: Outside) -> dict[str, object]:
    return {
        "simulated": outside.simulated,
        "workspaces_traced": outside.workspaces_traced,
        "communicators": outside.communicators,
        "communicator_groups": list(outside.groups),
        "communicators_counted": outside.counted,
        "hccl_buffer_mib": outside.buffer_mib,
        "reserve": outside.reserve_bytes,
    }


def from_json(content: object) -> RunRecord:
    """What a file says; whatever is not of the right type is as if it were absent."""
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        return RunRecord()
    ranks = content.get("ranks")
    found = {
        name: _rank(rank)
        for name, rank in (ranks.items() if isinstance(ranks, dict) else ())
        if isinstance(name, str) and isinstance(rank, dict)
    }
    chip = content.get("chip")
    named = chip if isinstance(chip, str) else None
    told = content.get("asked")
    asked = {name: size for name, size in (told.items() if isinstance(told, dict) else ()) if _count(size)}
    return RunRecord(named, _count(content.get("device_memory")), _outside(content), found, _doubts(content), asked)


def _doubts(content: Mapping[str, object]) -> dict[str, Message]:
    told = content.get("no_verdict")
    return {name: _message(doubt) for name, doubt in (told.items() if isinstance(told, dict) else ())}


def _message(content: object, depth: int = 0) -> Message:
    """A message as it was written; of one that cannot be read only that there was one is known."""
    if isinstance(content, dict) and depth < _DEEPEST:
        params = content.get("params")
        found = Message(
            str(content.get("id")),
            {
                str(name): _message(value, depth + 1) if isinstance(value, dict) else value
                for name, value in (params.items() if isinstance(params, dict) else ())
                if isinstance(value, dict | str | int)
            },
        )
        with contextlib.suppress(LookupError, ValueError, OSError):
            str(found)
            return found
    return msg("verdict.none.unknown")


def _rank(content: Mapping[str, object]) -> KeptRank:
    by = content.get("max_device_memory_by")
    cap = Cap(by) if by in {one.value for one in Cap} else Cap.CONFIG
    cap_bytes = _count(content.get("max_device_memory"))
    return KeptRank(cap_bytes, cap, _outside(content), _whole(content.get("whole")))


def _outside(content: Mapping[str, object]) -> Outside:
    return Outside(
        simulated=content.get("simulated") is not False,
        workspaces_traced=content.get("workspaces_traced") is True,
        communicators=_count(content.get("communicators")),
        groups=_names(content.get("communicator_groups")),
        counted=content.get("communicators_counted") is not False,
        buffer_mib=_count(content.get("hccl_buffer_mib")),
        reserve_bytes=_count(content.get("reserve")) or 0,
    )


def _whole(content: object) -> Whole | None:
    if not isinstance(content, dict):
        return None
    layers, run_layers = _count(content.get("layers")), _count(content.get("run_layers"))
    if layers is None or run_layers is None:
        return None
    sizes = [_count(content.get(key)) for key in ("peak", "footprint", "least_footprint")]
    peak, high, low = sizes
    if peak is None or high is None or low is None:
        return Whole(layers, run_layers, None)
    source = msg("verdict.footprint.kept", layers=layers, run=run_layers)
    return Whole(layers, run_layers, Need(peak, high, low, source))


def _names(value: object) -> tuple[str, ...]:
    return tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
