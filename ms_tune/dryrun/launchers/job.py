"""Read the jobs that a command launched, as ``stand_in.py`` recorded them in ``job_N/launch.json``."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from ms_tune.dialects.job_parts import SettingChange
from ms_tune.dialects.stage import StageLayerKind, kinds_from_json
from ms_tune.dryrun.launchers.arguments import ProgramSplit
from ms_tune.facts.query import load
from ms_tune.text import Message
from ms_tune.units import MIB

RECORD, LOOKED = "launch.json", "look.json"
_TEXTS = ("launch.", "stack.", "stages.layers.")
_LARGEST = 16 * MIB
_MOST = 10_000  # maximum ranks of a job that are read


@dataclass(frozen=True, slots=True)
class JobRank:
    """A simulated rank of a job."""

    rank: int
    stage: int | None  # its pipeline stage; None if the rank was chosen by its number
    folder: Path  # where its trace and its log are
    code: int | None  # its exit code, negative for a signal; None if it did not end
    seconds: float  # how long it ran
    run: int = 0  # 0 for the first run of its stage; further runs with more layers serve to derive the whole stage
    layers: int = 0  # layers of its stage in this run; 0 if unknown
    kinds: Mapping[StageLayerKind, int] = field(default_factory=dict)  # their number by kind


@dataclass(frozen=True, slots=True)
class JobStage:
    """The stage of a simulated rank."""

    rank: int
    layers: int | None  # layers of the whole stage; None if unknown
    factors: tuple[Fraction, ...] = ()  # the weights of its runs in the whole stage; empty if it is not derived
    reason: Message | None = None  # why it is not derived, if it was requested


@dataclass(frozen=True, slots=True)
class LauncherLook:
    """The Python and the modules that a job's program would use."""

    python: str  # the Python that would run it
    version: str
    folders: Mapping[str, tuple[str, ...]]  # the places of each module


@dataclass(frozen=True, slots=True)
class LaunchedJob:
    """One call of a launcher, and how its ranks ended."""

    number: int  # 1 for the command's first job
    launcher: str  # the launcher's name
    program: str  # the program that its ranks run; empty if parsing failed before it
    world: int | None  # ranks of the job; None if it could not be determined
    split: ProgramSplit | None  # the parallel split in the program's arguments; None if they contain no pipeline size
    changes: tuple[SettingChange, ...]  # arguments that differ from those in the script
    ranks: tuple[JobRank, ...]  # those that were simulated
    problem: Message | None  # why none were simulated
    hint: Message | None  # how to fix it
    arguments: tuple[str, ...] = ()  # the launcher's command line, including the program's own arguments
    look: LauncherLook | None = None  # the modules of its program, if requested
    stages: tuple[JobStage, ...] = ()  # the stages of its ranks

    @property
    def untried_options(self) -> tuple[str, ...]:
        """Return the options of its program that were never tried in simulation."""
        given = {word.partition("=")[0] for word in self.arguments}
        return tuple(option for option in load("launchers")["megatron"]["untold"] if option in given)


def folder_of(job: Path, rank: int, run: int) -> Path:
    """Return the folder of a rank: ``rank_N``; further runs are one level down, so that they do not count as more ranks."""
    return job / f"rank_{rank}" if not run else job / f".run_{run}" / f"rank_{rank}"


def jobs_in(folder: Path) -> tuple[LaunchedJob, ...]:
    """Return the jobs that a command launched, in the order in which they began."""
    found = (_read_job(record) for record in folder.glob(f"job_*/{RECORD}"))
    return tuple(sorted((job for job in found if job is not None), key=lambda job: job.number))


def _read_job(record: Path) -> LaunchedJob | None:
    # Read a record; None if it is invalid, since the program could have written it itself.
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        facts = _load_small(record)
        return LaunchedJob(
            number=int(record.parent.name.rpartition("_")[2]),
            launcher=str(facts["launcher"]),
            program=str(facts.get("program", "")),
            world=_read_or_none(facts, "world", int),
            split=_read_or_none(facts, "split", lambda split: ProgramSplit(**split)),
            changes=tuple(
                SettingChange(str(one["key"]), _read_or_none(one, "before", str), _read_or_none(one, "after", str))
                for one in facts.get("changes", ())
            ),
            ranks=tuple(_read_rank(record.parent, one) for one in facts["ranks"][:_MOST]),
            problem=_read_message(facts, "problem"),
            hint=_read_message(facts, "hint"),
            arguments=tuple(map(str, facts.get("arguments", ()))),
            look=_read_look(record.with_name(LOOKED)),
            stages=tuple(map(_read_stage, facts.get("stages", [])[:_MOST])),
        )
    return None


def _load_small(file: Path) -> Any:  # noqa: ANN401 - any JSON value
    if file.stat().st_size > _LARGEST:
        raise ValueError
    return json.loads(file.read_bytes())


def _read_look(answer: Path) -> LauncherLook | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        facts = _load_small(answer)
        folders = {str(name): tuple(map(str, places)) for name, places in facts["folders"].items()}
        return LauncherLook(str(facts["python"]), str(facts["version"]), folders)
    return None


_T = TypeVar("_T")


def _read_or_none(facts: Mapping[str, Any], name: str, kind: Callable[[Any], _T]) -> _T | None:
    return None if facts.get(name) is None else kind(facts[name])


def _read_message(facts: Mapping[str, Any], name: str) -> Message | None:
    # Only texts of this package; a program's own record could name any.
    found = facts.get(name)
    if found is None or not str(found["text"]).startswith(_TEXTS):
        return None
    message = Message(str(found["text"]), {str(key): str(value) for key, value in found["params"].items()})
    str(message)  # raises a KeyError for an unknown text or other parameters
    return message


def _read_stage(facts: Mapping[str, Any]) -> JobStage:
    factors = tuple(Fraction(str(one)) for one in facts["factors"][:_MOST])
    return JobStage(int(facts["rank"]), _read_or_none(facts, "layers", int), factors, _read_message(facts, "reason"))


def _read_rank(folder: Path, facts: Mapping[str, Any]) -> JobRank:
    rank, run = int(facts["rank"]), int(facts.get("run", 0))
    return JobRank(
        rank=rank,
        stage=_read_or_none(facts, "stage", int),
        folder=folder_of(folder, rank, run),
        code=_read_or_none(facts, "code", int),
        seconds=float(facts["seconds"]),
        run=run,
        layers=int(facts.get("layers", 0)),
        kinds=kinds_from_json(facts.get("kinds", [])),
    )
