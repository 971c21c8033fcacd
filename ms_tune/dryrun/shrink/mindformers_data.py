"""Replace the parts of a MindFormers config around the model: data, checkpoints, callbacks, files on the user's disk.

The rules are those of ``mindformers/trainer/base_trainer.py`` and ``mindformers/models/build_config.py`` of MindFormers 1.9.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ms_tune.dryrun.job import Column
from ms_tune.dryrun.shrink.config_copy import ConfigCopy
from ms_tune.enums import Dialect
from ms_tune.errors import UnknownSizesError, UnsupportedError
from ms_tune.facts.keys import mindspore_values
from ms_tune.facts.models import LAYERS, facts_of, is_legacy, names_of
from ms_tune.facts.query import load
from ms_tune.job import Job
from ms_tune.records import Any
from ms_tune.text import Message, msg

MODEL = "model.model_config"
_MEGATRON = "BlendedMegatronDatasetDataLoader"
_MASKS = ("create_compressed_eod_mask", "create_attention_mask")
_SPLITS = ("data_parallel", "model_parallel", "context_parallel", "expert_parallel", "pipeline_stage")
BASE_COLUMNS = ("input_ids", "labels", "loss_mask", "position_ids")
_COLUMNS = (*BASE_COLUMNS, "attention_mask", "actual_seq_len")
# `eod_pad_length` of `GPTDatasetConfig`, mindformers/dataset/blended_datasets/gpt_dataset.py; dynamic graph: `init_gpt_dataset_config`
# of dataset/dataloader/blended_megatron_dataloader.py
_DEFAULT_EOD_LENGTH = 128
# Read only from the YAML, before its values are merged with those of `config.json` (``build_network``).
OF_THE_YAML = ("quantization_config", "pet_config", "checkpoint_name_or_path")


def inline_model_config(config: ConfigCopy, job: Job) -> tuple[Message, ...]:
    """Merge the ``config.json`` of the model into the config, as MindFormers does with that of ``pretrained_model_dir``.

    The values of the YAML have priority (``merge_model_config``). The weights in that folder are not needed here. If the sizes are
    assumed, return a note; if nothing states them, a warning: defaults of the model's class replace them.
    """
    key = next((key for key in ("pretrained_model_dir", "model.pretrained_model_dir") if config.get(key)), None)
    content, sizes = job.source.model_config, job.sizes
    if key is not None and is_legacy(config.data):  # older models have all sizes in the config
        config.remove(key)
        return ()
    if content is None and key is None:
        _check_named(config)
        return ()
    if content is None and key is not None:
        named = str(config.get(key))
        if not (any(config.get(f"{MODEL}.{key}") for key in names_of(LAYERS)) and _names_model(config)):
            text = msg("dryrun.no-model-folder", key=key, folder=named)
            raise UnknownSizesError(text, msg("sizes.unknown.hint"), path=config.path)
        config.remove(key)
        return (msg("dryrun.warning.no-model-folder", key=key, folder=named),)
    for name, value in (content or {}).items():
        if name not in (config.get(MODEL) or {}) and name not in OF_THE_YAML:
            config.set(f"{MODEL}.{name}", value)
    if key is not None:
        config.remove(key)
    _check_named(config)
    return (msg("sizes.assumed", model=sizes.model, key=sizes.key),) if sizes.model is not None else ()


def _names_model(config: ConfigCopy) -> bool:
    # Return whether MindFormers can find the model's class (``get_instance_type_from_cfg``, tools/register/register.py).
    return is_legacy(config.data) or config.get(f"{MODEL}.model_type") is not None


def _check_named(config: ConfigCopy) -> None:
    if not _names_model(config):
        raise UnknownSizesError(msg("dryrun.no-model-type"), msg("dryrun.no-model-type.hint"), path=config.path)


def synthetic_columns(config: ConfigCopy, length: int) -> tuple[Column, ...]:
    """Return the columns of the synthetic data set, which replaces the user's."""
    if config.get("train_dataset.eod_reset"):
        raise UnsupportedError(msg("dryrun.eod-reset"), msg("dryrun.eod-reset.hint"))
    loader = _loader_settings(config)
    default: tuple[str, ...] = (
        ("input_ids",) if is_legacy(config.data) and loader.get("type") != _MEGATRON else BASE_COLUMNS
    )
    if loader.get("create_compressed_eod_mask"):
        default = (*BASE_COLUMNS, "actual_seq_len")
    elif loader.get("create_attention_mask") or _packs_samples(loader):
        default = (*BASE_COLUMNS, "attention_mask")
    key = "output_columns" if config.get("train_dataset.output_columns") is not None else "input_columns"
    names = config.names(f"train_dataset.{key}", default)
    return make_columns(names, length, loader.get("eod_pad_length", loader.get("compressed_eod_mask_length")))


def make_columns(names: Iterable[str], length: int, sequences: object) -> tuple[Column, ...]:
    """Return columns of these names, for both graph modes; ``sequences`` is the config's maximum number of sequences per sample."""
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown:
        raise UnsupportedError(msg("dryrun.columns", columns=", ".join(unknown), known=", ".join(_COLUMNS)))
    most = sequences if type(sequences) is int and sequences > 0 else _DEFAULT_EOD_LENGTH
    shapes = {"attention_mask": (1, length, length), "actual_seq_len": (most,)}
    # dataset/blended_datasets/gpt_dataset.py, ``__getitem__``: all of them, including masks, are cast to int32.
    return tuple(Column(name, shapes.get(name, (length,)), "int32") for name in names)


def _loader_settings(config: ConfigCopy) -> dict[str, Any]:
    loader = config.get("train_dataset.data_loader", {})
    outer = loader if isinstance(loader, dict) else {}
    inner = outer.get("config")
    return {**outer, **inner} if isinstance(inner, dict) else dict(outer)


def _packs_samples(loader: dict[str, Any]) -> bool:
    # Return whether samples are packed, for which MindFormers makes an attention mask (``_train_dataset_preprocess``).
    handlers = loader.get("handler")
    named = handlers if isinstance(handlers, list) else []
    return any(isinstance(handler, dict) and handler.get("type") == "PackingHandler" for handler in named)


def sample_length(config: ConfigCopy) -> int:
    """Return the tokens per sample.

    The older Llama cuts one token off for the labels if the data set has not done so (``construct`` in
    mindformers/models/llama/llama.py: ``input_sliced_sig`` is off, or the data set has no labels).
    """
    model = config.job.model
    general = facts_of(model.release).fields["seq_length"]
    length = config.count(f"{MODEL}.seq_length", model.number("seq_length") or general)
    names = config.names("train_dataset.input_columns", ("input_ids",))
    sliced = bool(config.get(f"{MODEL}.input_sliced_sig", default=False)) and "labels" in names
    cuts = is_legacy(config.data) and config.get("model.arch.type") == "LlamaForCausalLM"
    return length + 1 if cuts and not sliced else length


def batch_size(config: ConfigCopy) -> int:
    """Return the samples that one rank reads per step, for all its micro-batches.

    Source: ``_check_grad_accumulation_steps`` and ``_check_global_batch_size_for_auto_parallel``.
    """
    size = config.count("runner_config.batch_size", 1)
    accumulated = config.count("runner_config.gradient_accumulation_steps", 1)
    if not splits_operators(config):
        return size
    size *= config.count("micro_batch_interleave_num", 1)
    if config.get("parallel_config.pipeline_stage", 1) > 1:
        size *= config.count("parallel_config.micro_batch_num", 1)
    else:
        size *= accumulated
    if _reads_whole_batches(config):
        size *= config.count("parallel_config.data_parallel", 1)
    return size


def splits_operators(config: ConfigCopy) -> bool:
    """Return whether MindSpore splits operators over the ranks; if not, MindFormers sets all of ``parallel_config`` to 1.

    Source: ``_check_global_batch_size_for_auto_parallel``, ``set_ms_auto_parallel_context`` in mindformers/core.
    """
    return bool(config.get("use_parallel", default=False)) and config.get(
        "parallel.parallel_mode", 1
    ) in mindspore_values("splitting")


def undo_split(config: ConfigCopy) -> None:
    """Reset the settings that MindFormers resets without operator splitting (``_check_global_batch_size_for_auto_parallel``).

    It would do so itself, but layers are counted by stage before that.
    """
    for name in (*_SPLITS, "micro_batch_num"):
        if config.get(f"parallel_config.{name}", 1) != 1:
            config.set(f"parallel_config.{name}", 1)
    if config.get("parallel_config.use_seq_parallel"):
        config.set("parallel_config.use_seq_parallel", value=False)


def _reads_whole_batches(config: ConfigCopy) -> bool:
    # Return whether every rank reads the samples of all data-parallel ranks. If the config contains no strategy, a Megatron
    # data set and masks have one that splits samples over the ranks; all other data sets use the strategy ``full_batch``, which
    # overrides ``parallel.full_batch`` (``_get_columns_with_strategy``, ``_set_full_batch_with_strategy``).
    strategy: object = config.get("parallel.dataset_strategy")
    if strategy is not None:
        return strategy == "full_batch"
    loader = _loader_settings(config)
    masks = loader.get("create_compressed_eod_mask") or loader.get("create_attention_mask") or _packs_samples(loader)
    return not (masks or loader.get("type") == _MEGATRON)


def replace_data_set(config: ConfigCopy, made: tuple[Column, ...], samples: int) -> None:
    """Keep only the settings of the user's data set that MindFormers reads before building one: the real one is never built.

    From its kind and its masks MindFormers determines the columns, how they are split over the ranks, and whether one
    rank reads for others (``_train_dataset_preprocess``). A Megatron data set is cut after its samples
    (``_train_dataset_postprocess``): at least the number that all ranks read.
    """
    named = config.get("train_dataset.data_loader", {})
    loader = named if isinstance(named, dict) else {}
    kept = _settings_of(loader, ("type", *_MASKS, "use_broadcast_data"))
    if loader.get("type") == _MEGATRON:
        kept["config"] = _settings_of(loader.get("config"), _MASKS)
        kept["sizes"] = [samples, 0, 0]
    if isinstance(loader.get("handler"), list):
        kept["handler"] = [_settings_of(handler, ("type",)) for handler in loader["handler"]]
    prepared = {"input_columns": [column.name for column in made]}
    if config.get("train_dataset.construct_args_key") is not None:
        prepared["construct_args_key"] = config.get("train_dataset.construct_args_key")
    config.set("train_dataset", {**prepared, "data_loader": kept})


def _settings_of(section: object, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: section[key] for key in keys if key in section} if isinstance(section, dict) else {}


def take_out_the_surroundings(config: ConfigCopy) -> None:
    """Remove checkpoints, evaluation, profiling and callbacks that write or wait: none uses device memory during a step."""
    settings = load("simulation")[Dialect.MINDFORMERS.value]
    for path in settings["removed"]:
        config.remove(path)
    config.set("callbacks", [])
    config.set("runner_config.epochs", 1)
    if config.get("runner_config.sink_size", 1) not in (1, -1):
        # It shortens the epochs, down to none (``check_runner_config``).
        config.set("runner_config.sink_size", 1)
    for path in settings["emptied"]:
        if config.get(path):
            config.set(path, "")
    for path in settings["switched_off"]:
        if config.get(path):
            config.set(path, value=False)
    if config.get("output_dir"):
        config.set("output_dir", "./output")
    _replace_speed_up_file(config)


def _replace_speed_up_file(config: ConfigCopy) -> None:
    # The process runs in another folder: use the file's full path, or remove the key if the file does not exist.
    key = "context.ascend_config.parallel_speed_up_json_path"
    if named := config.get(key):
        found = [folder / str(named) for folder in (Path.cwd(), config.path.resolve().parent)]
        if existing := next((path for path in found if path.is_file()), None):
            config.set(key, str(existing))
        else:
            config.remove(key)
