"""Show the result of ``dryrun --check`` for a machine or a script, as text and JSON, without NumPy."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ms_tune.dryrun.machine import MachineCheck
from ms_tune.encode import record_json
from ms_tune.report.console import Console
from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from ms_tune.dryrun.launchers.job import LaunchedJob
    from ms_tune.dryrun.script_check import JobCheck, ScriptCheck
    from ms_tune.dryrun.stack import StackPart


def show_machine(check: MachineCheck, console: Console, *, quiet: bool) -> None:
    """Show the facts about the machine, one per line, and whether dryrun works; if ``quiet``, only the latter."""
    absent = console.text("dryrun.check.absent")
    backend = console.text(f"dryrun.check.{check.backend.value}") if check.backend else absent
    built = str(check.cann) if check.cann else console.text("dryrun.check.not-built")
    if isinstance(check.pynative, Message):
        pynative = f"{console.text('dryrun.model.reference')} ({console.say(check.pynative)})"
    else:
        pynative = check.pynative.name
    rows = {
        "machine": check.machine,
        "python": check.python,
        "cores": str(check.cores),
        "mindspore": check.mindspore or absent,
        "mindformers": check.mindformers or absent,
        "numpy": check.numpy or absent,
        "compiler": ", ".join(check.compilers) or absent,
        "cann": f"{backend} ({built})" if check.backend else backend,
        "mindspeed": check.mindspeed.name if check.mindspeed else console.text("dryrun.model.reference"),
        "pynative": pynative,
    }
    for name, value in () if quiet else rows.items():
        console.write(console.labelled(console.text(f"dryrun.check.label.{name}"), value))
    if check.problem:
        console.write("")
        _write_problem("dryrun.check.no", check.problem, check.hint, console)
    else:
        console.write(console.paint(console.text("dryrun.check.yes"), "green"))


def _write_problem(label: str, problem: Message, hint: Message | None, console: Console) -> None:
    console.write(console.labelled(console.paint(console.text(label), "red"), console.say(problem)))
    if hint:
        console.write(f"  {console.labelled(console.text('cli.hint'), console.say(hint))}")


def machine_json(check: MachineCheck) -> dict[str, object]:
    """Return the JSON object of ``ms-tune dryrun --check``."""
    pynative = None if isinstance(check.pynative, Message) else check.pynative.name
    return {
        "version": 1,
        "ready": check.problem is None,
        **record_json(check, "problem", "machine", "python", "cores", "mindspore", "mindformers", "numpy"),
        **record_json(check, "compilers", "backend", "cann"),
        "dynamic_graph": {"mindspeed-ms": check.mindspeed and check.mindspeed.name, "mindformers-pynative": pynative},
    }


def show_script(check: ScriptCheck, console: Console, *, quiet: bool) -> None:
    """Show each job with the packages that its program would find, then the problems; if ``quiet``, only the latter."""
    if not quiet:
        _show_jobs(check, console)
    for problem, hint in check.problems:
        _write_problem("stack.no", problem, hint, console)
    if not check.problems:
        console.write(console.paint(console.text("stack.yes"), "green"))


def _show_jobs(check: ScriptCheck, console: Console) -> None:
    console.write_section("stack.script", command=shlex.join(check.command))
    for job in check.jobs:
        if job.job.ranks:
            console.write_text("stack.job", **job_params(job.job))
        console.write_lines(_job_lines(job, console), "  ")
    console.write("")


def _job_lines(job: JobCheck, console: Console) -> Iterator[str]:
    if job.look is not None:
        yield f"Python: {job.look.version}, {job.look.python}"
        for part in job.parts:
            yield f"{part.name}: {_where_found(part, console)}"
    for change in job.made_up:
        yield console.text("stack.made-up", option=change.key, path=change.before)
    for part, wanted in job.unlike:
        params = {"release": job.documented.release, "part": part.name, "wanted": wanted, "found": part.release}
        yield console.text("stack.unlike", **params)


def _where_found(part: StackPart, console: Console) -> str:
    if part.folder is None:
        return console.text("dryrun.check.absent")
    if part.release is None:
        return console.text("stack.untold", folder=part.folder)
    return console.text(f"stack.{part.told_by}", release=part.release, folder=part.folder)


def script_json(check: ScriptCheck) -> dict[str, object]:
    """Return the value of ``script`` in ``--json``."""
    return {
        "command": check.command,
        "ready": not check.problems,
        "problems": [{"problem": problem, "hint": hint} for problem, hint in check.problems],
        "jobs": [_job_json(job) for job in check.jobs],
    }


def _job_json(job: JobCheck) -> dict[str, object]:
    documented = job.documented
    return {
        "job": job.job.number,
        **record_json(job.job, "launcher", "program"),
        "devices": job.job.world,
        "python": job.look and job.look.python,
        "python_version": job.look and job.look.version,
        "parts": [record_json(part, "name", "folder", "release", "told_by") for part in job.parts],
        "missing": job.missing,
        "documented": {"release": documented.release, "script": documented.script, **documented.parts},
        "made_up": {change.key: change.before for change in job.made_up},
    }


def job_params(job: LaunchedJob) -> dict[str, object]:
    """Return a launcher's job as parameters of a text."""
    split = msg("launch.no-split") if job.split is None else Message("launch.split", split_json(job))
    params = {"number": job.number, "launcher": job.launcher, "program": job.program, "world": job.world}
    return {**params, "split": split}


def split_json(job: LaunchedJob) -> dict[str, object]:
    """Return the number of ranks per parallel dimension; data parallelism uses all remaining ranks."""
    if job.split is None or job.world is None:
        return {}
    split = job.split
    rest = job.world // (split.tensor * split.pipeline * split.context)
    return {
        "data": rest,
        "tensor": split.tensor,
        "pipeline": split.pipeline,
        "context": split.context,
        "expert": split.expert,
    }
