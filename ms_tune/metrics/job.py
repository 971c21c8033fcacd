"""What a config, or a launch script, tells about a run that its log does not: operations, sizes, cards, stages."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from ms_tune.dialects.megatron.arguments import command_of
from ms_tune.dialects.megatron.plan import normalize_megatron
from ms_tune.dialects.megatron.read import ArgumentReader, NotEvaluableError, inputs_of, shape_of
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.estimate.flops import whole_number, widths_of, widths_of_shape
from ms_tune.job.job import Job, load_job
from ms_tune.job.script_arguments import jobs_in, release_of_scripts
from ms_tune.metrics.work import LayerWork, Work, layers_of, work_of
from ms_tune.planning.schedule import MOST_PASSES, Schedule, stage_passes, why_refused
from ms_tune.source import SCRIPTS
from ms_tune.source.shell.read import content, read_launches
from ms_tune.source.yaml import load_source, source_of
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.estimate.flops import Widths
    from ms_tune.planning.schedule import PipelinePass
    from ms_tune.source.shell.values import Argument
    from ms_tune.source.yaml import SourceFile

MOST = 10**9  # of any size that is multiplied


def bubble_share(schedule: Schedule, placement: Sequence[Sequence[int]], micro_batches: int) -> float | None:
    """The share of a step in which pipeline stages wait; None where no framework runs these sizes, or with too many passes to follow.

    The passes of the schedule are played with equal micro-batches: a backward pass takes two forward passes, sending takes
    no time, and chunks take what their layers do. What is left is the schedule's own, and the least that a run can have.
    """
    chunks, stages = len(placement), len(placement[0])
    if chunks * stages * micro_batches > MOST_PASSES or why_refused(schedule, stages, chunks, micro_batches):
        return None
    orders = [stage_passes(schedule, stage, stages, chunks, micro_batches) for stage in range(stages)]
    ends: dict[tuple[bool, int, int], float] = {}
    clock, place, moved = [0.0] * stages, [0] * stages, True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while place[stage] < len(order):
                one = order[place[stage]]
                cell = one.chunk * stages + stage
                ready = _input_ready_at(one, cell, stages * chunks, ends)
                if ready is None:
                    break
                length = placement[one.chunk][stage] * (1 if one.forward else 2)
                clock[stage] = ends[one.forward, cell, one.micro_batch] = max(clock[stage], ready) + length
                place[stage] += 1
                moved = True
    whole = max(clock)
    if not whole or any(at < len(order) for at, order in zip(place, orders, strict=True)):
        return None
    busy = 3 * micro_batches * sum(map(sum, placement))
    return 1 - busy / (stages * whole)


def _input_ready_at(one: PipelinePass, cell: int, cells: int, ends: dict[tuple[bool, int, int], float]) -> float | None:
    before = cell - 1 if one.forward else cell + 1
    if before < 0:
        return 0.0
    if before == cells:
        return ends.get((True, cell, one.micro_batch))
    return ends.get((one.forward, before, one.micro_batch))


@dataclass(frozen=True, slots=True)
class JobSplit:
    """How a job is cut; None is not known."""

    cards: int | None
    batch: int | None
    micro_batches: int | None
    schedule: Schedule


def split_of(source: SourceFile, dialect: Dialect, processes: int | None) -> JobSplit:
    """Cards and samples of a config's job.

    Args:
        source: The config.
        dialect: Its dialect.
        processes: How many cards there are, as the user or the launch script says; None where nobody does.
    """
    if dialect is Dialect.MINDFORMERS:
        return _split_mindformers(source.data, processes)
    if dialect is Dialect.MINDSPEED_MS:
        return _split_mindspeed(source.data, processes)
    return _split_pynative(source.data, processes)


def _split_mindformers(data: Mapping[object, object], processes: int | None) -> JobSplit:
    """MindFormers' static graph: ``global batch = batch_size x data_parallel x micro_batch_num`` (with stages) ``x accumulation``.

    On other cards than the config is for, its batch would be another one, too.
    """
    parallel = _read_section(data, "parallel_config")
    ways = [_read_number(parallel, name) or 1 for name in ("data_parallel", "model_parallel", "pipeline_stage")]
    context = _read_number(parallel, "context_parallel") or 1
    runner = _read_section(data, "runner_config")
    micro = (_read_number(parallel, "micro_batch_num") or 1) if ways[2] > 1 else 1
    size = _read_number(runner, "batch_size")
    more = (_read_number(runner, "gradient_accumulation_steps") or 1) * (
        _read_number(data, "micro_batch_interleave_num") or 1
    )
    batch = size * ways[0] * micro * more if size and parallel else None
    cards = prod(ways) * context if parallel else None
    if processes is not None and processes != cards:
        return JobSplit(processes, None, micro, Schedule.INTERLEAVED)
    return JobSplit(cards, batch, micro, Schedule.INTERLEAVED)


def _split_mindspeed(data: Mapping[object, object], processes: int | None) -> JobSplit:
    """MindSpeed-Core-MS r0.1.0: each data-parallel rank takes ``batch_size x micro_batch_num`` samples in a step.

    The number of these ranks follows from the cards (``initialize_model_parallel``).
    """
    parallel, dataset = _read_section(data, "parallel_config"), _read_section(data, "dataset_config")
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    ways = prod(_read_number(parallel, name) or 1 for name in names)
    micro, size = (_read_number(dataset, name) or 1 for name in ("micro_batch_num", "batch_size"))
    whole = processes is not None and processes % ways == 0
    batch = processes // ways * size * micro if processes is not None and whole else None
    return JobSplit(processes, batch, micro, Schedule.INTERLEAVED_FULL_WARM_UP)


def _split_pynative(data: Mapping[object, object], processes: int | None) -> JobSplit:
    """MindFormers' dynamic graph: the batch is written; data-parallel ranks are written, or all that are left (``parallel_dims.py``).

    The samples of a growing batch (``rampup_batch_size``) are not known.
    """
    parallel, training = _read_section(data, "parallelism"), _read_section(data, "training")
    ways = prod(
        _read_number(parallel, name) or 1 for name in ("tensor_parallel", "context_parallel", "pipeline_parallel")
    )
    shards = _read_number(parallel, "data_parallel_shard")
    copies = _read_number(parallel, "data_parallel_replicate") or 1
    cards = processes or (ways * shards * copies if shards else None)
    batch = None if training.get("rampup_batch_size") else _read_number(training, "global_batch_size") or 1
    micro = None
    if cards is not None and batch is not None and cards % ways == 0:
        micro, rest = divmod(batch, cards // ways * (_read_number(training, "local_batch_size") or 1))
        micro = None if rest else micro or None
    return JobSplit(cards, batch, micro, Schedule.INTERLEAVED_SPREAD)


def _read_section(data: object, name: str) -> Mapping[object, object]:
    found = data.get(name) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}


def _read_number(section: Mapping[object, object], name: str) -> int | None:
    value = section.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST else None


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What a config tells."""

    work: Work  # operations of one token
    tokens: int  # tokens of a sample
    batch: int | None  # samples of a step; None where the config does not tell
    cards: int | None  # devices; None likewise
    # Share of a step in which stages wait at least; None without stages, or where the schedule is not known.
    bubble: float | None
    stages: tuple[int, int, int] | None  # pipeline stages, chunks of each, and micro-batches of a step


def read_job(path: Path, version: str | None = None, cards: int | None = None) -> JobFacts:
    """Read a config, or a launch script: of a Megatron program, or of one that reads a config.

    Args:
        path: The file.
        version: The framework's release; None for the default.
        cards: The cards of the run, as the user says; None where only the files tell.

    Raises:
        ConfigError: It cannot be read, its framework refuses it, or a size is missing that operations follow from.
        UnsupportedError: It is of no dialect whose models are known.
    """
    if path.suffix in SCRIPTS:
        return _of_script(path, version, cards)
    return _of_config(load_job(path, version=version), cards)


def _of_config(job: Job, cards: int | None) -> JobFacts:
    path, plan, model = job.written.path, job.plan, job.model
    _refuse_unusable(path, plan)
    widths = widths_of(model)
    if widths is None:
        names = ("hidden_size", "num_attention_heads", "ffn_hidden_size", "vocab_size", "seq_length")
        missing = [name for name in names if not whole_number(model, name)]
        raise ConfigError(msg("metrics.config.sizes", missing=", ".join(missing)), path=path)
    count = sum(map(sum, plan.placement)) if plan.placement else len(plan.layers)
    dense = model.number("first_k_dense_replace") or 0
    layers = layers_of(plan.layers[:count], dense, experts=bool(widths.experts))
    ahead = min(whole_number(model, "mtp_num_layers") or 0, count)
    layers += (LayerWork(bool(widths.experts), prediction=True),) * ahead
    return _make_facts(widths, layers, split_of(job.source, job.dialect, cards), plan.placement)


def _make_facts(
    widths: Widths, layers: tuple[LayerWork, ...], split: JobSplit, placement: Sequence[Sequence[int]] | None
) -> JobFacts:
    waits, stages = None, None
    if placement and len(placement[0]) > 1 and split.micro_batches:
        schedule = split.schedule if len(placement) > 1 else Schedule.ONE_FORWARD_ONE_BACKWARD
        waits = bubble_share(schedule, placement, split.micro_batches)
        stages = (len(placement[0]), len(placement), split.micro_batches)
    return JobFacts(work_of(widths, layers), widths.tokens, split.batch, split.cards, waits, stages)


def _refuse_unusable(path: Path, plan: LayerPlan) -> None:
    if plan.failure is not None or not plan.layers:
        text = plan.failure.text if plan.failure else ""
        raise ConfigError(msg("metrics.config.refused", error=text), path=path)


def _of_script(path: Path, version: str | None, cards: int | None) -> JobFacts:
    script = read_launches(path)
    release = release_of_scripts(script, version)
    commands = (command_of(launch, release) for launch in script.launches)
    command = next((one for one in commands if one is not None), None)
    if command is None:
        return _of_started_config(path, version, cards)
    try:
        inputs = inputs_of(command)
        plan = normalize_megatron(inputs)
        _refuse_unusable(path, plan)
        widths = widths_of_shape(shape_of(ArgumentReader(command), len(plan.layers)))
    except NotEvaluableError as error:
        names = {"argument": error.argument, "variable": error.variable}
        raise ConfigError(msg("check.script.unknown", **names), path=path) from error
    except UnsupportedError as error:
        raise ConfigError(error.message, error.hint, path=path) from error
    layers = layers_of(plan.layers, 0, experts=bool(widths.experts))
    batch = command.integer("global_batch_size")
    processes = cards or command.launch.processes
    split = JobSplit(processes, batch, inputs.micro_batches, Schedule.INTERLEAVED_FULL_WARM_UP)
    return _make_facts(widths, layers, split, plan.placement)


def _of_started_config(path: Path, version: str | None, cards: int | None) -> JobFacts:
    """The config that a script starts a job with, with what its command says over it, on as many cards as it says."""
    for job in jobs_in(path, content(path)):
        if job.path is None or not job.path.is_file():
            continue
        source = load_source(job.path)
        if job.overrides:
            source = source_of(_with_overrides(source.data, job.overrides), job.path)
        return _of_config(Job(source, version=version), cards or job.processes)
    raise UnsupportedError(msg("metrics.config.no-program"))


def _with_overrides(
    data: dict[Any, Any], overrides: Mapping[tuple[str, ...], tuple[object, Argument]]
) -> dict[Any, Any]:
    whole = deepcopy(data)
    for path, (value, _) in overrides.items():
        section = whole
        for name in path[:-1]:
            inner = section.get(name)
            section[name] = section = inner if isinstance(inner, dict) else {}
        section[path[-1]] = value
    return whole
