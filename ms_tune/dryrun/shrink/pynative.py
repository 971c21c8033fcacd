"""Prepare runs of ``mindformers-pynative`` configs with MindFormers' own dynamic-graph trainer on synthetic samples.

The keys are those of ``mindformers/pynative/config/config.py`` of MindFormers 2.0 and 2.1; the trainer reads them in
``pynative/trainer/trainer.py`` and ``pynative/trainer/utils.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ms_tune.dialects import FrameworkStop, parse_specs, write_specs
from ms_tune.dialects.job_parts import SettingChange
from ms_tune.dialects.stage import StageLayer
from ms_tune.dryrun.job import PYNATIVE_LOADER, Column, PynativeJob
from ms_tune.dryrun.request import STEPS
from ms_tune.dryrun.shrink.config_copy import ConfigCopy
from ms_tune.dryrun.shrink.mindformers_data import BASE_COLUMNS, make_columns
from ms_tune.errors import UnsupportedError
from ms_tune.facts.models import LAYERS, names_of
from ms_tune.source.yaml import SourceFile
from ms_tune.text import msg

_CONFIG_FILE = "config.yaml"
_SECTIONS = (
    *("checkpoint", "training", "parallelism", "model", "train_dataset", "train_dataset.dataloader"),
    *("recompute", "recompute_comm", "swap"),
)
# Settings that read, write or wait, and that a run of a few steps does not need. A growing batch is run at its full size.
_SURROUNDINGS = (
    *("checkpoint.load_path", "checkpoint.base_load_path", "checkpoint.save_trainable_only", "eval_dataset"),
    *("callbacks", "monitor", "profiler", "training.rampup_batch_size"),
)
_DEFAULT_COLUMNS = ("input_ids", "labels")  # ``DataloaderConfig``
_EOD_LENGTHS = ("eod_pad_length", "compressed_eod_mask_length")


def trainer_job(
    source: SourceFile, changes: Iterable[SettingChange], layers: Sequence[StageLayer] | None
) -> tuple[PynativeJob, dict[str, dict[str, Any]], tuple[SettingChange, ...]]:
    """Return the job with the config for the trainer, the config files, and all changes."""
    config = ConfigCopy(source.data, source.path, _SECTIONS)
    if config.get("run_mode", "train") != "train":
        raise UnsupportedError(msg("dryrun.run-mode", mode=config.get("run_mode")), msg("dryrun.run-mode.hint"))
    write_layers(config, changes, layers)
    length = config.count("model.seq_length", 1)
    columns = _replace_data_set(config, length)
    for key in _SURROUNDINGS:
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
    columns = _data_columns(config, settings, length, compressed=compressed)
    made = {
        "type": PYNATIVE_LOADER,
        "column_names": [column.name for column in columns],
        "config": {"create_compressed_eod_mask": compressed},
    }
    config.set("train_dataset", {"dataloader": made, "num_parallel_workers": 1})
    return columns


def _data_columns(config: ConfigCopy, settings: dict[Any, Any], length: int, *, compressed: bool) -> tuple[Column, ...]:
    # Return the data set's columns, named after the arguments of the model (``GPTModel.construct``).
    default: tuple[str, ...] = _DEFAULT_COLUMNS
    if compressed:
        default = (*BASE_COLUMNS, "actual_seq_len")
    elif settings.get("create_attention_mask"):
        default = (*BASE_COLUMNS, "attention_mask")
    names = config.names("train_dataset.dataloader.column_names", default)
    lengths = (settings.get(key) for key in _EOD_LENGTHS)
    return make_columns(names, length, next((value for value in lengths if type(value) is int and value > 0), None))


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
