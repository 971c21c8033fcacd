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
    from collections.abc import Callable, Sequence

    from ms_tune.config.source import SourceFile
    from ms_tune.dryrun.check import Check
    from ms_tune.dryrun.request import CommandRequest, DryrunRequest
    from ms_tune.dryrun.result import CommandResult, DryrunResult, RealComparison, SweepResult
    from ms_tune.dryrun.task import Observer
    from ms_tune.layers.conversion.convert import Converted
    from ms_tune.layers.plans import NormalizedPlan
    from ms_tune.lint.report import LintReport
    from ms_tune.lint.rules import Rule
    from ms_tune.lint.run import LintRequest
    from ms_tune.memory.comparison import Comparison
    from ms_tune.memory.request import MemoryRequest
    from ms_tune.memory.result import MemoryReport
    from ms_tune.normalize.against import Compared
    from ms_tune.normalize.explicit import Explicit
    from ms_tune.normalize.sapp import Merged


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

    return tuple(all_rules(list(map(Path, checklists))))


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


def sweep(requests: Sequence[DryrunRequest], *, observer: Observer | None = None) -> SweepResult:
    """Simulate variants of a job, all of them in one go; one that fails has its error in its place.

    Args:
        requests: One for each variant.
        observer: Told what is going on.

    Raises:
        MsTuneError: No variant could be run, or this machine is at fault; as :func:`dryrun` says.

    Example::

        settings = [(Setting(("recompute_config", "recompute"), raw),) for raw in ("True", "False")]
        result = api.sweep([DryrunRequest(Path("train.yaml"), settings=setting) for setting in settings])
    """
    from ms_tune.dryrun import run  # noqa: PLC0415 - start-up time
    from ms_tune.dryrun.task import Observer  # noqa: PLC0415 - as above

    return run.sweep(requests, observer or Observer())


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


def _source(config: str | Path | SourceFile) -> SourceFile:
    from ms_tune.config.source import load_source  # noqa: PLC0415 - start-up time

    return load_source(Path(config)) if isinstance(config, (str, Path)) else config
