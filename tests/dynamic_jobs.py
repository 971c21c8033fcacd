"""Prepare runs of dynamic-graph configs that are in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dryrun import dynamic
from ms_tune.job import Job
from ms_tune.reference import mindspeed

if TYPE_CHECKING:
    from ms_tune.dryrun.request import DryrunRequest, PreparedRun
    from ms_tune.enums import Dialect
    from ms_tune.reference.read import DynamicJob
    from ms_tune.source.yaml import SourceFile


def prepare(
    source: SourceFile, name: str, request: DryrunRequest, devices: int | None, dialect: Dialect
) -> PreparedRun:
    """Prepare a run of one stage of a config."""
    return dynamic.prepare_dynamic(Job(source, dialect=dialect), name, request, devices)


def read_mindspeed(source: SourceFile, devices: int | None) -> DynamicJob:
    """Return the job of a MindSpeed-Core-MS config."""
    return mindspeed.read_mindspeed(Job(source), devices)
