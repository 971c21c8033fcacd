"""``mindformers-pynative`` configs, run with MindFormers' own dynamic-graph trainer on synthetic samples.

Keys are those of ``mindformers/pynative/config/config.py`` of MindFormers 2.0 and 2.1; what the trainer does with them is
in ``pynative/trainer/trainer.py`` and ``pynative/trainer/utils.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_tune.dryrun.job import PYNATIVE_LOADER, Column, PynativeJob
from ms_tune.dryrun.request import STEPS
from ms_tune.dryrun.shrink.config_copy import ConfigCopy
from ms_tune.dryrun.shrink.mindformers_data import BASE_COLUMNS, synthetic
from ms_tune.dryrun.shrink.pynative_layers import write_layers
from ms_tune.errors import UnsupportedError
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ms_tune.dialects.job_parts import SettingChange
    from ms_tune.dialects.stage import StageLayer
    from ms_tune.source.yaml import SourceFile

_CONFIG_FILE = "config.yaml"
_SECTIONS = (
    *("checkpoint", "training", "parallelism", "model", "train_dataset", "train_dataset.dataloader"),
    *("recompute", "recompute_comm", "swap"),
)
# What reads, writes or waits, and what a run of a few steps has no use for. A batch that grows is run at its full size.
_SURROUNDINGS = (
    *("checkpoint.load_path", "checkpoint.base_load_path", "checkpoint.save_trainable_only", "eval_dataset"),
    *("callbacks", "monitor", "profiler", "training.rampup_batch_size"),
)
_DEFAULT_COLUMNS = ("input_ids", "labels")  # ``DataloaderConfig``
_EOD_LENGTHS = ("eod_pad_length", "compressed_eod_mask_length")


def trainer_job(
    source: SourceFile, changes: Iterable[SettingChange], layers: Sequence[StageLayer] | None
) -> tuple[PynativeJob, dict[str, str], tuple[SettingChange, ...]]:
    """The config as the trainer will read it.

    Args:
        source: The user's config.
        changes: What is not run as it says: layers, micro-batches.
        layers: The layers that are run, if they are not those of the config.

    Returns:
        The job, its files, and all that was changed.

    Raises:
        ConfigError: A section or a value is of the wrong kind.
        UnsupportedError: It is no config for training, or its data set has columns that nobody knows.
    """
    config = ConfigCopy(source.data, source.path, _SECTIONS)
    if config.get("run_mode", "train") != "train":
        raise UnsupportedError(msg("dryrun.run-mode", mode=config.get("run_mode")), msg("dryrun.run-mode.hint"))
    write_layers(config, changes, layers)
    length = config.count("model.seq_length", 1)
    columns = _put_data_in_place(config, length)
    for key in _SURROUNDINGS:
        if config.get(key):
            config.remove(key)
    config.set("checkpoint.enable_save", value=False)
    config.set("training.steps", STEPS)
    samples = STEPS * config.count("training.global_batch_size", 1)
    job = PynativeJob(_CONFIG_FILE, columns, length, samples, STEPS)
    return job, {_CONFIG_FILE: config.text()}, config.changes


def _put_data_in_place(config: ConfigCopy, length: int) -> tuple[Column, ...]:
    """Name a data set of the same columns that no file is needed for.

    One rank's data set that is broadcast to others (``use_distribute_dataset``) becomes one of each rank's own: in
    simulation nothing arrives.
    """
    loader = config.get("train_dataset.dataloader", {})
    inner = loader.get("config")
    settings = {**loader, **(inner if isinstance(inner, dict) else {})}
    compressed = bool(settings.get("create_compressed_eod_mask"))
    columns = _columns(config, settings, length, compressed=compressed)
    made = {
        "type": PYNATIVE_LOADER,
        "column_names": [column.name for column in columns],
        "config": {"create_compressed_eod_mask": compressed},
    }
    config.set("train_dataset", {"dataloader": made, "num_parallel_workers": 1})
    return columns


def _columns(config: ConfigCopy, settings: dict[Any, Any], length: int, *, compressed: bool) -> tuple[Column, ...]:
    """What the data set gives the model, by the names of its arguments (``GPTModel.construct``)."""
    default: tuple[str, ...] = _DEFAULT_COLUMNS
    if compressed:
        default = (*BASE_COLUMNS, "actual_seq_len")
    elif settings.get("create_attention_mask"):
        default = (*BASE_COLUMNS, "attention_mask")
    names = config.names("train_dataset.dataloader.column_names", default)
    lengths = (settings.get(key) for key in _EOD_LENGTHS)
    return synthetic(names, length, next((value for value in lengths if type(value) is int and value > 0), None))
