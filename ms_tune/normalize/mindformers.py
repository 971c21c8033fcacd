"""The ``mindformers`` dialect (static graph): its recompute and swap settings, and the plan that comes of them.

Defaults and checks are those of MindFormers 1.6 to 2.1: ``mindformers/tools/register/template.py`` (sections and their
keys), ``mindformers/modules/transformer/transformer.py`` (``TransformerRecomputeConfig``) and
``mindformers/parallel_core/transformer_config_utils.py`` (what models that are not legacy ones get to see).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.frameworks.installed import installed_version
from ms_tune.frameworks.releases import DEFAULT_VERSION, VERSIONS, served_version
from ms_tune.layers import KEYS, Problem, RecomputeInputs, RecomputeValues, Severity, SwapValues, normalize
from ms_tune.layers.plans import from_recompute_plan
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.config.source import KeyPath, SourceFile
    from ms_tune.layers.plans import NormalizedPlan
    from ms_tune.layers.tree import LayerModel
    from ms_tune.texts import Message

_MODEL = ("model", "model_config")
_ARCH = ("model", "arch")
_PARALLEL = ("parallel_config",)
_PIPELINE = ("parallel", "pipeline_config")
_RECOMPUTE = ("recompute_config",)
_SWAP = ("swap_config",)

_LAYER_KEYS = ("num_layers", "num_hidden_layers", "n_layer")
_MTP_KEYS = ("mtp_depth", "num_nextn_predict_layers", "mtp_num_layers")
_CHUNK_KEYS = ("pp_interleave_num", "virtual_pipeline_model_parallel_size")
_FLAGS = ("parallel_optimizer_comm_recompute", "mp_comm_recompute", "recompute_slice_activation")
_SWAP_KEYS = ("swap", "layer_swap", "op_swap", "default_prefetch")
# Swap of models that are not legacy ones, in their own section (1.7 to 2.1).
_CORE_SWAP_KEYS = {
    "swap": ("swap", "cpu_offloading"),
    "layer_swap": ("layer_swap", "cpu_offloading_num_layers"),
    "op_swap": ("op_swap",),
}
_MOST = 10_000  # of anything: a slip of the keyboard must not fill the memory
_SCHEDULERS = ("1f1b", "gpipe", "seqpipe", "seqvpp", "seqsmartvpp", "zero_bubble_v")
# Models that are not legacy ones, by the class that their config names.
_ARCHITECTURES = {
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "TeleChat3ForCausalLM": "telechat3",
    "TeleChat3MoeForCausalLM": "telechat3_moe",
}


def normalize_source(source: SourceFile, version: str | None = None, layers: int | None = None) -> NormalizedPlan:
    """The plan of a config.

    Args:
        source: The config.
        version: The MindFormers release; without it, the installed one, or else 1.9.
        layers: The number of layers, for a config that does not tell it.

    Raises:
        ConfigError: A setting is missing or cannot be.
        UnsupportedError: The config needs something that is not served, or the version is not.
    """
    inputs = read_recompute(source, version, layers)
    plan = normalize(inputs)
    model = _layer_model(source, inputs)
    shared = from_recompute_plan(plan, inputs.version)
    if any(_asked(inputs)):
        from ms_tune.layers.mindformers.trees import seen_in  # noqa: PLC0415 - start-up time

        shared = seen_in(inputs, plan, shared, model)
    return replace(shared, problems=(*shared.problems, *_dropped_by_core(source, inputs)))


def default_version() -> str:
    """The release of the installed MindFormers, if it is one that is served, or else the default."""
    return served_version(installed_version("mindformers") or "") or DEFAULT_VERSION


def read_recompute(
    source: SourceFile, version: str | None = None, layers: int | None = None, *, fewest: int = 1
) -> RecomputeInputs:
    """What a config says about placement, recompute and swap.

    Args:
        source: The config.
        version: The MindFormers release; without it, 1.9 or the installed one.
        layers: The number of layers, for a config that does not tell it.
        fewest: The smallest number of layers that is let through. MindFormers itself takes 0, which nobody means.

    Raises:
        ConfigError: A setting is missing or cannot be.
        UnsupportedError: The config needs something that is not served, or the version is not.
    """
    release = default_version() if version is None else served_version(version)
    if release is None:
        raise UnsupportedError(msg("normalize.version", version=version, versions=", ".join(VERSIONS)))
    if "base_config" in source.data:
        raise UnsupportedError(msg("normalize.base-config"), msg("normalize.base-config.hint"))
    reader = _Reader(source)
    legacy = reader.flag(("use_legacy",), default=True)
    mtp = reader.whole(_MODEL, _MTP_KEYS, default=0, minimum=0)
    interleave, scheduler = _pipeline_config(reader)
    recompute = _recompute_section(reader)
    swap = _swap_section(reader)
    model = reader.section(_MODEL)
    # 1.6 hands such a model only the first value (`get_recompute` in `transformer_config_utils.py`).
    heard = KEYS[:1] if release == "1.6" and not legacy else KEYS
    return RecomputeInputs(
        # The legacy DeepSeek models hand their prediction layers over with the others.
        layers=_layer_count(reader, layers, fewest) + (mtp if legacy else 0),
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
        values=RecomputeValues(**{key: recompute.get(key, False) for key in heard}),
        swap=SwapValues(**swap),
        core_swap=SwapValues() if legacy else _core_swap(reader),
        version=release,
    )


def swap_is_dropped(source: SourceFile) -> bool:
    """Whether swap is switched on for a model that never hears of it.

    Models that are not legacy ones get their settings through ``TransformerOpParallelConfig.to_dict``, which leaves
    swap out.
    """
    return source.get(("use_legacy",)) is False and source.get((*_SWAP, "swap")) is True


def _dropped_by_core(source: SourceFile, inputs: RecomputeInputs) -> list[Problem]:
    if not inputs.reduced:
        return []
    unheard = [key for key in KEYS[1:] if source.get((*_RECOMPUTE, key))]
    message = msg("layers.core-drops", keys=", ".join(unheard))
    return [Problem("core-drops", Severity.WARNING, message)] if unheard else []


def _asked(inputs: RecomputeInputs) -> Iterator[object]:
    """The values that ask something of layers."""
    yield from map(inputs.values.get, KEYS)
    yield inputs.swaps.swap


def _layer_model(source: SourceFile, inputs: RecomputeInputs) -> LayerModel | None:
    """The layers of the config's model, if it is one whose layers are known."""
    if not any(_asked(inputs)):
        return None  # nothing that a pattern could be about
    from ms_tune.layers.tree import bare_model, layer_model  # noqa: PLC0415 - start-up time

    if inputs.legacy:
        return _legacy_model(source, inputs.version)
    if inputs.reduced:
        return bare_model("")  # it hears of whole layers only
    named = source.get((*_MODEL, "architectures"))
    first = named[0] if isinstance(named, list) and named else named
    kind = source.get((*_MODEL, "model_type")) or _ARCHITECTURES.get(str(first))
    dense = source.get((*_MODEL, "first_k_dense_replace"), 0)
    known = isinstance(dense, int) and not source.get((*_MODEL, "moe_layer_freq"))
    activation = str(source.get((*_MODEL, "hidden_act"), "silu"))
    variant = activation if known else "?"
    return layer_model(str(kind), inputs.version, variant, dense if isinstance(dense, int) else 0)


def _legacy_model(source: SourceFile, release: str) -> LayerModel | None:
    from ms_tune.layers.tree import layer_model  # noqa: PLC0415 - start-up time

    kind = str(source.get((*_ARCH, "type")))
    experts = source.get(("moe_config", "expert_num"), 1)
    flash = source.get((*_MODEL, "use_flash_attention")) is True
    if kind == "DeepseekV3ForCausalLM":
        dense = source.get(("moe_config", "first_k_dense_replace"), 0)
        shared = source.get(("moe_config", "shared_expert_num"), 0)
        known = (
            isinstance(dense, int) and isinstance(experts, int) and experts > 1 and isinstance(shared, int) and shared
        )
        variant = "" if flash else "no-flash"
        return layer_model(kind, release, variant if known else "?", dense if isinstance(dense, int) else 0)
    if experts not in (0, 1, None):
        return None
    joined = source.get((*_MODEL, "qkv_concat")) is True
    if kind == "ChatGLM2ForConditionalGeneration" or (flash and not joined):
        variant = ""
    elif flash or joined:
        variant = "qkv_concat" if flash else "?"
    else:
        variant = "no-flash"
    return layer_model(kind, release, variant)


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


def _layer_count(reader: _Reader, given: int | None, fewest: int) -> int:
    """The number of layers: what the config says, or what the user adds to a config that does not."""
    layers: int | None = reader.whole(_MODEL, _LAYER_KEYS, default=given, minimum=fewest)
    if layers is None:
        reader.fail(_MODEL, msg("normalize.no-layer-count"), msg("normalize.no-layer-count.hint"))
    return layers


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


def _swap_section(reader: _Reader) -> dict[str, Any]:
    """The section ``swap_config``, whose values the framework judges."""
    swap = reader.section(_SWAP)
    for key in swap:
        if key not in _SWAP_KEYS:
            reader.fail((*_SWAP, key), msg("normalize.unknown-key", section="swap_config", key=key))
    return swap


def _core_swap(reader: _Reader) -> SwapValues:
    found = {key: reader.first(_MODEL, names) for key, names in _CORE_SWAP_KEYS.items()}
    return SwapValues(**{key: value[1] for key, value in found.items() if value is not None})
