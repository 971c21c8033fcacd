"""Check a launch script (``--check SCRIPT``): which modules its programs find, and whether they reach their first step."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ms_tune.dialects.job_parts import SettingChange
from ms_tune.dryrun.command import cann_for
from ms_tune.dryrun.command_tasks import check_request, run_tasks, tasks_of, without_ranks
from ms_tune.dryrun.command_tasks import rank_parts as ranks_of
from ms_tune.dryrun.launcher import ProcessEnd
from ms_tune.dryrun.launchers.job import LaunchedJob, LauncherLook, jobs_in
from ms_tune.dryrun.processes import processes_of
from ms_tune.dryrun.reading import check_end
from ms_tune.dryrun.request import CommandRequest
from ms_tune.dryrun.stack import StackPart, find_refusals, parts_of
from ms_tune.dryrun.task import Observer
from ms_tune.errors import MsTuneError
from ms_tune.facts.megatron import releases_with, tag
from ms_tune.facts.query import load
from ms_tune.job.checkout import Checkout, read_git_head
from ms_tune.text import Message, msg

_LLM = "MindSpeed-LLM"
_NUMBER = re.compile(r"\d+\.\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Documented:
    """The set of versions that a release of MindSpeed-Core-MS is documented to run with."""

    release: str  # `r0.4.0`
    script: str  # to be sourced in its folder: clones the sources and sets PYTHONPATH
    parts: Mapping[str, str]  # the documented version of each part


@dataclass(frozen=True, slots=True)
class JobCheck:
    """The check of one job's program."""

    job: LaunchedJob  # the job's launcher call
    look: LauncherLook | None  # the modules that its Python finds; None if that Python did not answer
    parts: tuple[StackPart, ...]  # the frameworks, found or not
    megatron: bool  # whether the program accepts Megatron's arguments, and so needs all frameworks
    missing: tuple[str, ...]  # frameworks that it needs but that were not found
    documented: Documented  # the documented set that matches the frameworks found
    unlike: tuple[tuple[StackPart, str], ...]  # parts of another release than in that set, with the set's release
    # Paths in its arguments that do not exist, and are replaced by synthetic data.
    made_up: tuple[SettingChange, ...]


@dataclass(frozen=True, slots=True)
class ScriptCheck:
    """The check of a script up to its first training step."""

    command: tuple[str, ...]  # the command that was run
    jobs: tuple[JobCheck, ...]  # its jobs
    # Reasons why it would not produce a result, each with a hint.
    problems: tuple[tuple[Message, Message | None], ...]


def check_script(request: CommandRequest, observer: Observer) -> ScriptCheck:
    """Run a script up to its launchers; one rank of each job imports the modules of its program, and ends."""
    check_request(request)
    cann = cann_for(request, observer)
    with tempfile.TemporaryDirectory(prefix="ms-tune-") as place:
        folder = Path(place)
        asked = request._replace(look=True, stages=None, ranks=())
        (task,) = tasks_of(asked)
        here = folder / task.folder
        ended = run_tasks(asked, [task], folder, cann, observer)[task.folder]
        jobs = jobs_in(here)
        checked = tuple(map(_check_job, jobs))
        problems: list[tuple[Message, Message | None]] = [*without_ranks(jobs, here)]
        for one in checked:
            problems += _find_problems(one)
        for part in ranks_of(jobs, ended):
            problems += [
                (part.name_problem(reason), None) for reason in _why_failed(part.folder, part.ended, task.timeout)
            ]
        if not jobs:
            problems += [(reason, None) for reason in _why_failed(here, ended, task.timeout)]
        if not jobs and not problems:
            known = "alone" if processes_of(here) else "nothing"
            problems.append((msg(f"stack.{known}"), msg(f"stack.{known}.hint")))
    return ScriptCheck(request.command, checked, tuple(problems))


def _check_job(job: LaunchedJob) -> JobCheck:
    facts = load("launchers")["megatron"]
    folders = job.look.folders if job.look is not None else {}
    parts = tuple(map(release_by_sources, parts_of(folders)))
    wanted = documented_set(parts)
    paths = {*facts["tokenizer"], *facts["data"]}
    megatron = all(any(word.partition("=")[0] == name for word in job.arguments) for name in facts["known_by"])
    return JobCheck(
        job=job,
        look=job.look,
        parts=parts,
        megatron=megatron,
        missing=missing_parts(parts) if job.look is not None and megatron else (),
        documented=wanted,
        unlike=tuple(differing_parts(parts, wanted)),
        made_up=tuple(change for change in job.changes if change.key in paths and change.before is not None),
    )


def _find_problems(one: JobCheck) -> Iterator[tuple[Message, Message | None]]:
    if one.look is not None:
        yield from find_refusals(one.parts, one.look.folders)
    if one.missing:
        versions = ", ".join(f"{name} {one.documented.parts.get(name, '')}".rstrip() for name in one.documented.parts)
        params = {"release": one.documented.release, "parts": versions, "script": one.documented.script}
        yield msg("stack.missing", parts=", ".join(one.missing)), msg("stack.documented", **params)


def _why_failed(folder: Path, ended: ProcessEnd, timeout: float) -> Iterator[Message]:
    # Yield why a process failed, if it did, without the place of its log, which is about to be deleted.
    try:
        check_end(folder, ended, timeout, level=0)
    except MsTuneError as error:
        yield error.message


def release_by_sources(part: StackPart) -> StackPart:
    """Return a part with the release found from its sources: first by the arguments that they define, then by its checkout."""
    if part.folder is None:
        return part
    if load("stack")["parts"][part.name].get("arguments"):
        package = part.folder.resolve()
        releases = releases_with(part.name, frozenset(Checkout(package.parent, package.name).own_arguments))
        if releases:
            names = ", ".join(dict.fromkeys(tag(part.name, one) for one in releases))
            return replace(part, release=names, told_by="arguments", releases=releases if part.name == _LLM else ())
    branch = _checked_out_branch(part.folder) if part.release is None else None
    return part if branch is None else replace(part, release=branch, told_by="branch")


def _checked_out_branch(folder: Path) -> str | None:
    here = folder.resolve()
    for parent in (here, *here.parents[:3]):
        if (parent / ".git" / "HEAD").is_file():
            head = read_git_head(parent)
            return head.branch or next(iter(head.tags), None)
    return None


def missing_parts(parts: Sequence[StackPart]) -> tuple[str, ...]:
    """Return the parts that a program of MindSpeed-LLM needs but that were not found."""
    absent = {part.name for part in parts if part.folder is None}
    return tuple(name for name in load("stack")["needed"] if name in absent)


def documented_set(parts: Sequence[StackPart]) -> Documented:
    """Return the documented set of parts for the MindSpeed-LLM that was found; the last one if none matches."""
    own = next(part for part in parts if part.name == _LLM)
    rows = load("stack")["releases"]
    tags = {tag(_LLM, one).removeprefix("v") for one in own.releases} | {own.release}
    release = next((name for name, row in rows.items() if row[_LLM] in tags), list(rows)[-1])
    row = dict(rows[release])
    return Documented(release, row.pop("script"), row)


def differing_parts(parts: Sequence[StackPart], wanted: Documented) -> Iterator[tuple[StackPart, str]]:
    """Yield the parts whose release differs from the documented one, with the documented release."""
    for part in parts:
        documented = wanted.parts.get(part.name)
        if documented is None or part.release is None or not _NUMBER.search(documented):
            continue
        if not any(_is_same_release(one, documented) for one in part.release.split(", ")):
            yield part, documented


def _is_same_release(release: str, documented: str) -> bool:
    # Compare release numbers: ``0.12.1`` matches ``core_v0.12.1``, and ``2.2.0_core_r0.12.1`` matches ``v2.2.0_core_r0.12.1``.
    own, other = _NUMBER.findall(release), _NUMBER.findall(documented)
    return bool(own) and own == other[: len(own)]
