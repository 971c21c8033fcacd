"""Simulated runs and what comes of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dryrun.both import BothFigures
    from ms_tune.dryrun.check import MachineCheck
    from ms_tune.dryrun.command_result import CommandResult, CommandSweep
    from ms_tune.dryrun.compare import LogComparison
    from ms_tune.dryrun.reading import JobReport
    from ms_tune.dryrun.request import CommandRequest, DryrunRequest
    from ms_tune.dryrun.result import DryrunResult, RealComparison, SweepResult
    from ms_tune.dryrun.script_check import ScriptCheck
    from ms_tune.dryrun.task import Observer
    from ms_tune.footprint.request import MemoryRequest


def dryrun(
    config: str | Path | None = None, *, request: DryrunRequest | None = None, observer: Observer | None = None
) -> DryrunResult:
    """Simulate the stages of a training job and judge whether each fits. Needs the extra ``dryrun``.

    Args:
        config: The config; None for that of the request, or else the packaged default.
        request: What to simulate.
        observer: Told what is going on.

    Raises:
        ConfigError: The config is wrong.
        UnsupportedError: This machine, or the model, is not served.
        MissingExtraError: MindSpore, or the config's framework, is not installed.
        RunError: A simulated process failed.

    Example::

        result = api.dryrun("train.yaml", request=DryrunRequest(layers=2, device_bytes=32 * 2**30))
        print(result.verdict.outcome, result.verdict.spare_bytes, result.verdict.sentence)
    """
    from dataclasses import replace  # noqa: PLC0415 - start-up time

    from ms_tune.dryrun import run  # noqa: PLC0415 - as above
    from ms_tune.dryrun.request import DryrunRequest  # noqa: PLC0415 - as above
    from ms_tune.dryrun.task import Observer  # noqa: PLC0415 - as above

    request = request or DryrunRequest()
    return run.dryrun(request if config is None else replace(request, config=Path(config)), observer or Observer())


def dryrun_both(*, request: DryrunRequest, observer: Observer | None = None) -> BothFigures:
    """A dynamic-graph config by its own framework, which must be installed, and by the reference transformer.

    Args:
        request: What to simulate.
        observer: Told what is going on.

    Raises:
        UnsupportedError: The config is of no dynamic graph, or its framework is not installed here.
        ConfigError: The config cannot be read.

    Example::

        found = api.dryrun_both(request=DryrunRequest(config=Path("train.yaml"), fewest_layers=True))
        print([one.judged_bytes for one in found.real.stages], found.config)
    """
    from ms_tune.dryrun import both  # noqa: PLC0415 - start-up time
    from ms_tune.dryrun.task import Observer  # noqa: PLC0415 - as above

    return both.both_figures(request, observer or Observer())


def sweep(request: DryrunRequest, sweeps: Sequence[str], *, observer: Observer | None = None) -> SweepResult:
    """Simulate variants of a job, all of them in one go; one that fails has its error in its place.

    Args:
        request: What all variants share.
        sweeps: Values to try, ``path=a,b``; of several sweeps every combination is tried.
        observer: Told what is going on.

    Raises:
        MsTuneError: No variant could be run, or this machine is at fault; as :func:`dryrun` says.

    Example::

        result = api.sweep(DryrunRequest(Path("train.yaml")), ["recompute_config.recompute=True,False"])
        best = min(result.variants, key=lambda one: one.result.worst.judged_bytes if one.result else 2**60)
    """
    from ms_tune.dryrun import run  # noqa: PLC0415 - start-up time
    from ms_tune.dryrun.settings import list_variants  # noqa: PLC0415 - as above
    from ms_tune.dryrun.task import Observer  # noqa: PLC0415 - as above

    return run.simulate_each([(one, None) for one in list_variants(request, sweeps)], observer or Observer())


def run_command(request: CommandRequest, *, observer: Observer | None = None) -> CommandResult:
    """Run a training program of the user's own in simulation, and judge what it allocates.

    Args:
        request: The program and how to run it.
        observer: Told what is going on.

    Raises:
        MsTuneError: As :func:`dryrun` says.

    Example::

        result = api.run_command(CommandRequest(("python", "train.py")))
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune dryrun", "dryrun", "numpy")
    from ms_tune.dryrun import command  # noqa: PLC0415 - start-up time
    from ms_tune.dryrun.task import Observer  # noqa: PLC0415 - as above

    return command.run_command(request, observer or Observer())


def sweep_command(request: CommandRequest, sweeps: Sequence[str], *, observer: Observer | None = None) -> CommandSweep:
    """Run a launch script once with each value of its programs' options; one that cannot be started has its error in its place.

    Args:
        request: What all variants share.
        sweeps: Values to try, ``option=a,b``; of several sweeps every combination is tried.
        observer: Told what is going on.

    Raises:
        MsTuneError: No variant could be started; as :func:`run_command` says.

    Example::

        request = CommandRequest(("bash", "pretrain_x.sh"), fewest_layers=True)
        result = api.sweep_command(request, ["micro-batch-size=1,2"])
        print([variant.result.worst.judged_bytes for variant in result.variants])
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune dryrun", "dryrun", "numpy")
    from ms_tune.dryrun import command  # noqa: PLC0415 - start-up time
    from ms_tune.dryrun.settings import option_variants  # noqa: PLC0415 - as above
    from ms_tune.dryrun.task import Observer  # noqa: PLC0415 - as above

    return command.sweep_command(option_variants(request, sweeps), observer or Observer())


def check_machine(python: str | None = None) -> MachineCheck:
    """Whether this machine can simulate, and with what.

    Args:
        python: The interpreter whose MindSpore is meant; None for the one that ms-tune runs in.

    Example::

        problem = api.check_machine().problem
    """
    from ms_tune.dryrun import check  # noqa: PLC0415 - start-up time

    return check.check_machine(python)


def check_script(request: CommandRequest, *, observer: Observer | None = None) -> ScriptCheck:
    """What the programs of a launch script would find; the script is run, its training is not.

    Args:
        request: The script, and the environment in which it is to run.
        observer: Told what is going on.

    Raises:
        MsTuneError: The script cannot be started, or this machine cannot simulate.

    Example::

        request = CommandRequest(("bash", "pretrain_qwen25_7b_32k_ms.sh"))
        print([str(problem) for problem, _ in api.check_script(request).problems])
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune dryrun", "dryrun", "numpy")
    from ms_tune.dryrun import script_check  # noqa: PLC0415 - start-up time
    from ms_tune.dryrun.task import Observer  # noqa: PLC0415 - as above

    return script_check.check_script(request, observer or Observer())


def compare_real(simulated: str | Path, real: str | Path, *, request: MemoryRequest | None = None) -> RealComparison:
    """A simulated run beside a real one, rank by rank.

    Args:
        simulated: A folder that :func:`dryrun` left, or any trace.
        real: The trace of a run on devices.
        request: The device that both are judged by; None for what the runs tell.

    Raises:
        TraceError: One of them holds no trace, or they have no rank in common.
        MissingExtraError: The extra ``report`` is not installed.

    Example::

        ranks = api.compare_real("ms-tune-run/", "real-run/").ranks
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune dryrun --compare-real", "report", "numpy")
    from ms_tune.dryrun import compare  # noqa: PLC0415 - start-up time
    from ms_tune.footprint.request import MemoryRequest  # noqa: PLC0415 - as above

    return compare.compare_real(Path(simulated), Path(real), request or MemoryRequest())


def is_log(path: str | Path) -> bool:
    """Whether a place is for :func:`compare_log`: a log, or a folder of logs, and no trace.

    Args:
        path: A file or a folder.

    Raises:
        TraceError: The folder cannot be read.

    Example::

        compare = api.compare_log if api.is_log("real-run/") else api.compare_real
    """
    from ms_tune.dryrun import compare  # noqa: PLC0415 - start-up time

    return compare.is_log(Path(path))


def compare_log(simulated: str | Path, log: str | Path, *, request: MemoryRequest | None = None) -> LogComparison:
    """A simulated run beside what the log of a real one says about its memory, figure by figure.

    Args:
        simulated: A folder that :func:`dryrun` left, or any trace.
        log: The log of a run on devices, or the folder of its ranks' logs.
        request: The device that both are judged by; None for what the run and the log tell.

    Raises:
        TraceError: There is no trace, the log says nothing about memory, or they have no rank in common.
        MissingExtraError: The extra ``report`` is not installed.

    Example::

        for pair in api.compare_log("ms-tune-run/", "msrun_log/").pairs:
            print(pair.rank, [(one.name, one.difference) for one in pair.figures], *pair.notes)
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune dryrun --compare-real", "report", "numpy")
    from ms_tune.dryrun import compare  # noqa: PLC0415 - start-up time
    from ms_tune.footprint.request import MemoryRequest  # noqa: PLC0415 - as above

    return compare.compare_log(Path(simulated), Path(log), request or MemoryRequest())


def request_like(real: str | Path, request: DryrunRequest) -> DryrunRequest:
    """The request with what it leaves out taken from a run on devices, so that the two can be compared.

    Args:
        real: The folder of the run, with its config and its traces.
        request: What else to simulate.

    Raises:
        UsageError: The folder keeps no config.
        TraceError: It holds no trace.

    Example::

        result = api.dryrun(request=api.request_like("real-run/", DryrunRequest()))
    """
    from ms_tune.dryrun import compare  # noqa: PLC0415 - start-up time

    return compare.request_like(Path(real), request)


def job_report(result: DryrunResult | CommandResult, *, most: int = 12) -> JobReport:
    """A finished job's ranks analysed as :func:`memory` does, the worst first.

    Args:
        result: A job that left traces.
        most: Ranks to look at.

    Raises:
        TraceError: A trace cannot be read any more.

    Example::

        findings = api.job_report(api.dryrun("train.yaml")).memory.all_findings
    """
    from ms_tune.dryrun import reading  # noqa: PLC0415 - start-up time

    return reading.job_report(result, most)
