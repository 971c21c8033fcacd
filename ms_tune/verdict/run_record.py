"""Store facts about a simulated run (``judged.json``), so that every command gives the same verdict as ``dryrun``."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ms_tune.encode import SCHEMA_VERSION, schema_version_of
from ms_tune.text import Message, msg
from ms_tune.verdict.limit import Cap
from ms_tune.verdict.outcome import Need, UntracedNeeds

FILE = "judged.json"
RUN_FOLDER = "."  # the run's own folder, in ``Kept.doubts``
_VERSION = 1
_DEEPEST = 3  # nesting depth of messages
_INSIDE = re.compile(r"(?!\.\.)[\w.=+-]+")  # a part of a path that does not lead out of the run folder
_FRACTION = re.compile(r"-?\d{1,9}(?:/[1-9]\d{0,8})?")


@dataclass(frozen=True, slots=True)
class StageRun:
    """A run that a stage was extrapolated from."""

    layers: int
    weight: Fraction  # the stage is the sum of its runs with these weights
    folder: str  # the folder of its trace, relative to the run folder


@dataclass(frozen=True, slots=True)
class RankRecord:
    """Facts about one rank that are not in its trace."""

    cap_bytes: int | None = None  # `max_device_memory`; None if unset
    cap: Cap = Cap.CONFIG  # the source of that value
    outside: UntracedNeeds = field(default_factory=UntracedNeeds)  # memory that is not in the trace
    run_layers: int | None = None  # layers in the run, if its stage has more; None if the whole stage was run
    stage_layers: int = 0  # then the layers of the whole stage
    stage_need: Need | None = None  # the need of the stage; None if it was not extrapolated
    stage_runs: tuple[StageRun, ...] = ()  # the runs that it was extrapolated from, the smallest first
    replayed: bool = False  # whether the requests of the stage, repeated from those of its runs, could be replayed


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Facts about a run."""

    chip: str | None = None  # the chip given by the user
    card_bytes: int | None = None  # the device memory given by the user
    outside: UntracedNeeds = field(default_factory=UntracedNeeds)  # not in the traces; for ranks without a record
    ranks: Mapping[str, RankRecord] = field(default_factory=dict)  # by rank folder
    # Reasons that prevent a verdict on the traces in a folder and its subfolders; `.` is the run's own.
    doubts: Mapping[str, Message] = field(default_factory=dict)
    # `max_device_memory` in bytes, from the programs that wrote the traces in a folder and its subfolders.
    requested_bytes: Mapping[str, int] = field(default_factory=dict)

    def rank_of(self, names: Iterable[str]) -> RankRecord | None:
        """Return the record of a rank from the names of its trace's folders."""
        return next((self.ranks[name] for name in names if name in self.ranks), None)

    def find_cap(self, names: Iterable[str]) -> int | None:
        """Return the ``max_device_memory`` of the program that wrote a trace in these folders."""
        return next((self.requested_bytes[name] for name in (*names, RUN_FOLDER) if name in self.requested_bytes), None)

    def doubt_about(self, names: Iterable[str]) -> Message | None:
        """Return the reason that prevents a verdict on a trace in these folders; None if a verdict is possible."""
        return next((self.doubts[name] for name in (*names, RUN_FOLDER) if name in self.doubts), None)


def to_json(record: RunRecord) -> dict[str, object]:
    """Return the content of ``judged.json``."""
    return {
        SCHEMA_VERSION: _VERSION,
        "chip": record.chip,
        "device_memory": record.card_bytes,
        **_outside_json(record.outside),
        "ranks": {name: _rank_json(rank) for name, rank in record.ranks.items()},
        "no_verdict": {name: _message_json(doubt) for name, doubt in record.doubts.items()},
        "asked": dict(record.requested_bytes),
    }


def _message_json(message: Message) -> dict[str, object]:
    return {
        "id": message.id,
        "params": {
            name: _message_json(value) if isinstance(value, Message) else value if type(value) is int else str(value)
            for name, value in message.params.items()
        },
    }


def _rank_json(rank: RankRecord) -> dict[str, object]:
    need = rank.stage_need
    return {
        "max_device_memory": rank.cap_bytes,
        "max_device_memory_by": rank.cap.value,
        **_outside_json(rank.outside),
        "whole": None
        if rank.run_layers is None
        else {
            "layers": rank.stage_layers,
            "run_layers": rank.run_layers,
            "peak": None if need is None else need.peak_bytes,
            "footprint": None if need is None else need.footprint_bytes,
            "least_footprint": None if need is None else need.least_footprint_bytes,
            "runs": [
                {"layers": one.layers, "weight": str(one.weight), "folder": one.folder} for one in rank.stage_runs
            ],
            "replayed": rank.replayed,
        },
    }


def _outside_json(outside: UntracedNeeds) -> dict[str, object]:
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
    """Parse the content of ``judged.json``; values of a wrong type are ignored."""
    version = schema_version_of(content) if isinstance(content, dict) else None
    if not isinstance(content, dict) or version is None:
        return RunRecord()
    if version != _VERSION:
        return RunRecord(doubts={RUN_FOLDER: msg("verdict.none.version", file=FILE, version=version)})
    ranks = content.get("ranks")
    found = {
        name: _read_rank(rank)
        for name, rank in (ranks.items() if isinstance(ranks, dict) else ())
        if isinstance(name, str) and isinstance(rank, dict)
    }
    chip = content.get("chip")
    named = chip if isinstance(chip, str) else None
    section = content.get("asked")
    asked = {name: size for name, size in (section.items() if isinstance(section, dict) else ()) if _read_count(size)}
    section = content.get("no_verdict")
    doubts = {name: _read_message(doubt) for name, doubt in (section.items() if isinstance(section, dict) else ())}
    return RunRecord(named, _read_count(content.get("device_memory")), _read_outside(content), found, doubts, asked)


def _read_message(content: object, depth: int = 0) -> Message:
    # An unreadable message becomes a general one, so that the doubt itself is not lost.
    if isinstance(content, dict) and depth < _DEEPEST:
        params = content.get("params")
        found = Message(
            str(content.get("id")),
            {
                str(name): _read_message(value, depth + 1) if isinstance(value, dict) else value
                for name, value in (params.items() if isinstance(params, dict) else ())
                if isinstance(value, dict | str | int)
            },
        )
        with contextlib.suppress(LookupError, ValueError, OSError):
            str(found)
            return found
    return msg("verdict.none.unknown")


def _read_rank(content: Mapping[str, object]) -> RankRecord:
    by = content.get("max_device_memory_by")
    cap = Cap(by) if by in {one.value for one in Cap} else Cap.CONFIG
    cap_bytes = _read_count(content.get("max_device_memory"))
    record, whole = RankRecord(cap_bytes, cap, _read_outside(content)), content.get("whole")
    return _with_stage(record, whole) if isinstance(whole, dict) else record


def _read_outside(content: Mapping[str, object]) -> UntracedNeeds:
    groups = content.get("communicator_groups")
    return UntracedNeeds(
        simulated=content.get("simulated") is not False,
        workspaces_traced=content.get("workspaces_traced") is True,
        communicators=_read_count(content.get("communicators")),
        groups=tuple(name for name in groups if isinstance(name, str)) if isinstance(groups, list) else (),
        counted=content.get("communicators_counted") is not False,
        buffer_mib=_read_count(content.get("hccl_buffer_mib")),
        reserve_bytes=_read_count(content.get("reserve")) or 0,
    )


def _with_stage(record: RankRecord, content: Mapping[str, object]) -> RankRecord:
    layers, run_layers = _read_count(content.get("layers")), _read_count(content.get("run_layers"))
    if layers is None or run_layers is None:
        return record
    peak, high, low = (_read_count(content.get(key)) for key in ("peak", "footprint", "least_footprint"))
    need = None
    if peak is not None and high is not None and low is not None:
        need = Need(peak, high, low, msg("verdict.footprint.kept", layers=layers, run=run_layers))
    runs = content.get("runs")
    read = [_read_stage_run(one) for one in runs] if isinstance(runs, list) else []
    known = tuple(one for one in read if one is not None)
    return replace(
        record,
        run_layers=run_layers,
        stage_layers=layers,
        stage_need=need,
        stage_runs=known if len(known) == len(read) else (),
        replayed=content.get("replayed") is True,
    )


def _read_stage_run(content: object) -> StageRun | None:
    if not isinstance(content, dict):
        return None
    layers, weight, folder = _read_count(content.get("layers")), content.get("weight"), content.get("folder")
    if layers is None or not isinstance(weight, str) or not isinstance(folder, str):
        return None
    if not _FRACTION.fullmatch(weight) or not all(_INSIDE.fullmatch(part) for part in folder.split("/")):
        return None
    return StageRun(layers, Fraction(weight), folder)


def _read_count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
