"""What every layer does, written out, compared and converted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ms_tune.dialects.convert_layers import Converted
    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.job.job import Job
    from ms_tune.normalize.compare_log import Compared
    from ms_tune.normalize.expand import Explicit
    from ms_tune.normalize.sapp import Merged
    from ms_tune.normalize.script import ConvertedProgram, ExplicitScript, ProgramPlan
    from ms_tune.source.yaml import SourceFile


def normalize(
    config: str | Path | SourceFile | Job, *, framework_version: str | None = None, layers: int | None = None
) -> LayerPlan:
    """What every layer of a config recomputes and swaps, as its framework decides it.

    Args:
        config: The file, its parsed text, or its job.
        framework_version: The release whose rules hold; None for the installed one, or else the default.
        layers: The number of layers, for a config that does not tell it.

    Raises:
        ConfigError: The file cannot be read, or is of no dialect that is served.
        UsageError: The release is not served.

    Example::

        plan = api.normalize("train.yaml", framework_version="1.9")
        in_full = [layer.layer for layer in plan.layers if layer.recompute is RecomputeMode.FULL]
    """
    from ms_tune.normalize import run  # noqa: PLC0415 - start-up time

    return run.normalize(_job(config, framework_version, layers))


def normalize_script(script: str | Path, *, framework_version: str | None = None) -> tuple[ProgramPlan, ...]:
    """What every layer does in the programs of MindSpeed-LLM that a launch script starts. The script is read, not run.

    Args:
        script: The file.
        framework_version: The release of MindSpeed-LLM whose rules hold; None for the default.

    Raises:
        ConfigError: The file cannot be read, or starts no such program.
        UsageError: The release is not served.

    Example::

        for program in api.normalize_script("pretrain_qwen3.sh"):
            print(program.line, program.plan.placement if program.plan else program.unknown)
    """
    from ms_tune.job.script import ScriptJob  # noqa: PLC0415 - as above
    from ms_tune.normalize import script as rules  # noqa: PLC0415 - start-up time

    return rules.normalize_script(ScriptJob(Path(script), version=framework_version), supposing=True)


def explicit_script(script: str | Path, *, framework_version: str | None = None) -> ExplicitScript:
    """A launch script whose programs are given no argument about layers that is ignored. The file stays as it is.

    Args:
        script: The file.
        framework_version: As for :func:`normalize_script`.

    Raises:
        ConfigError: As for :func:`normalize_script`.
        UsageError: The frameworks refuse the arguments of a program; or the release is not served.

    Example::

        Path("explicit.sh").write_text(api.explicit_script("pretrain_qwen3.sh").text)
    """
    from ms_tune.job.script import ScriptJob  # noqa: PLC0415 - as above
    from ms_tune.normalize import script as engine  # noqa: PLC0415 - start-up time

    return engine.explicit_script(ScriptJob(Path(script), version=framework_version))


def against(
    config: str | Path | SourceFile | Job,
    *logs: str | Path,
    framework_version: str | None = None,
    layers: int | None = None,
) -> Compared:
    """Whether a job did what a config says: its logs beside the plan, layer by layer.

    Args:
        config: The file, its parsed text, or its job.
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
    from ms_tune.normalize.compare_log import compare  # noqa: PLC0415 - start-up time

    return compare(_job(config, framework_version, layers), list(map(Path, logs)))


def explicit(
    config: str | Path | SourceFile | Job, *, framework_version: str | None = None, layers: int | None = None
) -> Explicit:
    """A config with its lists of layers in their explicit form. The file stays as it is.

    Args:
        config: The file, its parsed text, or its job.
        framework_version: As for :func:`normalize`.
        layers: As for :func:`normalize`.

    Raises:
        ConfigError: A value stands where it cannot be changed alone.
        UsageError: The framework does not get through the config, or the result would not mean the same.

    Example::

        Path("explicit.yaml").write_text(api.explicit("train.yaml").text)
    """
    from ms_tune.normalize import expand  # noqa: PLC0415 - start-up time

    return expand.explicit(_job(config, framework_version, layers))


def from_sapp(text: str, *, layers: int, stages: int, chunks: int = 1) -> LayerPlan:
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
    from ms_tune.normalize import sapp_lists  # noqa: PLC0415 - start-up time

    return sapp_lists.plan_of(sapp_lists.parse_sapp(text), layers=layers, stages=stages, chunks=chunks)


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
    from ms_tune.normalize import sapp as engine  # noqa: PLC0415 - as above
    from ms_tune.normalize.convert import target_of  # noqa: PLC0415 - as above
    from ms_tune.normalize.sapp_lists import parse_sapp  # noqa: PLC0415 - start-up time

    return engine.convert_sapp(parse_sapp(text), engine.Sizes(layers, stages, chunks), target_of(to))


def merge_sapp(
    text: str, config: str | Path | SourceFile | Job, *, framework_version: str | None = None, layers: int | None = None
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
    from ms_tune.normalize import sapp as engine  # noqa: PLC0415 - as above
    from ms_tune.normalize.sapp_lists import parse_sapp  # noqa: PLC0415 - start-up time

    return engine.merge(_job(config, framework_version, layers), parse_sapp(text))


def convert(
    config: str | Path | SourceFile | Job, to: str, *, framework_version: str | None = None, layers: int | None = None
) -> Converted:
    """The settings that do the same in another dialect; what cannot be said there is among ``problems``.

    Operators get the names of the target's model, and the settings are read back by the target's own rules: where a
    layer would not do what it does now, a problem says so.

    Args:
        config: The file, its parsed text, or its job.
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

    return engine.convert_job(_job(config, framework_version, layers), engine.target_of(to))


def convert_script(
    script: str | Path, to: str, *, framework_version: str | None = None
) -> tuple[ConvertedProgram, ...]:
    """The settings that do in another dialect what the programs of a launch script do; see :func:`convert`.

    Args:
        script: The file.
        to: As for :func:`convert`.
        framework_version: As for :func:`normalize_script`.

    Raises:
        ConfigError: As for :func:`normalize_script`.
        UsageError: There is no such dialect, or a release is not served.

    Example::

        (job,) = api.convert_script("pretrain_qwen3.sh", "mindformers-pynative")
        settings = job.settings.values if job.settings else {}
    """
    from ms_tune.job.script import ScriptJob  # noqa: PLC0415 - as above
    from ms_tune.normalize import script as engine  # noqa: PLC0415 - start-up time
    from ms_tune.normalize.convert import target_of  # noqa: PLC0415 - as above

    return engine.convert_script(ScriptJob(Path(script), version=framework_version), target_of(to))


def _job(config: str | Path | SourceFile | Job, version: str | None, layers: int | None) -> Job:
    from ms_tune.job.job import Job, load_job  # noqa: PLC0415 - start-up time

    if isinstance(config, Job):
        return config
    if isinstance(config, (str, Path)):
        return load_job(Path(config), version=version, layers=layers)
    return Job(config, version=version, layers=layers)
