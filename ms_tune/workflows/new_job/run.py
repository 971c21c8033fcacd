"""Choose the layout of a new job, write its files' texts, and simulate it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dialects.mindformers.read import MICRO_BATCHES
from ms_tune.dryrun.request import DryrunRequest, Setting
from ms_tune.enums import Dialect
from ms_tune.errors import MsTuneError, UnsupportedError, UsageError
from ms_tune.facts.models import MODEL_CONFIG
from ms_tune.facts.new_models import NewModel, describe_model, find_new_model
from ms_tune.fit.job import read_job
from ms_tune.job.includes import read_model_config
from ms_tune.planning.layouts import MOST_DEVICES
from ms_tune.records import Record
from ms_tune.text import Language, Message, msg, render
from ms_tune.workflows.check.config import OverviewRequest, inspect_config
from ms_tune.workflows.check.result import StageVerdict
from ms_tune.workflows.new_job.drafts import Draft, DraftRequest, fill_template, values_of, write_draft
from ms_tune.workflows.new_job.layouts import LONG, JobSize, list_candidates, nearest_samples, speed_of, step_seconds

if TYPE_CHECKING:
    from ms_tune.dryrun.task import Observer

TOKENS, SAMPLES = 4096, 512  # assumed if the user states neither
_MOST_TRIED = 400
_MOST_TIMES = 64  # times the devices that are looked at if a job does not fit


class NewJob(Record):
    """A job written from nothing."""

    size: JobSize
    draft: Draft  # the config that was chosen, or, if none fits, the one closest to the limit
    files: Mapping[Path, str]  # to be written: the config first, then the launch script
    assumed: tuple[Message, ...]  # for values that the user did not state
    enough: Draft | None = None  # on more devices, if it does not fit


def read_model(name: str | None, config: Path | None) -> NewModel:
    """Return the model that the user names, or whose ``config.json`` (or its folder) the user gives."""
    if config is None:
        return find_new_model(name or "")
    file = config / MODEL_CONFIG if config.is_dir() else config
    return describe_model(name or file.absolute().parent.name, read_model_config(file))


def choose_dialect(model: NewModel, wanted: Dialect | None) -> Dialect:
    """Return the wanted dialect, or the first that trains the model; UnsupportedError if it does not."""
    if wanted is not None and wanted not in model.dialects:
        others = ", ".join(one.value for one in model.dialects)
        error = msg("init.dialect", dialect=wanted.value, model=model.name)
        raise UnsupportedError(error, msg("init.dialect.hint", dialects=others))
    return wanted or model.dialects[0]


def plan_new_job(
    size: JobSize, job: DryrunRequest, language: Language, assumed: tuple[Message, ...], margin: float | None = None
) -> NewJob:
    """Return the files of a job whose layout has the least cost of those that are estimated to fit.

    ``margin`` is the ratio of the memory to leave to the estimate, if a dryrun showed it; else that of such jobs.
    """
    if size.devices > MOST_DEVICES:
        raise UsageError(msg("layouts.too-many-devices", devices=size.devices, most=MOST_DEVICES))
    assumed = (*assumed, *_list_rules(size))
    notes = tuple(render(one, language) for one in assumed)
    request = DraftRequest(size, job._replace(devices=size.devices, data=False), notes, margin)
    found = _find_cheapest(request)
    if found is None:
        choices = ", ".join(map(str, nearest_samples(size)))
        hint = msg("init.batch.hint", choices=choices) if choices else None
        raise UsageError(msg("init.batch", samples=size.samples, devices=size.devices), hint)
    files = {request.path: found.text}
    if size.dialect is not Dialect.MEGATRON:
        name = "hyper_parallel" if size.dialect is Dialect.HYPER_PARALLEL else "mindformers"
        files[request.launch] = fill_template(f"launch_{name}", values_of(request, found.layout))
    result = NewJob(size, found, files, assumed)
    return result if found.fits else result._replace(enough=_find_enough(request))


def simulate_new_job(job: DryrunRequest, observer: Observer) -> tuple[StageVerdict, ...]:
    """Return the verdict of a dryrun of each stage, with only as many micro-batches as its memory depends on."""
    planned = read_job(job)
    if planned.few_micro_batches != planned.first.pipeline.micro_batches:
        job = job._replace(settings=(Setting(MICRO_BATCHES, str(planned.few_micro_batches)),))
    return inspect_config(OverviewRequest(job), planned.loaded.source.path, None, observer).verdicts


def _list_rules(size: JobSize) -> tuple[Message, ...]:
    rules = [
        msg("init.rule.tensor", node=size.node),
        msg("init.rule.order", device=speed_of(size.chip).name),
        msg("init.rule.recompute"),
    ]
    if size.dialect is Dialect.HYPER_PARALLEL and (size.tokens >= LONG or size.model.has("experts")):
        rules.append(msg("init.rule.injected"))
    elif size.tokens >= LONG and size.dialect is not Dialect.HYPER_PARALLEL:
        rules.append(msg("init.rule.context", tokens=LONG))
    return tuple(rules)


def _find_cheapest(request: DraftRequest) -> Draft | None:
    # Try layouts from the cheapest without recomputation on, until none can be cheaper than the best that fits. If none fits,
    # return the one closest to the limit; None without a layout.
    size, best, least = request.size, None, None
    costs = sorted((step_seconds(size, one, 0), one) for one in list_candidates(size))
    lowest = float("inf")
    for cost, layout in costs[:_MOST_TRIED]:
        if cost >= lowest:
            break
        try:
            draft = write_draft(request, layout)
        except (MsTuneError, ArithmeticError):  # a layout that the framework refuses
            continue
        if draft.fits:
            real = step_seconds(size, layout, draft.share)
            best, lowest = (draft, real) if real < lowest else (best, lowest)
        elif least is None or draft.estimate.fullest.peak_bytes < least.estimate.fullest.peak_bytes:
            least = draft
    return best or least


def _find_enough(request: DraftRequest) -> Draft | None:
    times = 2
    while times <= _MOST_TIMES:
        devices = request.size.devices * times
        more = request._replace(size=request.size._replace(devices=devices), job=request.job._replace(devices=devices))
        found = _find_cheapest(more) if devices <= MOST_DEVICES else None
        if found is not None and found.fits:
            return found
        times *= 2
    return None
