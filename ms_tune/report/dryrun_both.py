"""Both figures of a dynamic-graph config, as a text to send in and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_tune.report.memory_words import by_name
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ms_tune.dryrun.both import BothFigures, SideFigures
    from ms_tune.dryrun.result import StageResult
    from ms_tune.report.console import Console

_WIDTH = 14


def to_text(found: BothFigures, console: Console) -> str:
    """What is written to the file, and shown: releases, figures by stage and content, the config."""
    return "\n".join(_lines(found, console)) + "\n"


def _lines(found: BothFigures, console: Console) -> Iterator[str]:
    yield console.text("dryrun.both.head", dialect=found.dialect.value)
    absent = console.text("dryrun.check.absent")
    yield ", ".join(f"{name} {version or absent}" for name, version in found.releases.items())
    yield ""
    titles = (found.real.model, console.text("dryrun.both.reference"), console.text("dryrun.both.difference"))
    yield f"{console.text('dryrun.both.unit'):<28}{''.join(f'{one:>{_WIDTH + 6}}' for one in titles)}"
    for figures in (found.real, found.reference):
        if figures.failure:
            yield console.text("dryrun.both.failed", model=figures.model, failure=figures.failure)
    for real, reference in _pairs(found):
        yield from _stage(real, reference, console)
    yield ""
    yield console.text("dryrun.both.config")
    yield found.config.rstrip("\n")


def _pairs(found: BothFigures) -> Iterator[tuple[StageResult | None, StageResult | None]]:
    real, reference = (
        {(one.run.stage, one.run.rank): one for one in side.stages} for side in (found.real, found.reference)
    )
    for key in dict.fromkeys((*real, *reference)):
        yield real.get(key), reference.get(key)


def _stage(real: StageResult | None, reference: StageResult | None, console: Console) -> Iterator[str]:
    one = real or reference
    if one is None:
        return
    yield console.text("dryrun.both.stage", stage=one.run.stage, rank=one.run.rank, layers=one.layers)
    old, new = _contents(real), _contents(reference)
    for name in dict.fromkeys((*old, *new)):
        title = console.text("dryrun.both.peak" if name == "peak" else f"memory.content.{name}")
        cells = [f"{side[name] / MIB:,.1f}" if name in side else "-" for side in (old, new)]
        both = name in old and name in new
        gap = f"{(new[name] - old[name]) / MIB:+,.1f}" if both else "-"
        yield f"  {title:<26}{''.join(f'{cell:>{_WIDTH + 6}}' for cell in (*cells, gap))}"


def _contents(stage: StageResult | None) -> dict[str, int]:
    if stage is None:
        return {}
    return {"peak": stage.judged_bytes, **by_name(stage.contents)}


def to_json(found: BothFigures) -> dict[str, Any]:
    """Its keys are documented in ``docs/dryrun.md``."""
    return {
        "version": 1,
        "dialect": found.dialect.value,
        "releases": dict(found.releases),
        "real": _figures(found.real),
        "reference": _figures(found.reference),
        "config": found.config,
    }


def _figures(figures: SideFigures) -> Mapping[str, Any]:
    stages = [
        {
            "stage": one.run.stage,
            "rank": one.run.rank,
            "layers": one.layers,
            "peak_bytes": one.judged_bytes,
            "categories_at_peak": by_name(one.contents),
        }
        for one in figures.stages
    ]
    return {"model": figures.model, "failure": figures.failure or None, "stages": stages}
