"""The ``mindformers`` dialect (static graph): its recompute settings as inputs of :func:`ms_tune.layers.normalize`.

Defaults and checks are those of MindFormers 1.8 to 2.1: ``mindformers/tools/register/template.py`` (sections and their
keys), ``mindformers/modules/transformer/transformer.py`` (``TransformerRecomputeConfig``, ``TransformerSwapConfig``)
and ``mindformers/parallel_core/transformer_config.py`` (models that are not legacy ones).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.layers import KEYS, RecomputeInputs, RecomputeValues
from ms_tune.texts import msg

if TYPE_CHECKING:
    from ms_tune.config.source import KeyPath, SourceFile
    from ms_tune.texts import Message

VERSIONS = "1.8-2.1"  # the releases that this reading holds for

_MODEL = ("model", "model_config")
_PARALLEL = ("parallel_config",)
_PIPELINE = ("parallel", "pipeline_config")
_RECOMPUTE = ("recompute_config",)
_SWAP = ("swap_config",)

_LAYER_KEYS = ("num_layers", "num_hidden_layers", "n_layer")
_MTP_KEYS = ("mtp_depth", "num_nextn_predict_layers", "mtp_num_layers")
_CHUNK_KEYS = ("pp_interleave_num", "virtual_pipeline_model_parallel_size")
_FLAGS = ("parallel_optimizer_comm_recompute", "mp_comm_recompute", "recompute_slice_activation")
_SWAP_KEYS = ("swap", "layer_swap", "op_swap", "default_prefetch")
_MOST = 10_000  # of anything: a slip of the keyboard must not fill the memory
_SCHEDULERS = ("1f1b", "gpipe", "seqpipe", "seqvpp", "seqsmartvpp", "zero_bubble_v")


def read_recompute(source: SourceFile) -> RecomputeInputs:
    """What a config says about placement and recompute.

    Raises:
        ConfigError: A setting is missing or cannot be.
        UnsupportedError: The config needs something that is not served.
    """
    if "base_config" in source.data:
        raise UnsupportedError(msg("normalize.base-config"), msg("normalize.base-config.hint"))
    reader = _Reader(source)
    legacy = reader.flag(("use_legacy",), default=True)
    layers = reader.whole(_MODEL, _LAYER_KEYS, default=None, minimum=1)
    if layers is None:
        reader.fail(_MODEL, msg("normalize.no-layer-count"), msg("normalize.no-layer-count.hint"))
    mtp = reader.whole(_MODEL, _MTP_KEYS, default=0, minimum=0)
    interleave, scheduler = _pipeline_config(reader)
    recompute = _recompute_section(reader)
    _check_swap(reader, legacy=legacy)
    model = reader.section(_MODEL)
    return RecomputeInputs(
        # The legacy DeepSeek models hand their prediction layers over with the others.
        layers=layers + mtp if legacy else layers,
        stages=reader.whole(_PARALLEL, ("pipeline_stage",), default=1, minimum=0) or 1,
        offset=model.get("offset", 0),
        interleave=interleave,
        interleave_num=_chunks(reader, legacy=legacy),
        scheduler=scheduler,
        legacy=legacy,
        stage_num=reader.whole(_MODEL, ("stage_num",), default=0, minimum=0) if legacy else 0,
        start_stage=reader.whole(_MODEL, ("start_stage",), default=0, minimum=0) if legacy else 0,
        mtp_layers=mtp,
        micro_batches=reader.whole(_PARALLEL, ("micro_batch_num",), default=1, minimum=1),
        sequence_splits=reader.whole(_PARALLEL, ("seq_split_num",), default=1, minimum=1),
        slice_activation=recompute.get("recompute_slice_activation", False),
        values=RecomputeValues(**{key: recompute.get(key, False) for key in KEYS}),
    )


def swap_is_dropped(source: SourceFile) -> bool:
    """Whether swap is switched on for a model that never hears of it.

    Models that are not legacy ones get their settings through ``TransformerOpParallelConfig.to_dict``, which leaves
    swap out.
    """
    return source.get(("use_legacy",)) is False and source.get((*_SWAP, "swap")) is True


class _Reader:
    """Reads settings with their types checked; its complaints know their place in the text."""

    def __init__(self, source: SourceFile) -> None:
        self._source = source

    def fail(self, path: KeyPath, message: Message, hint: Message | None = None) -> NoReturn:
        """Refuse the config because of what stands, or is missing, here."""
        position = self._source.nearest(path)
        span = position.key or position.value
        raise ConfigError(message, hint, path=self._source.path, line=span.line, column=span.column)

    def section(self, path: KeyPath) -> dict[str, Any]:
        """A mapping; an empty one where the config has none."""
        value = self._source.get(path)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.fail(path, msg("normalize.not-a-section", name=".".join(map(str, path))))
        return value

    def flag(self, path: KeyPath, *, default: bool) -> bool:
        """True or false."""
        value = self._source.get(path, default)
        if not isinstance(value, bool):
            self.fail(path, msg("normalize.not-a-flag", name=path[-1], value=value))
        return value

    def first(self, path: KeyPath, names: tuple[str, ...]) -> tuple[str, Any] | None:
        """The one of several names for a setting that a section uses, and its value."""
        section = self.section(path)
        found = [(name, section[name]) for name in names if section.get(name) is not None]
        for name, value in found[1:]:
            if value != found[0][1]:
                self.fail((*path, name), msg("normalize.two-names", first=found[0][0], second=name))
        return found[0] if found else None

    def whole(self, path: KeyPath, names: tuple[str, ...], *, default: Any, minimum: int) -> Any:  # noqa: ANN401 - int, or the default
        """A whole number."""
        found = self.first(path, names)
        if found is None:
            return default
        name, value = found
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= _MOST:
            limits = {"minimum": minimum, "maximum": _MOST}
            self.fail((*path, name), msg("normalize.not-a-count", name=name, value=value, **limits))
        return value


def _chunks(reader: _Reader, *, legacy: bool) -> int | None:
    """``pp_interleave_num``: legacy models have 1 where it is missing, the others None. Any whole number goes."""
    found = reader.first(_MODEL, _CHUNK_KEYS)
    if found is None:
        return 1 if legacy and "pp_interleave_num" not in reader.section(_MODEL) else None
    name, value = found
    if isinstance(value, bool) or not isinstance(value, int) or value > _MOST:
        reader.fail((*_MODEL, name), msg("normalize.not-a-count", name=name, value=value, minimum=1, maximum=_MOST))
    return value


def _pipeline_config(reader: _Reader) -> tuple[bool, str]:
    """``pipeline_interleave`` and ``pipeline_scheduler``: MindSpore takes both or neither, and nothing else."""
    reader.section(_PIPELINE[:1])
    config = reader.section(_PIPELINE)
    if not config:
        return False, "1f1b"
    if config.keys() != {"pipeline_interleave", "pipeline_scheduler"}:
        reader.fail(_PIPELINE, msg("normalize.pipeline-config", found=", ".join(map(str, config))))
    scheduler = config["pipeline_scheduler"]
    if scheduler not in _SCHEDULERS:
        known = ", ".join(_SCHEDULERS)
        reader.fail((*_PIPELINE, "pipeline_scheduler"), msg("normalize.scheduler", value=scheduler, known=known))
    return reader.flag((*_PIPELINE, "pipeline_interleave"), default=False), scheduler


def _recompute_section(reader: _Reader) -> dict[str, Any]:
    recompute = reader.section(_RECOMPUTE)
    for key in recompute:
        if key not in {*KEYS, *_FLAGS}:
            reader.fail((*_RECOMPUTE, key), msg("normalize.unknown-key", section="recompute_config", key=key))
    for name in _FLAGS:
        reader.flag((*_RECOMPUTE, name), default=False)
    return recompute


def _check_swap(reader: _Reader, *, legacy: bool) -> None:
    """Refuse what changes the meaning of the recompute values, or stops MindFormers before it reads them.

    MindFormers reads the entries of ``layer_swap`` and ``op_swap`` also when swap is off.
    """
    swap, model = reader.section(_SWAP), reader.section(_MODEL)
    for key in swap:
        if key not in _SWAP_KEYS:
            reader.fail((*_SWAP, key), msg("normalize.unknown-key", section="swap_config", key=key))
    on = reader.flag((*_SWAP, "swap"), default=False)
    if (on and legacy) or (not legacy and (model.get("swap") or model.get("cpu_offloading"))):
        raise UnsupportedError(msg("normalize.swap"), msg("normalize.swap.hint"))
    for key, needs_name in (("layer_swap", False), ("op_swap", True)):
        if swap.get(key) is not None and not _are_entries(swap[key], needs_name=needs_name):
            reader.fail((*_SWAP, key), msg("normalize.swap-entries", key=key))


def _are_entries(value: object, *, needs_name: bool) -> bool:
    """Whether ``TransformerSwapConfig`` takes these entries, for sure."""
    entries = [value] if isinstance(value, dict) else value
    if not isinstance(entries, list):
        return False
    for entry in entries:
        if not isinstance(entry, dict) or "backward_prefetch" not in entry or not _are_layers(entry.get("layers")):
            return False
        if needs_name and not _are_names(entry.get("op_name")):
            return False
    if any(entry["layers"] is True for entry in entries):
        return all(entry["backward_prefetch"] == entries[0]["backward_prefetch"] for entry in entries)
    return True


def _are_names(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(name, str) for name in value))


def _are_layers(value: object) -> bool:
    if isinstance(value, bool):
        return True
    if not isinstance(value, list):
        return False
    return _are_whole(value) or all(isinstance(part, list) and _are_whole(part) for part in value)


def _are_whole(value: list[object]) -> bool:
    return all(isinstance(item, int) and not isinstance(item, bool) for item in value)
