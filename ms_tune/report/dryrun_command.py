"""A command of the user's own that was simulated, as text."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.dryrun.cann_sim.environment import Backend
from ms_tune.report import memory_text
from ms_tune.report.dryrun_check import job_params
from ms_tune.report.dryrun_text import in_gib, near_path, show_table, theory_lines
from ms_tune.report.words import by_name, number_or_dash, verdict_lines, word
from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from ms_tune.dryrun.command_result import CommandResult, RankResult
    from ms_tune.dryrun.launchers.arguments import OptionChange
    from ms_tune.dryrun.launchers.job import LaunchedJob
    from ms_tune.report.console import Console

_SHOWN_HOLDERS = 5
_SHOWN_PLACES = 10
_SHOWN_CONTENTS = ("weights", "optimizer_state", "activations")


def show_command(result: CommandResult, console: Console) -> None:
    """How it ended, then the verdict and what holds the memory, if it left a trace."""
    params = {"command": shlex.join(result.command), "code": result.code, "seconds": f"{result.seconds:.1f}"}
    console.write(console.text("stages.command.run", **params))
    for job in result.jobs:
        if job.ranks:
            console.write(job_line(job, console))
    _show_changes(result, console)
    worst = result.worst
    console.write("")
    for line in verdict_lines(result.verdict, console):
        console.write(line)
    _show_doubtful(result, console)
    if worst is not None:
        _show_figures(result, worst, console)
    console.write("")
    console.write(console.text("dryrun.show.kept", folder=near_path(result.folder)))
    if worst is not None:
        console.write(console.text("dryrun.show.next", command=f"ms-tune memory {near_path(result.folder)}"))


def _show_figures(result: CommandResult, worst: RankResult, console: Console) -> None:
    if len(result.ranks) > 1 or worst.extrapolation is not None:
        _show_ranks(result, console)
    if any(rank.extrapolation is not None for rank in result.ranks):
        console.write(console.text("launch.layers.few"))
    if worst.extrapolation is not None:
        console.write("")
        small = {"stage": worst.stage, "rank": worst.rank, "layers": worst.layers, "full": worst.full_layers}
        console.write(console.text("dryrun.show.traced-small", **small))
    if worst.theory:
        console.write("")
        console.write(console.text("launch.theory"))
        for line in theory_lines(worst.theory, console):
            console.write(line)
    memory_text.show_breakdown(replace(worst.reading.report.peak, layers=()), console, _SHOWN_HOLDERS)
    if result.level is not None:
        kind = "stand-in" if result.backend is Backend.STAND_IN else "cann"
        console.write("")
        console.write(console.text(f"dryrun.show.worth.{kind}", level=result.level))
        console.write(f"  - {console.text('dryrun.not-included.workspace')}")
        console.write(f"  - {console.text('dryrun.not-included.communication')}")


def _show_changes(result: CommandResult, console: Console) -> None:
    """What the launched programs were given otherwise than the script says, and what of their frameworks is changed."""
    lines = [console.say(_change_text(change, job)) for job in result.jobs for change in job.changes]
    lines += [console.say(message) for message in result.support]
    if lines:
        console.write(console.text("launch.changes"))
        for line in lines:
            console.write(f"  {line}")


def _change_text(change: OptionChange, job: LaunchedJob) -> Message:
    flag = msg("launch.flag")
    params = {"key": change.key, "before": change.before or flag, "job": job.number}
    if change.after is None:
        return Message("launch.out", params)
    if change.before is None:
        return Message("launch.new", {**params, "key": f"{change.key} {change.after}".rstrip()})
    return Message("launch.change", {**params, "after": change.after or flag})


def job_line(job: LaunchedJob, console: Console) -> str:
    """What a launcher was told, and which of its ranks stand for all."""
    named = [
        console.text("launch.one" if one.stage is None else "launch.one.stage", rank=one.rank, stage=one.stage)
        for one in job.ranks
    ]
    return console.text("launch.job", **job_params(job), ranks=", ".join(named))


def _show_doubtful(result: CommandResult, console: Console) -> None:
    """What in the program follows from values, which simulation has not."""
    for text, places in (
        ("stages.command.reads", result.reads),
        ("stages.command.bounds", result.bounds),
    ):
        if places:
            console.write(console.text(text, count=max(len(places), sum(one.places for one in result.processes))))
            for place in places[:_SHOWN_PLACES]:
                console.write(f"  {place}")
            if len(places) > _SHOWN_PLACES:
                console.write(f"  {console.text('stages.command.more', count=len(places) - _SHOWN_PLACES)}")


def _show_ranks(result: CommandResult, console: Console) -> None:
    launched = ["job", "stage"] if any(rank.job is not None for rank in result.ranks) else []
    derived = any(rank.extrapolation is not None for rank in result.ranks)
    layered = ["layers"] if derived else []
    columns = [*launched, "rank", "process", *layered, *_SHOWN_CONTENTS, "peak", "footprint", "limit", "verdict"]
    rows = []
    for rank in sorted(result.ranks, key=lambda one: -one.judged_bytes):
        sizes = by_name(rank.contents)
        amounts = [sizes.get(name, 0) for name in _SHOWN_CONTENTS]
        limit = rank.verdict.limit
        amounts += [rank.judged_bytes, rank.footprint_bytes, limit.bytes if limit else 0]
        names = [number_or_dash(rank.rank), str(rank.process.pid) if rank.process else "–"]
        where = [number_or_dash(rank.job), number_or_dash(rank.stage)]
        layers = [_layers_text(rank)] if derived else []
        rows.append([*where[: len(launched)], *names, *layers, *map(in_gib, amounts), word(rank.verdict, console)])
    console.write("")
    console.write(console.text("stages.command.ranks"))
    show_table(console, columns, rows)


def _layers_text(rank: RankResult) -> str:
    """``2, 3 → 14``: what ran, and what was derived from it."""
    if rank.extrapolation is not None:
        return f"{', '.join(map(str, rank.extrapolation.from_layers))} → {rank.extrapolation.layers}"
    return number_or_dash(rank.layers)
