"""What ``dryrun --check SCRIPT`` found, as text and JSON."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ms_tune.report.dryrun_jobs import job_params

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dryrun.script_check import JobCheck, ScriptCheck
    from ms_tune.dryrun.stack import StackPart
    from ms_tune.report.console import Console


def show(check: ScriptCheck, console: Console) -> None:
    """Each job with the parts that its program would find, then what is wrong."""
    console.write("")
    console.write(console.text("stack.script", command=shlex.join(check.command)))
    for job in check.jobs:
        if job.job.ranks:
            console.write(console.text("stack.job", **job_params(job.job)))
        for line in _lines(job, console):
            console.write(f"  {line}")
    console.write("")
    for problem, hint in check.problems:
        console.write(console.labelled(console.paint(console.text("stack.no"), "red"), console.say(problem)))
        if hint:
            console.write(f"  {console.labelled(console.text('cli.hint'), console.say(hint))}")
    if not check.problems:
        console.write(console.paint(console.text("stack.yes"), "green"))


def _lines(job: JobCheck, console: Console) -> Iterator[str]:
    if job.look is not None:
        yield f"Python: {job.look.version}, {job.look.python}"
        for part in job.parts:
            yield f"{part.name}: {_found(part, console)}"
    for change in job.made_up:
        yield console.text("stack.made-up", option=change.key, path=change.before)
    for part, wanted in job.unlike:
        params = {"release": job.documented.release, "part": part.name, "wanted": wanted, "found": part.release}
        yield console.text("stack.unlike", **params)


def _found(part: StackPart, console: Console) -> str:
    if part.folder is None:
        return console.text("dryrun.check.absent")
    if part.release is None:
        return console.text("stack.untold", folder=part.folder)
    return console.text(f"stack.{part.told_by}", release=part.release, folder=part.folder)


def to_json(check: ScriptCheck, console: Console) -> dict[str, object]:
    """What ``--json`` has under ``script``."""
    return {
        "command": list(check.command),
        "ready": not check.problems,
        "problems": [
            {"problem": console.say(problem), "hint": console.say(hint) if hint else None}
            for problem, hint in check.problems
        ],
        "jobs": [_job_json(job) for job in check.jobs],
    }


def _job_json(job: JobCheck) -> dict[str, object]:
    return {
        "job": job.job.number,
        "launcher": job.job.launcher,
        "program": job.job.program,
        "devices": job.job.world,
        "python": job.look.python if job.look is not None else None,
        "python_version": job.look.version if job.look is not None else None,
        "parts": [
            {
                "name": part.name,
                "folder": str(part.folder) if part.folder is not None else None,
                "release": part.release,
                "told_by": part.told_by,
            }
            for part in job.parts
        ],
        "missing": list(job.missing),
        "documented": {"release": job.documented.release, "script": job.documented.script, **job.documented.parts},
        "made_up": {change.key: change.before for change in job.made_up},
    }
