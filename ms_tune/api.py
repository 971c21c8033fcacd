"""ms-tune for Python programs: what the command line itself calls.

::

    from ms_tune import LintRequest, api

    report = api.lint("train.yaml", request=LintRequest(framework_version="1.8"))
    for finding in report.findings:
        print(finding.span.line, finding.id)

Arguments and results are frozen dataclasses, and every failure that a user can do something about is a
:class:`~ms_tune.errors.MsTuneError`. Nothing is printed; nothing is written unless the request says so. The engines are
imported when they are called, so that importing this module costs nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ms_tune.config.source import SourceFile
    from ms_tune.dryrun.check import Check
    from ms_tune.dryrun.full_report import JobReport
    from ms_tune.dryrun.request import CommandRequest, DryrunRequest
    from ms_tune.dryrun.result import CommandResult, DryrunResult, RealComparison, SweepResult
    from ms_tune.dryrun.task import Observer
    from ms_tune.layers.conversion.convert import Converted
    from ms_tune.layers.plans import NormalizedPlan
    from ms_tune.lint.report import LintReport
    from ms_tune.lint.rules import Rule
    from ms_tune.lint.run import LintRequest
    from ms_tune.lint.topics import Part
    from ms_tune.memory.comparison import Comparison
    from ms_tune.memory.plan import MemLogAnalysis, PlanReport
    from ms_tune.memory.request import MemoryRequest, PlanRequest, WhatIfRequest
    from ms_tune.memory.result import MemoryReport
    from ms_tune.memory.what_if import WhatIfReport
    from ms_tune.normalize.against import Compared
    from ms_tune.normalize.explicit import Explicit
    from ms_tune.normalize.sapp import Merged
    from ms_tune.packing.plan import Progress
    from ms_tune.texts import Message


def lint(*files: str | Path, request: LintRequest | None = None) -> LintReport:
    """Check configs, training scripts and launch scripts; fix them if the request says so.

    A file that cannot be read does not keep the others from being checked: it is among ``errors`` of the report.

    Args:
        files: Files, and folders in which to look for them; ``-`` is ``stdin`` of the request.
        request: How to check; None for what the settings files say.

    Raises:
        UsageError: A path, a check or a profile that there is not.
        ConfigError: The settings, a checklist or the baseline are wrong.

    Example::

        report = api.lint("configs/", request=LintRequest(selection=Selection(select=("MST4",))))
        errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    """
    from ms_tune.lint.run import LintRequest, lint_files  # noqa: PLC0415 - start-up time

    return lint_files([str(file) for file in files], request or LintRequest())


def course(rules: Iterable[Rule]) -> tuple[Part, ...]:
    """Checks in the order in which one learns them, by topic.

    Args:
        rules: The checks.

    Example::

        titles = [part.title.en for part in api.course(api.rules())]
    """
    from ms_tune.lint import topics  # noqa: PLC0415 - start-up time

    return topics.course(rules)


def rules(*checklists: str | Path) -> tuple[Rule, ...]:
    """Every check that :func:`lint` can make, with its texts and examples.

    Args:
        checklists: Checklists of the user's own.

    Raises:
        ConfigError: One of them is wrong.

    Example::

        names = {rule.id: rule.name for rule in api.rules()}
    """
    from ms_tune.lint.rules import all_rules  # noqa: PLC0415 - start-up time

    return all_rules(list(map(Path, checklists)))


def write_baseline(report: LintReport, file: str | Path) -> int:
    """Keep the findings of a report as old ones, which later runs with this baseline pass over.

    Args:
        report: What :func:`lint` found without a baseline.
        file: The file to write.

    Returns:
        How many findings it holds.

    Raises:
        ConfigError: The file cannot be written.

    Example::

        api.write_baseline(api.lint("configs/", request=LintRequest(baseline=False)), "baseline.json")
    """
    from ms_tune.lint import baseline  # noqa: PLC0415 - start-up time

    return baseline.write_baseline(Path(file), ((one.path, one.text, one.findings) for one in report.files))


def normalize(
    config: str | Path | SourceFile, *, framework_version: str | None = None, layers: int | None = None
) -> NormalizedPlan:
    """What every layer of a config recomputes and swaps, as its framework decides it.

    Args:
        config: The file, or its parsed text.
        framework_version: The release whose rules hold; None for the installed one, or else the default.
        layers: The number of layers, for a config that does not tell it.

    Raises:
        ConfigError: The file cannot be read, or is of no dialect that is served.
        UsageError: The release is not served.

    Example::

        plan = api.normalize("train.yaml", framework_version="1.9")
        in_full = [layer.layer for layer in plan.layers if layer.recompute is Effect.FULL]
    """
    from ms_tune.normalize.source import normalize_source  # noqa: PLC0415 - start-up time

    return normalize_source(_source(config), framework_version, layers)


def against(
    config: str | Path | SourceFile, *logs: str | Path, framework_version: str | None = None, layers: int | None = None
) -> Compared:
    """Whether a job did what a config says: its logs beside the plan, layer by layer.

    Args:
        config: The file, or its parsed text.
        logs: Logs of its ranks (``worker_0.log``, ``info.log``), or folders of them.
        framework_version: As for :func:`normalize`.
        layers: As for :func:`normalize`.

    Raises:
        ConfigError: As for :func:`normalize`.
        TraceError: A log cannot be read, or none says anything about layers.
        UnsupportedError: The config's framework does not log what it sets.

    Example::

        compared = api.against("train.yaml", "output/msrun_log")
        if compared.verdict is Verdict.DIFFERS:
            print(compared.differences[0], *compared.why)
    """
    from ms_tune.normalize.against import compare  # noqa: PLC0415 - start-up time

    return compare(_source(config), list(map(Path, logs)), framework_version, layers)


def explicit(
    config: str | Path | SourceFile, *, framework_version: str | None = None, layers: int | None = None
) -> Explicit:
    """A config with its lists of layers in their explicit form. The file stays as it is.

    Args:
        config: The file, or its parsed text.
        framework_version: As for :func:`normalize`.
        layers: As for :func:`normalize`.

    Raises:
        ConfigError: A value stands where it cannot be changed alone.
        UsageError: The framework does not get through the config, or the result would not mean the same.

    Example::

        Path("explicit.yaml").write_text(api.explicit("train.yaml").text)
    """
    from ms_tune.normalize import explicit as engine  # noqa: PLC0415 - start-up time
    from ms_tune.normalize.source import dialect_of  # noqa: PLC0415 - as above

    source = _source(config)
    return engine.explicit(source, dialect_of(source), framework_version, layers)


def from_sapp(text: str, *, layers: int, stages: int, chunks: int = 1) -> NormalizedPlan:
    """The plan that the lists printed by the pipeline tool SAPP stand for.

    Args:
        text: What SAPP printed.
        layers: The model's layers.
        stages: Its pipeline stages.
        chunks: Its chunks, of which each stage has a part of the layers.

    Raises:
        UsageError: The text holds no such lists, or they do not fit the sizes.

    Example::

        plan = api.from_sapp(Path("sapp.txt").read_text(), layers=48, stages=4)
    """
    from ms_tune.layers.conversion import sapp  # noqa: PLC0415 - start-up time

    return sapp.plan_of(sapp.parse_sapp(text), layers=layers, stages=stages, chunks=chunks)


def convert_sapp(text: str, to: str, *, layers: int, stages: int, chunks: int = 1) -> Converted:
    """The settings of a dialect that the lists printed by SAPP come to.

    Args:
        text: As for :func:`from_sapp`.
        to: As for :func:`convert`.
        layers: As for :func:`from_sapp`.
        stages: As for :func:`from_sapp`.
        chunks: As for :func:`from_sapp`.

    Raises:
        UsageError: The text holds no such lists, they do not fit the sizes, or there is no such dialect or release.

    Example::

        settings = api.convert_sapp(Path("sapp.txt").read_text(), "mindspeed-ms", layers=48, stages=4).values
    """
    from ms_tune.layers.conversion.sapp import parse_sapp  # noqa: PLC0415 - start-up time
    from ms_tune.normalize import sapp as engine  # noqa: PLC0415 - as above
    from ms_tune.normalize.convert import target_of  # noqa: PLC0415 - as above

    return engine.convert_sapp(parse_sapp(text), engine.Sizes(layers, stages, chunks), target_of(to))


def merge_sapp(
    text: str, config: str | Path | SourceFile, *, framework_version: str | None = None, layers: int | None = None
) -> Merged:
    """A config with the lists printed by SAPP in it. The file stays as it is.

    Args:
        text: As for :func:`from_sapp`.
        config: The file, or its parsed text; the sizes are its own.
        framework_version: As for :func:`normalize`.
        layers: As for :func:`normalize`.

    Raises:
        ConfigError: The config cannot be read, or a value stands where it cannot be changed alone.
        UsageError: The lists do not fit the config, or the framework does not get through the result.

    Example::

        merged = api.merge_sapp(Path("sapp.txt").read_text(), "train.yaml")
        Path("planned.yaml").write_text(merged.text)
    """
    from ms_tune.layers.conversion.sapp import parse_sapp  # noqa: PLC0415 - start-up time
    from ms_tune.normalize import sapp as engine  # noqa: PLC0415 - as above

    return engine.merge(_source(config), parse_sapp(text), framework_version, layers)


def convert(
    config: str | Path | SourceFile, to: str, *, framework_version: str | None = None, layers: int | None = None
) -> Converted:
    """The settings that do the same in another dialect; what cannot be said there is among ``problems``.

    Operators get the names of the target's model, and the settings are read back by the target's own rules: where a
    layer would not do what it does now, a problem says so.

    Args:
        config: The file, or its parsed text.
        to: The other dialect, with ``@RELEASE`` behind it for another release than the default.
        framework_version: As for :func:`normalize`.
        layers: As for :func:`normalize`.

    Raises:
        ConfigError: The file cannot be read, or is of no dialect that is served.
        UsageError: There is no such dialect, or a release is not served.

    Example::

        settings = api.convert("train.yaml", "mindformers-pynative@2.0").values
    """
    from ms_tune.normalize import convert as engine  # noqa: PLC0415 - start-up time

    return engine.convert_source(_source(config), engine.target_of(to), framework_version, layers)


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
        print(result.worst.judged_bytes, result.verdict.value)
    """
    from dataclasses import replace  # noqa: PLC0415 - start-up time

    from ms_tune.dryrun import run  # noqa: PLC0415 - as above
    from ms_tune.dryrun.request import DryrunRequest  # noqa: PLC0415 - as above
    from ms_tune.dryrun.task import Observer  # noqa: PLC0415 - as above

    request = request or DryrunRequest()
    return run.dryrun(request if config is None else replace(request, config=Path(config)), observer or Observer())


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
    from ms_tune.dryrun.settings import variants  # noqa: PLC0415 - as above
    from ms_tune.dryrun.task import Observer  # noqa: PLC0415 - as above

    return run.sweep(variants(request, sweeps), observer or Observer())


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


def check_machine() -> Check:
    """Whether this machine can simulate, and with what.

    Example::

        problem = api.check_machine().problem
    """
    from ms_tune.dryrun import check  # noqa: PLC0415 - start-up time

    return check.check_machine()


def compare_real(simulated: str | Path, real: str | Path) -> RealComparison:
    """A simulated run beside a real one, rank by rank.

    Args:
        simulated: A folder that :func:`dryrun` left, or any trace.
        real: The trace of a run on devices.

    Raises:
        TraceError: One of them holds no trace, or they have no rank in common.
        MissingExtraError: The extra ``report`` is not installed.

    Example::

        ranks = api.compare_real("ms-tune-run/", "real-run/").ranks
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune dryrun --compare-real", "report", "numpy")
    from ms_tune.dryrun import compare  # noqa: PLC0415 - start-up time

    return compare.compare_real(Path(simulated), Path(real))


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
    from ms_tune.dryrun import full_report  # noqa: PLC0415 - start-up time

    return full_report.job_report(result, most)


def memory(
    run: str | Path,
    *,
    request: MemoryRequest | None = None,
    on_bytes: Callable[[int, int], None] = lambda _done, _all: None,
) -> MemoryReport:
    """Where the memory of a run went, from the files that its memory tracker wrote.

    Args:
        run: A ``memory_block.csv``, its folder, or a folder of ranks.
        request: Which ranks to look at, and how closely.
        on_bytes: Told the bytes read so far, and the bytes of all files.

    Raises:
        TraceError: There is no trace, or it cannot be read.
        MissingExtraError: The extra ``report`` is not installed.

    Example::

        worst = api.memory("run/").worst
        print(worst.curve.peak_bytes, {content.value: size for content, size in worst.peak.contents.items()})
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune memory", "report", "numpy")
    from ms_tune.memory.report import analyse  # noqa: PLC0415 - start-up time
    from ms_tune.memory.request import MemoryRequest  # noqa: PLC0415 - as above

    return analyse(Path(run), request or MemoryRequest(), on_bytes)


def memory_diff(before: MemoryReport, after: MemoryReport) -> Comparison:
    """What two runs have, one more than the other.

    Args:
        before: What :func:`memory` says about the first.
        after: What it says about the second.

    Example::

        changes = api.memory_diff(api.memory("run-1/"), api.memory("run-2/")).ranks[0].changes
    """
    from ms_tune.memory.comparison import compare  # noqa: PLC0415 - start-up time

    return compare(before, after)


def memory_what_if(
    run: str | Path,
    *,
    request: WhatIfRequest | None = None,
    on_progress: Callable[[Message, float], None] = lambda _what, _share: None,
) -> WhatIfReport:
    """What a run's allocations would have taken of the device under other settings of MindSpore's pool.

    Args:
        run: A ``memory_block.csv``, its folder, or a folder above it.
        request: The rank, and what else to replay: less blocks, shared out or recomputed.
        on_progress: Told what is being done, and how much of it.

    Raises:
        TraceError: There is no trace, or it cannot be read.
        UsageError: There is no such rank, or nothing of what is to be left out.

    Example::

        best = api.memory_what_if("run/", request=WhatIfRequest(max_memory=32 * 2**30)).result.best
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune memory what-if", "report", "numpy")
    from ms_tune.memory.request import WhatIfRequest  # noqa: PLC0415 - start-up time
    from ms_tune.memory.what_if import replayed  # noqa: PLC0415 - as above

    return replayed(Path(run), request or WhatIfRequest(), on_progress)


def memory_plan(
    run: str | Path,
    *,
    request: PlanRequest | None = None,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> PlanReport:
    """How low the blocks of a run, or of a placement problem, could lie; the plan is checked independently.

    Args:
        run: A trace, or a CSV file of blocks.
        request: The rank, the capacity and the time limit.
        on_progress: Told how far the planner is.

    Raises:
        TraceError: There is no trace, or the file cannot be read.
        UsageError: There is no such rank.

    Example::

        report = api.memory_plan("run/", request=PlanRequest(seconds=5))
        print(report.plan.height, report.plan.lower_bound, report.valid)
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune memory plan", "report", "numpy")
    from ms_tune.memory.plan import planned  # noqa: PLC0415 - start-up time
    from ms_tune.memory.request import PlanRequest  # noqa: PLC0415 - as above

    return planned(Path(run), request or PlanRequest(), on_progress)


def memory_import(
    file: str | Path,
    *,
    request: PlanRequest | None = None,
    npu: bool = False,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> MemLogAnalysis:
    """What STAlloc's analysis says about a trace that STAlloc recorded, and how low its blocks could lie.

    Args:
        file: The trace.
        request: How to plan.
        npu: Whether torch_npu recorded it, which pads every block.
        on_progress: Told how far the planner is.

    Raises:
        TraceError: The file cannot be read.

    Example::

        peak = api.memory_import("memlog.txt").report.peak
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune memory import-memlog", "report", "numpy")
    from ms_tune.memory.plan import analysed  # noqa: PLC0415 - start-up time
    from ms_tune.memory.request import PlanRequest  # noqa: PLC0415 - as above

    return analysed(Path(file), request or PlanRequest(), on_progress, npu=npu)


def _source(config: str | Path | SourceFile) -> SourceFile:
    from ms_tune.config.source import load_source  # noqa: PLC0415 - start-up time

    return load_source(Path(config)) if isinstance(config, (str, Path)) else config
