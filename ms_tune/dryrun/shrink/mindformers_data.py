"""What stands around the model in a MindFormers config: data, checkpoints, callbacks, files on the user's disk.

Rules are those of ``mindformers/trainer/base_trainer.py`` and ``mindformers/models/build_config.py`` of MindFormers 1.9.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ms_tune.dryrun.job import Column
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.texts import msg

if TYPE_CHECKING:
    from ms_tune.dryrun.shrink.config_copy import ConfigCopy

MODEL = "model.model_config"
_MEGATRON = "BlendedMegatronDatasetDataLoader"
_BASE_COLUMNS = ("input_ids", "labels", "loss_mask", "position_ids")
_COLUMNS = (*_BASE_COLUMNS, "attention_mask", "actual_seq_len")
_DEFAULT_EOD_LENGTH = 128  # `eod_pad_length` of `GPTDatasetConfig`, mindformers/dataset/blended_datasets/gpt_dataset.py
_HF_CONFIG = "config.json"
_LARGEST_HF_CONFIG = 1 << 20
_LEGACY_SEQ_LENGTH = 2048  # `LlamaConfig`, mindformers/models/llama/llama_config.py
_SEQ_LENGTH = 4096  # `TransformerConfig`, mindformers/parallel_core/transformer_config.py


def is_legacy(config: ConfigCopy) -> bool:
    """Whether MindFormers builds the model with its older classes (the default where the config is silent)."""
    return bool(config.get("use_legacy", default=True))


def inline_model_folder(config: ConfigCopy) -> None:
    """Put the ``config.json`` of ``pretrained_model_dir`` into the config, as MindFormers merges the two.

    The values of the YAML win (``merge_model_config``). Weights in that folder would be loaded; nobody needs them here.

    Raises:
        ConfigError: The model's sizes are in a folder that is not there, or cannot be read.
    """
    key = next((key for key in ("pretrained_model_dir", "model.pretrained_model_dir") if config.get(key)), None)
    if key is None:
        return
    named = str(config.get(key))
    file = _found(named, config.path)
    if file is None:
        if has_layer_count(config):
            config.remove(key)
            return
        raise ConfigError(
            msg("dryrun.no-model-folder", key=key, folder=named), msg("dryrun.no-model-folder.hint"), path=config.path
        )
    for name, value in _read_hf_config(file).items():
        if name not in (config.get(MODEL) or {}):
            config.set(f"{MODEL}.{name}", value)
    config.remove(key)


def has_layer_count(config: ConfigCopy) -> bool:
    """Whether the config itself names the number of layers."""
    return any(config.get(f"{MODEL}.{key}") for key in ("num_hidden_layers", "num_layers"))


def _found(folder: str, config: Path) -> Path | None:
    places = [base / folder / _HF_CONFIG for base in (Path.cwd(), config.resolve().parent)]
    return next((place for place in places if place.is_file()), None)


def _read_hf_config(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > _LARGEST_HF_CONFIG:
            raise ConfigError(msg("dryrun.model-folder-json", reason=f"> {_LARGEST_HF_CONFIG} B"), path=file)
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(msg("dryrun.model-folder-json", reason=error), path=file) from error
    if not isinstance(data, dict):
        raise ConfigError(msg("dryrun.model-folder-json", reason=type(data).__name__), path=file)
    return data


def columns(config: ConfigCopy, length: int) -> tuple[Column, ...]:
    """The columns of the synthetic data set, which take the place of the user's.

    Args:
        config: The config.
        length: Tokens of a sample.

    Raises:
        ConfigError: The list of columns is none.
        UnsupportedError: A column is not known.
    """
    loader = _loader(config)
    default: tuple[str, ...] = (
        ("input_ids",) if is_legacy(config) and loader.get("type") != _MEGATRON else _BASE_COLUMNS
    )
    if loader.get("create_compressed_eod_mask"):
        default = (*_BASE_COLUMNS, "actual_seq_len")
    elif loader.get("create_attention_mask"):
        default = (*_BASE_COLUMNS, "attention_mask")
    names = config.names("train_dataset.input_columns", default)
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown:
        raise UnsupportedError(msg("dryrun.columns", columns=", ".join(unknown), known=", ".join(_COLUMNS)))
    eod = loader.get("eod_pad_length", loader.get("compressed_eod_mask_length", _DEFAULT_EOD_LENGTH))
    return tuple(_column(name, length, eod if type(eod) is int and eod > 0 else _DEFAULT_EOD_LENGTH) for name in names)


def _loader(config: ConfigCopy) -> dict[str, Any]:
    """The settings of the data loader, those of a Megatron data set (in ``config``) included."""
    loader = config.get("train_dataset.data_loader", {})
    inner = loader.get("config") if isinstance(loader, dict) else None
    return {**(loader if isinstance(loader, dict) else {}), **(inner if isinstance(inner, dict) else {})}


def _column(name: str, length: int, eod_length: int) -> Column:
    if name == "attention_mask":
        return Column(name, (1, length, length), "int32")
    if name == "actual_seq_len":
        return Column(name, (eod_length,), "int32")
    return Column(name, (length,), "float32" if name == "loss_mask" else "int32")


def sample_length(config: ConfigCopy) -> int:
    """Tokens of a sample.

    The older Llama cuts one off for the labels where the data set has not done so (``construct`` in
    mindformers/models/llama/llama.py: ``input_sliced_sig`` is off, or there is no column of labels).
    """
    default = _LEGACY_SEQ_LENGTH if is_legacy(config) else _SEQ_LENGTH
    length = config.count(f"{MODEL}.seq_length", default)
    names = config.names("train_dataset.input_columns", ("input_ids",))
    sliced = bool(config.get(f"{MODEL}.input_sliced_sig", default=False)) and "labels" in names
    cuts = is_legacy(config) and config.get("model.arch.type") == "LlamaForCausalLM"
    return length + 1 if cuts and not sliced else length


def batch_size(config: ConfigCopy) -> int:
    """Samples that one rank reads for one step: all its micro-batches (``_check_global_batch_size_for_auto_parallel``)."""
    size = config.count("runner_config.batch_size", 1)
    accumulated = config.count("runner_config.gradient_accumulation_steps", 1)
    if not config.get("use_parallel", default=False):
        return size * accumulated
    size *= config.count("micro_batch_interleave_num", 1)
    if config.get("parallel_config.pipeline_stage", 1) > 1:
        size *= config.count("parallel_config.micro_batch_num", 1)
    else:
        size *= accumulated
    if config.get("parallel.full_batch", default=False):
        size *= config.count("parallel_config.data_parallel", 1)
    return size


def settle_data_strategy(config: ConfigCopy, made: tuple[Column, ...]) -> None:
    """What MindFormers settles while it builds the user's data set, which is not built here.

    The columns are cut over the data-parallel ranks unless the config says otherwise, and a column of sequence lengths
    switches the compressed mask on (``_get_columns_with_strategy``).
    """
    if _loader(config).get("create_compressed_eod_mask"):
        config.set(f"{MODEL}.use_eod_attn_mask_compression", value=True)
    if not config.get("use_parallel", default=False) or config.get("parallel.full_batch", default=False):
        return
    if config.get("parallel.dataset_strategy") is None:
        data_parallel = config.count("parallel_config.data_parallel", 1)
        strategy = [[data_parallel, *([1] * len(column.shape))] for column in made]
        config.set("parallel.dataset_strategy", strategy)
        config.set("parallel.full_batch", value=False)


def take_out_the_surroundings(config: ConfigCopy) -> None:
    """Data, checkpoints, profiling and callbacks that write or wait: none of them takes device memory in a step."""
    for path in ("train_dataset", "train_dataset_task", "eval_dataset", "eval_dataset_task", "monitor_config"):
        config.remove(path)
    config.set("callbacks", [])
    config.set("runner_config.epochs", 1)
    for path, value in {"load_checkpoint": "", "resume_training": False, "profile": False}.items():
        if config.get(path):
            config.set(path, value)
    for path in ("auto_trans_ckpt", "only_save_strategy", "auto_tune", "do_eval"):
        if config.get(path):
            config.set(path, value=False)
    if config.get("output_dir"):
        config.set("output_dir", "./output")
    _settle_speed_up_file(config)


def _settle_speed_up_file(config: ConfigCopy) -> None:
    """The process runs in another folder: name the file by its whole path, or leave it out if it is not there."""
    key = "context.ascend_config.parallel_speed_up_json_path"
    named = config.get(key)
    if not named:
        return
    found = [folder / str(named) for folder in (Path.cwd(), config.path.resolve().parent)]
    existing = next((path for path in found if path.is_file()), None)
    if existing is None:
        config.remove(key)
    else:
        config.set(key, str(existing))
