"""The jobs that a command launched, as their stand-in told of them in ``job_N/launch.json``."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from ms_tune.dialects.job_parts import SettingChange
from ms_tune.dialects.stage import kinds_from_json
from ms_tune.dryrun.launchers.arguments import ProgramSplit
from ms_tune.facts.query import load
from ms_tune.text import Message
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ms_tune.dialects.stage import StageLayerKind

RECORD, LOOKED = "launch.json", "look.json"
_TEXTS = ("launch.", "stack.", "stages.layers.")
_LARGEST = 16 * MIB
_MOST = 10_000  # ranks of a job that are read


@dataclass(frozen=True, slots=True)
class JobRank:
    """A rank of a job that was simulated."""

    rank: int
    stage: int | None  # its pipeline stage; None if it was chosen by its number
    folder: Path  # where its trace and its log are
    code: int | None  # its exit code, negative for a signal; None if it never came to its end
    seconds: float  # how long it ran
    run: int = 0  # 0 for the first run of its stage; others have more layers, so that the whole stage can be derived
    layers: int = 0  # layers of its stage as it ran; 0 where that is not known
    kinds: Mapping[StageLayerKind, int] = field(default_factory=dict)  # how many of each kind


@dataclass(frozen=True, slots=True)
class JobStage:
    """The stage of a rank that was simulated."""

    rank: int
    layers: int | None  # layers of the whole stage; None where that is not known
    factors: tuple[Fraction, ...] = ()  # the weights of its runs in the whole stage; empty if it is not derived
    reason: Message | None = None  # why it is not, where it was asked for


@dataclass(frozen=True, slots=True)
class LauncherLook:
    """What a job's program would find."""

    python: str  # the Python that would run it
    version: str
    folders: Mapping[str, tuple[str, ...]]  # where it finds each module that was looked for


@dataclass(frozen=True, slots=True)
class LaunchedJob:
    """What one call of a launcher was told, and how its ranks ended."""

    number: int  # 1 for the command's first job
    launcher: str  # the launcher's name
    program: str  # the program that its ranks run; empty where it did not come to that
    world: int | None  # ranks of the job; None where that could not be told
    split: ProgramSplit | None  # how the program's arguments split the job; None if they name no pipeline
    changes: tuple[SettingChange, ...]  # arguments that the program was given otherwise than the script says
    ranks: tuple[JobRank, ...]  # those that were simulated
    problem: Message | None  # why none were
    hint: Message | None  # what to do about it
    arguments: tuple[str, ...] = ()  # what the launcher was told, the program's own arguments included
    look: LauncherLook | None = None  # what its program would find, if that was looked for
    stages: tuple[JobStage, ...] = ()  # the stages of its ranks

    @property
    def untold(self) -> tuple[str, ...]:
        """Options of its program that simulation is not known to work with."""
        given = {word.partition("=")[0] for word in self.arguments}
        return tuple(option for option in load("launchers")["megatron"]["untold"] if option in given)


def folder_of(job: Path, rank: int, run: int) -> Path:
    """Where a rank of a job runs: ``rank_N``; further runs of it one level down, where nobody takes them for more ranks."""
    return job / f"rank_{rank}" if not run else job / f".run_{run}" / f"rank_{rank}"


def jobs_in(folder: Path) -> tuple[LaunchedJob, ...]:
    """The jobs that a command launched, in the order in which they began."""
    found = (_read_job(record) for record in folder.glob(f"job_*/{RECORD}"))
    return tuple(sorted((job for job in found if job is not None), key=lambda job: job.number))


def _read_job(record: Path) -> LaunchedJob | None:
    # What a record tells; None if it tells nothing, since the program could have written it itself.
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        told = _load_small(record)
        return LaunchedJob(
            number=int(record.parent.name.rpartition("_")[2]),
            launcher=str(told["launcher"]),
            program=str(told.get("program", "")),
            world=_read_or_none(told, "world", int),
            split=_read_or_none(told, "split", lambda split: ProgramSplit(**split)),
            changes=tuple(
                SettingChange(str(one["key"]), _read_or_none(one, "before", str), _read_or_none(one, "after", str))
                for one in told.get("changes", ())
            ),
            ranks=tuple(_read_rank(record.parent, one) for one in told["ranks"][:_MOST]),
            problem=_read_message(told, "problem"),
            hint=_read_message(told, "hint"),
            arguments=tuple(map(str, told.get("arguments", ()))),
            look=_read_look(record.with_name(LOOKED)),
            stages=tuple(map(_read_stage, told.get("stages", [])[:_MOST])),
        )
    return None


def _load_small(file: Path) -> Any:  # noqa: ANN401 - whatever it holds
    if file.stat().st_size > _LARGEST:
        raise ValueError
    return json.loads(file.read_bytes())


def _read_look(answer: Path) -> LauncherLook | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        told = _load_small(answer)
        folders = {str(name): tuple(map(str, places)) for name, places in told["folders"].items()}
        return LauncherLook(str(told["python"]), str(told["version"]), folders)
    return None


_T = TypeVar("_T")


def _read_or_none(told: Mapping[str, Any], name: str, kind: Callable[[Any], _T]) -> _T | None:
    return None if told.get(name) is None else kind(told[name])


def _read_message(told: Mapping[str, Any], name: str) -> Message | None:
    # A text of this room; a program's own record could name any.
    found = told.get(name)
    if found is None or not str(found["text"]).startswith(_TEXTS):
        return None
    message = Message(str(found["text"]), {str(key): str(value) for key, value in found["params"].items()})
    str(message)  # a KeyError if there is no such text, or it has other parameters
    return message


def _read_stage(told: Mapping[str, Any]) -> JobStage:
    factors = tuple(Fraction(str(one)) for one in told["factors"][:_MOST])
    return JobStage(int(told["rank"]), _read_or_none(told, "layers", int), factors, _read_message(told, "reason"))


def _read_rank(folder: Path, told: Mapping[str, Any]) -> JobRank:
    rank, run = int(told["rank"]), int(told.get("run", 0))
    return JobRank(
        rank=rank,
        stage=_read_or_none(told, "stage", int),
        folder=folder_of(folder, rank, run),
        code=_read_or_none(told, "code", int),
        seconds=float(told["seconds"]),
        run=run,
        layers=int(told.get("layers", 0)),
        kinds=kinds_from_json(told.get("kinds", [])),
    )
