"""Checks of the model's settings in Mcore models (``use_legacy: False``), which ``TransformerConfig`` accepts or refuses.

The rules are those of ``TransformerConfig.__post_init__`` (``mindformers/parallel_core/transformer_config.py``, 1.6 to
2.1), and of the layers that are built after it (``training_graph/transformer``, and ``mindformers/pynative/transformers`` of
the dynamic graph); :mod:`ms_tune.facts.models` defines the fields.
"""

from __future__ import annotations

from collections.abc import Iterator

from ms_tune.diagnostics import KeyPath
from ms_tune.dialects import FrameworkStop
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.mindformers.placement import Placement, RecomputeInputs, place_layers
from ms_tune.dialects.sections import is_count
from ms_tune.enums import Dialect
from ms_tune.errors import closest
from ms_tune.facts.keys import find_first_release, keys_for, mindspore_values
from ms_tune.facts.models import LAYERS, UNKNOWN, facts_of, is_legacy
from ms_tune.facts.query import VERSIONS
from ms_tune.source.yaml import MISSING

_MODEL = ("model", "model_config")


def _section(context: CheckContext) -> tuple[str, ...]:
    return _MODEL if context.dialect is Dialect.MINDFORMERS else _MODEL[:1]


def decided(context: CheckContext) -> Iterator[Violation]:
    """Report settings that the network sets itself and whose value in the config is ignored."""
    model = context.model
    mode, section = "static" if context.dialect is Dialect.MINDFORMERS else "dynamic", _section(context)
    network = facts_of(model.release, architecture=model.architecture)
    for name, fixed in network.says.get(mode, {}).items() if model.architecture in network.architectures else ():
        for key in sorted(keys_for(name, model.release)):
            value = context.mapping(".".join(section)).get(key)
            if fixed is None and isinstance(value, int) and value:
                yield Violation((*section, key), at_key=True)
            elif fixed is not None and isinstance(value, bool) and value is not fixed:
                yield Violation((*section, key), "fixed", {"fixed": fixed}, at_key=True)


def unconverted(context: CheckContext) -> Iterator[Violation]:
    """Report a key without a field: up to 1.8 it stops the run, later it only causes a warning (``convert_to_transformer_config``)."""
    facts = context.model.facts
    known = facts.valid_keys()
    for key in map(str, context.mapping("model.model_config")):
        if key in known:
            continue
        later = find_first_release(key, context.version)
        if later:
            yield Violation((*_MODEL, key), "later", {"since": later}, at_key=True)
        elif facts.name:  # keys that other models remove before the conversion are unknown
            yield Violation((*_MODEL, key), at_key=True)


def conflicting(context: CheckContext) -> Iterator[Violation]:
    """Report a second name for a field whose class has a value: 'Mapping Conflicts' or 'Multiple Config'."""
    model = context.model
    section = context.mapping(".".join(_section(context)))
    for own, field in model.clashes():
        if field.path is not None and (own in model.facts.defaults or own not in section):
            yield Violation(field.path, params={"own": own, "field": field.name}, at_key=True)


def dense_and_frequency(context: CheckContext) -> Iterator[Violation]:
    """Report a number of leading dense layers that contradicts the frequency of layers with experts."""
    model = context.model
    dense, frequency, layers = model.number("first_k_dense_replace"), model.value("moe_layer_freq"), model.layers
    if not dense or dense < 0:
        return
    if isinstance(frequency, list):
        broken = layers is not None and frequency != [0] * dense + [1] * (layers - dense)
    else:
        broken = isinstance(frequency, int) and not isinstance(frequency, bool) and frequency > 1
    if broken:
        params = {"moe_layer_freq": frequency, "first_k_dense_replace": dense}
        places = (context.find_setting(f"network.{field}") for field in ("moe_layer_freq", "first_k_dense_replace"))
        yield Violation(next(filter(None, places), context.section), params=params)


_NETWORK = (*_MODEL, "architectures")
_WIDTHS = ("ffn_hidden_size", "moe_ffn_hidden_size", "vocab_size", "hidden_size")


def unlisted(context: CheckContext) -> Iterator[Violation]:
    """Report a name of one of ``fields`` that is not in the table ``known`` (case-sensitive)."""
    known = mindspore_values(str(context.options["known"]))
    for field in (field for name in sorted(context.names("fields")) for field in context.model.written_fields(name)):
        if field.path is None or field.value is None or field.value is UNKNOWN or field.value in known:
            continue
        similar = closest(str(field.value).lower(), known)
        params = {"name": field.value, "similar": similar, "choices": ", ".join(known)}
        yield Violation(field.path, "similar" if similar else "default", params)


def widths(context: CheckContext) -> Iterator[Violation]:
    """Report widths that are not divisible by ``model_parallel``."""
    ways = context.integer("parallel_config.model_parallel", 1) or 1
    if ways <= 1 or not context.job.startup.splits or is_legacy(context.source.data):
        return
    for name in _WIDTHS:
        for field in context.model.written_fields(name):
            width = field.value
            if field.path and is_count(width) and width % ways:
                related = ((("parallel_config", "model_parallel"), "ways"),)
                yield Violation(field.path, params={"width": width, "ways": ways}, related=related)


def untrained(context: CheckContext) -> Iterator[Violation]:
    """Report a network that the release lacks or has for inference only."""
    names = context.source.get(_NETWORK)
    name = str(names[0]) if isinstance(names, list) and names else str(names)
    since = next((one for one in VERSIONS if facts_of(one, architecture=name).name), None)
    if since is None:
        return
    checkout = context.job.checkout  # may be later than the release that its setup.py states
    if checkout is not None and checkout.has_class(f"Training{name}"):  # 1.6 to 2.1 call a training network so
        return
    release = context.version
    facts = facts_of(release, architecture=name)
    params = {"name": name, "release": release, "since": since}
    if facts.name is None:
        yield Violation(_NETWORK, "later", params)
    elif not facts.modes:
        yield Violation(_NETWORK, params=params)


def unnamed(context: CheckContext) -> Iterator[Violation]:
    """Report a model that has settings but does not name its network."""
    kind = context.source.get((*_MODEL, "model_type"))
    usual = facts_of(context.version, kind=str(kind)).architectures
    elsewhere = context.get("model.pretrained_model_dir") or context.get("pretrained_model_dir")
    if usual and not elsewhere and context.source.get(_NETWORK, MISSING) in (MISSING, None):
        yield Violation(_MODEL, params={"network": usual[0]})


_OFFSET = (*_MODEL, "offset")
_MOST = 10_000  # maximum layers or cells, as when reading configs


def impossible_split(context: CheckContext) -> Iterator[Violation]:
    """Report an offset that MindFormers refuses (``LayerSetting._check_inputs``, 1.6 to 2.1)."""
    inputs, path = _inputs(context)
    if inputs is None:
        yield from _impossible_shape(context)
        return
    outcomes = [_outcome(reading) for reading in _readings(context, inputs)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, FrameworkStop)]
    if refused and len(refused) == len(outcomes):
        related = () if path == _OFFSET else ((path, "layers"),)
        yield Violation(
            _OFFSET if context.get(".".join(_OFFSET)) is not None else path,
            params=_split_params(inputs, error=str(refused[0])),
            related=related,
        )


def _impossible_shape(context: CheckContext) -> Iterator[Violation]:
    """Report an offset with a wrong length, which is refused for any number of layers."""
    inputs = _with_layers(context, 0) if isinstance(context.get(".".join(_OFFSET)), list) else None
    if inputs is None or _is_part(context):
        return
    errors = {str(_outcome(inputs._replace(layers=layers))) for layers in (0, 1)}
    if len(errors) == 1 and "offset.shape" in (error := errors.pop()):
        rest = f"{LAYERS} % {inputs.stages * ((inputs.interleave_num or 1) if inputs.interleave else 1)}"
        yield Violation(_OFFSET, message="shape", params=_split_params(inputs, error=error, rest=rest))


def miscounted_split(context: CheckContext) -> Iterator[Violation]:
    """Report an offset that MindFormers accepts and then counts more than once.

    The sum is compared before a number, or a list with several chunks, is spread over all cells (1.6 to 2.1).
    """
    inputs, path = _inputs(context)
    if inputs is None:
        return
    outcomes = [_outcome(reading) for reading in _readings(context, inputs)]
    slots = [None if isinstance(outcome, FrameworkStop) else outcome.slots for outcome in outcomes]
    if slots and all(number not in (None, inputs.layers) for number in slots):
        yield Violation(_OFFSET, params=_split_params(inputs, slots=slots[0]), related=((path, "layers"),))


def _inputs(context: CheckContext) -> tuple[RecomputeInputs | None, KeyPath]:
    """Return the inputs of the placement, or None if the config is incomplete, and the key path of the layer count."""
    model, legacy = context.model, is_legacy(context.source.data)
    layers, place = model.layers, model.field(LAYERS).path
    if layers is None or len(model.written_fields(LAYERS)) > 1 or _is_part(context):
        return None, ()
    if place is None and (context.get("base_config") or (legacy and context.get("pretrained_model_dir"))):
        return None, ()  # another file may define it
    return _with_layers(context, layers), place or _MODEL


def _is_part(context: CheckContext) -> bool:
    """Return whether the model is part of a multi-modal one with separate stages."""
    return any(map(context.model.number, ("stage_num", "start_stage")))


def _with_layers(context: CheckContext, layers: int) -> RecomputeInputs | None:
    """Return the inputs for ``layers`` layers, or None if the config is incomplete."""
    legacy, offset = is_legacy(context.source.data), context.model.value("offset")
    startup = context.job.startup
    stages, interleave = startup.stages, startup.interleaves
    chunks = context.integer(".".join((*_MODEL, "pp_interleave_num")), 1 if legacy else None)
    if stages is None or stages < 1 or offset is UNKNOWN or (interleave and chunks is None):
        return None  # some legacy models have no offset
    return RecomputeInputs(
        layers=layers,
        stages=stages,
        offset=offset,
        interleave=interleave,
        interleave_num=chunks,
        scheduler=startup.scheduler,
        legacy=legacy,
        mtp_layers=0 if legacy else context.model.mtp_layers,
        version=context.version,
    )


def too_few(context: CheckContext) -> Iterator[Violation]:
    """Report fewer layers than stages, or than stages times chunks (``PreTrainedModel.check_pipeline_stage``, 1.6 to 2.1).

    DeepSeek-V3 has its own check, which also covers a single stage (``models/deepseek3/utils.py``).
    """
    inputs, path = _inputs(context)
    by_strategy = context.get("parallel.parallel_mode", 1) in mindspore_values("semi_automatic")
    # `check_rules` checks only this mode.
    if inputs is None or not (by_strategy and context.job.startup.is_parallel):
        return
    if inputs.stages <= 1 and context.model.kind != "deepseek_v3":
        return
    needed = inputs.stages * (inputs.interleave_num or 1 if inputs.interleave else 1)
    layers = inputs.layers + context.model.mtp_layers
    if layers < needed:
        yield Violation(path, params=_split_params(inputs, needed=needed))


def _readings(context: CheckContext, inputs: RecomputeInputs) -> list[RecomputeInputs]:
    """Return the inputs as a legacy model may count its layers, also with prediction layers: a finding must be true for all.

    Empty for implausible counts, which would need too much memory.
    """
    if max(inputs.layers, inputs.stages * (inputs.interleave_num or 1)) > _MOST:
        return []
    extra = context.model.mtp_layers if inputs.legacy else 0
    return [inputs, inputs._replace(layers=inputs.layers + extra)] if extra else [inputs]


def _outcome(inputs: RecomputeInputs) -> Placement | FrameworkStop:
    try:
        return place_layers(inputs)
    except FrameworkStop as stop:
        return stop


def _split_params(inputs: RecomputeInputs, **more: object) -> dict[str, object]:
    chunks = inputs.interleave_num if inputs.interleave else 1
    cells = inputs.stages * (chunks or 1)
    return {
        "layers": inputs.layers,
        "stages": inputs.stages,
        "chunks": chunks,
        "offset": inputs.offset,
        "rest": inputs.layers % cells,
        **more,
    }
