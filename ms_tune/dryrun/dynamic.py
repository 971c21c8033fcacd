"""Run dynamic-graph configs with their own framework if it is installed, else with ms-tune's reference transformer.

Only this module imports :mod:`ms_tune.reference`, which also reads the configs for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ms_tune.dialects import FrameworkStop, parse_specs, write_specs
from ms_tune.dialects.job_parts import SettingChange, Sharding, TrainingConfig
from ms_tune.dialects.stage import Stage, StageLayer, resize_stage, stage_of
from ms_tune.dryrun.job import PYNATIVE_LOADER, Column, MindSpeedJob, PynativeJob
from ms_tune.dryrun.request import STEPS, DryrunRequest, Pipeline, PreparedRun, Split
from ms_tune.dryrun.shrink.config_copy import ConfigCopy
from ms_tune.dryrun.shrink.mindformers_data import BASE_COLUMNS, make_columns
from ms_tune.enums import Dialect
from ms_tune.errors import UnsupportedError, UsageError
from ms_tune.facts.keys import registered
from ms_tune.facts.models import LAYERS, names_of
from ms_tune.facts.query import load, served
from ms_tune.facts.training import Framework, mindspeed_framework, pynative_framework
from ms_tune.planning.schedule import Schedule, enough_micro_batches
from ms_tune.reference.job import ReferenceJob, theory_of
from ms_tune.reference.mindspeed import check_mindspeed_served, read_mindspeed
from ms_tune.reference.pynative import check_pynative_served, read_pynative_job
from ms_tune.reference.read import DynamicJob, Placed, check_devices, check_sizes
from ms_tune.source.yaml import SourceFile
from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from ms_tune.dialects import JobView

_READERS = {Dialect.MINDSPEED_MS: read_mindspeed, Dialect.MINDFORMERS_PYNATIVE: read_pynative_job}
_SERVED = {Dialect.MINDSPEED_MS: check_mindspeed_served, Dialect.MINDFORMERS_PYNATIVE: check_pynative_served}
# Up to so many micro-batches are all run: omitting some would save little time. Sharded weights are gathered again for
# each micro-batch, which takes longer.
_FEW = {Sharding.NONE: 8, Sharding.OPTIMIZER: 8, Sharding.PARAMETERS: 0}
_MODEL_NAMES = ((("model", "model_type"), "core_config"), (("model", "architectures"), "core_model"))
_CONFIG_FILE = "config.yaml"
_DEFAULT_COLUMNS = ("input_ids", "labels")  # ``DataloaderConfig``
_EOD_LENGTHS = ("eod_pad_length", "compressed_eod_mask_length")


def prepare_dynamic(config: JobView, name: str, request: DryrunRequest, devices: int | None) -> PreparedRun:
    """Prepare a run of one stage with the config's own framework or with the reference transformer."""
    source, dialect = config.original, config.dialect
    job = _READERS[dialect](config, devices)
    installed = mindspeed_framework if dialect is Dialect.MINDSPEED_MS else pynative_framework
    framework = None if request.reference else installed()
    not_started = (msg("pynative.not-started", missing=framework),) if isinstance(framework, Message) else ()
    if not isinstance(framework, Framework):
        _SERVED[dialect](source, job.config)
    check_devices(job, source.path)
    check_sizes(job.config, source.path, job.names)
    parallel, chunks = job.config.parallelism, job.config.parallelism.virtual_pipeline or 1
    if not 0 <= request.stage < parallel.pipeline:
        raise UsageError(msg("dryrun.stage", stage=request.stage, stages=parallel.pipeline))
    full = stage_of(job.layers, request.stage, parallel.pipeline, chunks)
    stage = full if request.layers in (None, full.layers) else resize_stage(full, request.layers or 0)
    changes = () if stage is full else tuple(job.layer_changes(job.layers, _with_stage(job.layers, stage)))
    micro_batches, fewer = _micro_batches(job)
    reduced = job.config._replace(batch=job.config.batch._replace(micro_batch_num=micro_batches))
    world_size = job.devices
    experts = parallel.expert if job.config.shape.experts else 1
    split = Split(world_size // parallel.model_size, parallel.tensor, parallel.pipeline, parallel.context, experts)
    warnings = job.warnings
    if job.config.optimizer.sharding is not Sharding.NONE and split.data * split.context == 1:
        warnings = (*warnings, msg("stages.devices.alone", devices=world_size, more=8 * world_size))
    reference = ReferenceJob(reduced, stage, split.data, STEPS)
    rank = request.stage * (world_size // parallel.pipeline)
    own_model = _own_model(source, dialect)
    run = PreparedRun(
        job=reference,
        dialect=dialect,
        config_name=name,
        packaged=request.config is None,
        configs={},
        world_size=world_size,
        rank=rank,
        stage=request.stage,
        stages=parallel.pipeline,
        layers=stage.layers,
        shrunk=stage is not full,
        model=msg("dryrun.model.reference"),
        max_device_memory=None,
        changes=(*changes, *fewer),
        not_included=(*not_started, *own_model, *job.not_included),
        warnings=warnings,
        kinds=stage.kinds,
        theory=theory_of(reference, rank),
        split=split,
        pipeline=_pipeline_of(job.config),
        standing=(*job.validated, *job.unproved),
        unproved=(*own_model, *job.unproved),
    )
    if not isinstance(framework, Framework):
        return run
    left = None if stage is full else [layer for _, _, layer in _with_stage(job.layers, stage)]
    try:
        _SERVED[dialect](source, reduced)
    except UnsupportedError:  # the arithmetic is that of the reference transformer, which differs from this config
        run = run._replace(theory={})
    return _by_framework(run, source, framework, left)


def _own_model(source: SourceFile, dialect: Dialect) -> tuple[Message, ...]:
    # Return a note if the model is the user's own code: no release has a registered class of that name.
    for path, kind in _MODEL_NAMES if dialect is Dialect.MINDFORMERS_PYNATIVE else ():
        given = source.get(path)
        name = given[0] if isinstance(given, list) and given else given
        if isinstance(name, str) and not any(name in registered(kind, one, dialect) for one in served(dialect)):
            return (msg("pynative.not-included.own-model", name=name),)
    return ()


def _by_framework(
    run: PreparedRun, source: SourceFile, framework: Framework, left: Sequence[StageLayer] | None
) -> PreparedRun:
    # Return the same run with the framework's own code; ``left`` are the remaining layers if some were removed.
    if run.dialect is Dialect.MINDFORMERS_PYNATIVE:
        trained, configs, changes = trainer_job(source, run.changes, left)
        return run._replace(
            job=trained._replace(**_p2p_shape(run.job.config)) if isinstance(run.job, ReferenceJob) else trained,
            configs=configs,
            model=msg("pynative.by-trainer", framework=framework.name),
            changes=changes,
            not_included=(msg("pynative.not-included.data"), msg("pynative.not-included.surroundings")),
            standing=(),
            unproved=(),
        )
    # The parts validated against r0.1.0 stay: the framework's own code is that of r0.1.0.
    job, configs, changes = _framework_job(source, run.changes, framework)
    model, without = msg("reference.by-framework", framework=framework.name), (msg("reference.not-included.data"),)
    return run._replace(job=job, configs=configs, model=model, changes=changes, not_included=without, unproved=())


def _with_stage(layers: Sequence[Placed], stage: Stage) -> list[Placed]:
    others = [place for place in layers if place[1] != stage.number]
    own = [(number, stage.number, layer) for number, chunk in enumerate(stage.chunks) for layer in chunk.layers]
    return sorted([*others, *own], key=lambda place: place[2].number)


def _micro_batches(job: DynamicJob) -> tuple[int, tuple[SettingChange, ...]]:
    # Return the number of micro-batches to run: enough until memory repeats.
    parallel, wanted = job.config.parallelism, job.config.batch.micro_batch_num
    if parallel.virtual_pipeline and wanted % parallel.pipeline:
        return wanted, ()  # with fewer, the first round would be shorter
    enough = enough_micro_batches(parallel.pipeline, parallel.virtual_pipeline or 1)
    if wanted <= max(_FEW[job.config.optimizer.sharding], enough):
        return wanted, ()
    key, factor = job.batch_key
    return enough, (SettingChange(key, wanted * factor, enough * factor),)


def _pipeline_of(config: TrainingConfig) -> Pipeline:
    parallel = config.parallelism
    chunks, several = parallel.virtual_pipeline or 1, Schedule.INTERLEAVED_SPREAD
    if config.shape.legacy:
        several = Schedule.INTERLEAVED_FULL_WARM_UP
    schedule = several if chunks > 1 else Schedule.ONE_FORWARD_ONE_BACKWARD
    return Pipeline(schedule, parallel.pipeline, chunks, config.batch.micro_batch_num)


def _p2p_shape(config: TrainingConfig) -> dict[str, Any]:
    parallel, shape = config.parallelism, config.shape
    if parallel.pipeline == 1:
        return {}
    tokens = shape.seq_length // parallel.context // (parallel.tensor if parallel.sequence else 1)
    handed = (tokens, config.batch.micro_batch_size, shape.hidden_size)
    return {"handed": handed, "handed_dtype": (config.precision.compute or config.precision.parameters).value}


def _framework_job(
    source: SourceFile, changes: Iterable[SettingChange], framework: Framework
) -> tuple[MindSpeedJob, dict[str, dict[str, Any]], tuple[SettingChange, ...]]:
    config = ConfigCopy(source.data, source.path)
    for change in changes:
        config.set(change.key, change.after)
    for key in load("simulation")[Dialect.MINDSPEED_MS.value]["removed"]:
        if config.get(key):
            config.remove(key)
    config.set("training_config.training_iters", STEPS)
    job = MindSpeedJob(framework.package, _CONFIG_FILE, STEPS)
    return job, {_CONFIG_FILE: config.data}, config.changes


def trainer_job(
    source: SourceFile, changes: Iterable[SettingChange], layers: Sequence[StageLayer] | None
) -> tuple[PynativeJob, dict[str, dict[str, Any]], tuple[SettingChange, ...]]:
    """Return the job with the config for the trainer, the config files, and all changes."""
    settings = load("simulation")[Dialect.MINDFORMERS_PYNATIVE.value]
    config = ConfigCopy(source.data, source.path, settings["sections"])
    if config.get("run_mode", "train") != "train":
        raise UnsupportedError(msg("dryrun.run-mode", mode=config.get("run_mode")), msg("dryrun.run-mode.hint"))
    write_layers(config, changes, layers)
    length = config.count("model.seq_length", 1)
    columns = _replace_data_set(config, length)
    for key in settings["removed"]:
        if config.get(key):
            config.remove(key)
    config.set("checkpoint.enable_save", value=False)
    config.set("training.steps", STEPS)
    samples = STEPS * config.count("training.global_batch_size", 1)
    job = PynativeJob(_CONFIG_FILE, columns, length, samples, STEPS)
    return job, {_CONFIG_FILE: config.data}, config.changes


def _replace_data_set(config: ConfigCopy, length: int) -> tuple[Column, ...]:
    # Replace the data set by one with the same columns that needs no files. If one rank's data set is broadcast to others
    # (``use_distribute_dataset``), each rank gets its own: in simulation nothing arrives.
    loader = config.get("train_dataset.dataloader", {})
    inner = loader.get("config")
    settings = {**loader, **(inner if isinstance(inner, dict) else {})}
    compressed = bool(settings.get("create_compressed_eod_mask"))
    # Return the data set's columns, named after the arguments of the model (``GPTModel.construct``).
    default: tuple[str, ...] = _DEFAULT_COLUMNS
    if compressed:
        default = (*BASE_COLUMNS, "actual_seq_len")
    elif settings.get("create_attention_mask"):
        default = (*BASE_COLUMNS, "attention_mask")
    names = config.names("train_dataset.dataloader.column_names", default)
    lengths = (settings.get(key) for key in _EOD_LENGTHS)
    columns = make_columns(names, length, next((value for value in lengths if type(value) is int and value > 0), None))
    made = {
        "type": PYNATIVE_LOADER,
        "column_names": [column.name for column in columns],
        "config": {"create_compressed_eod_mask": compressed},
    }
    config.set("train_dataset", {"dataloader": made, "num_parallel_workers": 1})
    return columns


_COUNT = "model.num_hidden_layers"
_FREQUENCY = "model.moe_layer_freq"
_NAMED_DENSE = "model.mlp_only_layers"
_FIRST_DENSE = "model.first_k_dense_replace"
_RECOMPUTE_LISTS = {"full": "recompute.full_recompute_layer", "select": "recompute.select_module"}


def write_layers(config: ConfigCopy, changes: Iterable[SettingChange], layers: Sequence[StageLayer] | None) -> None:
    """Write the changes and the remaining layers, numbered as in the full model (None if none was removed), into a config."""
    for change in changes:
        config.set(_own_key(config, change.key), change.after)
    if layers is None:
        return
    ordinary = [layer.experts for layer in layers if not layer.mtp]
    _write_experts(config, ordinary)
    _renumber_lists(config, [layer.number for layer in layers])
    mode = config.get("recompute.mode")
    what = _RECOMPUTE_LISTS.get(mode) if isinstance(mode, str) else None
    if what and not config.get(what):
        # distributed/activation_checkpoint.py, ``_validate_recompute_structure``: the mode requires at least one layer.
        config.set("recompute.mode", "None")


def _own_key(config: ConfigCopy, key: str) -> str:
    # Return the config's own name of a key: MindFormers rejects two names for the number of layers.
    if key != _COUNT:
        return key
    return next((f"model.{name}" for name in names_of(LAYERS) if config.get(f"model.{name}") is not None), key)


def _write_experts(config: ConfigCopy, experts: Sequence[bool]) -> None:
    # Write which layers have experts, if the config contains more than the number of dense layers at the front.
    # parallel_core/transformer_config.py: a list has an entry per layer, and must agree with ``first_k_dense_replace`` or
    # replace it.
    frequency = config.get(_FREQUENCY)
    if not isinstance(frequency, list) and frequency in (None, 1) and not config.get(_NAMED_DENSE):
        return
    config.set(_FREQUENCY, [int(one) for one in experts])
    for key in (_FIRST_DENSE, _NAMED_DENSE):
        if config.get(key) is not None:
            config.remove(key)


def _renumber_lists(config: ConfigCopy, numbers: Sequence[int]) -> None:
    # Renumber the lists of layers that only the framework reads, for the remaining layers.
    def keep(specs: Any) -> Any:  # noqa: ANN401 - as the config has it
        try:
            named = set(parse_specs(specs))
        except (FrameworkStop, TypeError):
            return specs  # if it is not a list of layers, the framework rejects or ignores it
        return write_specs([new for new, old in enumerate(numbers) if old in named])

    for key in ("recompute.exclude_op", "recompute_comm.select_module"):
        named = config.get(key)
        if isinstance(named, dict):
            config.set(key, {pattern: keep(specs) for pattern, specs in named.items()})
    for key in ("swap.layer_swap", "swap.op_swap"):
        entries = config.get(key)
        if isinstance(entries, list):
            listed = [isinstance(entry, dict) and "layers" in entry for entry in entries]
            made = [
                {**one, "layers": keep(one["layers"])} if has else one for one, has in zip(entries, listed, strict=True)
            ]
            config.set(key, made)
