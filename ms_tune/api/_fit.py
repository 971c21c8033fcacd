"""The cheapest plan that fits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ms_tune.dryrun.request import DryrunRequest
    from ms_tune.dryrun.task import Observer
    from ms_tune.fit.costs import TimeExplanation
    from ms_tune.fit.result import ConfigFit, ConfigFitRequest
    from ms_tune.fit.search import SearchFit, SearchRequest
    from ms_tune.planning.fit import FitReport
    from ms_tune.planning.request import FitRequest
    from ms_tune.planning.search import SearchProgress
    from ms_tune.planning.time_scale import Clock, LayerTimes
    from ms_tune.source.yaml import SourceFile
    from ms_tune.text import Message

_MOST_BYTES = 16_000_000  # of a file


def fit(
    table: str | Path,
    *,
    request: FitRequest | None = None,
    on_progress: Callable[[SearchProgress], None] = lambda _progress: None,
) -> FitReport:
    """The fastest placement and recompute plan that keeps within a stage's memory, and how good it is at best.

    Args:
        table: A memory table (JSON, docs/fit.md), or the layers of SAPP where the request has a ``sapp``.
        request: How long to search, and what is other than the file says.
        on_progress: Told how far the search is. An interrupt, also one raised here, ends the search with the best plan so far.

    Raises:
        ConfigError: The table cannot be read, or contradicts itself.
        UsageError: What was measured and the table do not belong together.
        MissingExtraError: The extra ``fit`` is not installed.

    Example::

        report = api.fit("table.json")
        if report.planned is not None:
            print(report.planned.plan.offset, report.planned.time, report.lower_bound, report.optimal)
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    for module in ("numpy", "scipy"):
        need("ms-tune fit", "fit", module)
    from ms_tune.planning import fit as planning  # noqa: PLC0415 - start-up time
    from ms_tune.planning.request import FitRequest  # noqa: PLC0415 - as above

    request = request or FitRequest()
    read, clock = request.table_of(_text(Path(table)), str(table))
    return planning.fit(read, effort=request.effort, seed=request.seed, clock=clock, on_progress=on_progress)


def fit_config(
    config: str | Path | None = None,
    *,
    request: ConfigFitRequest | None = None,
    observer: Observer | None = None,
    on_progress: Callable[[SearchProgress], None] = lambda _progress: None,
) -> ConfigFit:
    """The cheapest plan of a config that fits, simulated before it is handed over. The file stays as it is.

    Args:
        config: The config; None for that of the request.
        request: The job, its device, and how to plan.
        observer: Told what is simulated.
        on_progress: As for :func:`fit`.

    Raises:
        ConfigError: The config is wrong.
        UnsupportedError: This machine, the model or its schedule is not served.
        MissingExtraError: The extra ``fit`` or ``dryrun`` is not installed.
        RunError: A simulated process failed.

    Example::

        found = api.fit_config("train.yaml")
        if found.chosen is not None:
            Path("fits.yaml").write_text(found.text)
    """
    from dataclasses import replace  # noqa: PLC0415 - start-up time

    from ms_tune.extras import need  # noqa: PLC0415 - as above

    for module in ("numpy", "scipy"):
        need("ms-tune fit", "fit", module)
    from ms_tune.dryrun.task import Observer  # noqa: PLC0415 - start-up time
    from ms_tune.fit import result as asked  # noqa: PLC0415 - as above
    from ms_tune.fit import run  # noqa: PLC0415 - as above

    request = request or asked.ConfigFitRequest()
    if config is not None:
        request = replace(request, dryrun=replace(request.dryrun, config=Path(config)))
    return run.fit_config(request, observer or Observer(), on_progress)


def search_layouts(
    config: str | Path | None = None,
    *,
    request: SearchRequest | None = None,
    observer: Observer | None = None,
    on_progress: Callable[[SearchProgress], None] = lambda _progress: None,
    on_ranked: Callable[[int, int], None] = lambda _done, _all: None,
) -> SearchFit:
    """Other layouts of a config on the same devices: ranked by closed forms, the best few planned and simulated.

    Args:
        config: The config; None for that of the request.
        request: Which layouts, the job, and how to plan.
        observer: Told what is simulated.
        on_progress: As for :func:`fit`.
        on_ranked: Told how many layouts of how many are ranked.

    Raises:
        ConfigError: The config is wrong.
        UnsupportedError: This machine, the model or its schedule is not served.
        UsageError: There are too many layouts.
        MissingExtraError: The extra ``fit`` or ``dryrun`` is not installed.

    Example::

        found = api.search_layouts("train.yaml", request=SearchRequest(free=("dp", "pp", "vpp"), top=0))
        print([(str(one.layout), one.estimate.time) for one in found.ranking.candidates[:5]])
    """
    from dataclasses import replace  # noqa: PLC0415 - start-up time

    from ms_tune.extras import need  # noqa: PLC0415 - as above

    for module in ("numpy", "scipy"):
        need("ms-tune fit", "fit", module)
    from ms_tune.dryrun.task import Observer  # noqa: PLC0415 - start-up time
    from ms_tune.fit.search import SearchHooks, SearchRequest, search_layouts  # noqa: PLC0415 - as above

    request = request or SearchRequest()
    if config is not None:
        job = replace(request.fit.dryrun, config=Path(config))
        request = replace(request, fit=replace(request.fit, dryrun=job))
    known = _errors_in(request.fit.dryrun.config)
    hooks = SearchHooks(observer or Observer(), on_progress, on_ranked, lambda source: _new_error(source, known))
    return search_layouts(request, hooks)


def _errors_in(config: Path | None) -> set[str]:
    """Checks that a config violates as it is: nothing that another layout is to blame for."""
    from ms_tune.api._lint import lint  # noqa: PLC0415 - start-up time

    return set() if config is None else {one.id for one in lint(config).findings if one.severity.value == "error"}


def _new_error(source: SourceFile, known: set[str]) -> Message | None:
    """What the framework would stop at that it does not stop at now, by lint's checks."""
    from ms_tune.api._lint import lint  # noqa: PLC0415 - start-up time
    from ms_tune.lint.result import LintRequest  # noqa: PLC0415 - as above
    from ms_tune.text import msg  # noqa: PLC0415 - as above

    for one in lint("-", request=LintRequest(stdin=source.text.encode())).findings:
        if one.severity.value == "error" and one.id not in known:
            return msg("layouts.refused.lint", id=one.id, name=one.name)
    return None


def explain_config(
    config: str | Path | None = None, *, request: DryrunRequest | None = None, clock: Clock | None = None
) -> TimeExplanation:
    """Where the time of a config's step goes: work, recomputation, waiting. Nothing is run.

    Args:
        config: The config; None for that of the request.
        request: The job.
        clock: What was measured; nothing by default.

    Raises:
        ConfigError: The config cannot be read, or its framework refuses it.
        UnsupportedError: Its layers or its schedule are not known.
        MissingExtraError: The extra ``fit`` is not installed.

    Example::

        parts = api.explain_config("train.yaml").parts
        print(parts.recompute, parts.fill, parts.imbalance)
    """
    from dataclasses import replace  # noqa: PLC0415 - start-up time

    from ms_tune.extras import need  # noqa: PLC0415 - as above

    need("ms-tune fit", "fit", "numpy")
    from ms_tune.dryrun.request import DryrunRequest  # noqa: PLC0415 - start-up time
    from ms_tune.fit import costs  # noqa: PLC0415 - as above
    from ms_tune.planning.time_scale import Clock  # noqa: PLC0415 - as above

    request = request or DryrunRequest()
    return costs.explain_config(request if config is None else replace(request, config=Path(config)), clock or Clock())


def layer_times(source: str | Path) -> dict[str, LayerTimes]:
    """Measured times of layers for a :class:`~ms_tune.planning.time_scale.Clock`, in milliseconds.

    Args:
        source: A JSON file (docs/fit.md), or times such as ``dense=12.5/25,tail=3``: forward, or forward and backward.

    Raises:
        UsageError: It is neither.
        ConfigError: The file has no times.

    Example::

        report = api.fit("table.json", request=FitRequest(clock=Clock(times=api.layer_times("dense=12.5/25,tail=3"))))
        print(report.seconds(report.reference.time))
    """
    from ms_tune.errors import UsageError  # noqa: PLC0415 - start-up time
    from ms_tune.planning.time_scale import parse_times, read_times  # noqa: PLC0415 - as above
    from ms_tune.text import msg  # noqa: PLC0415 - as above

    if isinstance(source, Path) or "=" not in source:
        return read_times(_text(Path(source)), str(source))
    try:
        return parse_times(source)
    except ValueError:
        raise UsageError(msg("fit.usage.times", value=source)) from None


def _text(path: Path) -> str:
    from ms_tune.errors import ConfigError, reason_of  # noqa: PLC0415 - start-up time
    from ms_tune.text import msg  # noqa: PLC0415 - as above

    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(msg("planning.file.too-long", limit=_MOST_BYTES), path=path)
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = reason_of(error) if isinstance(error, OSError) else msg("planning.file.no-text")
        raise ConfigError(msg("planning.file.unreadable", why=why), path=path) from None
