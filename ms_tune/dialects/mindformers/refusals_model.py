"""Checks of the model's settings in Mcore models (``use_legacy: False``), which ``TransformerConfig`` takes or refuses.

The rules are those of ``TransformerConfig.__post_init__`` (``mindformers/parallel_core/transformer_config.py``, 1.6 to
2.1), and of the layers that are built after it (``training_graph/transformer``, and ``mindformers/pynative/transformers`` of
the dynamic graph); what the fields are, :mod:`ms_tune.facts.models` knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindformers import startup
from ms_tune.enums import Dialect
from ms_tune.facts.model_keys import keys_for, known_since
from ms_tune.facts.models import LAYERS, MTP_LAYERS, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext

_MODEL = ("model", "model_config")


def _section(context: CheckContext) -> tuple[str, ...]:
    """Where a config has what it says of its model."""
    return _MODEL if context.dialect is Dialect.MINDFORMERS else _MODEL[:1]


def decided(context: CheckContext) -> Iterator[Violation]:
    """A setting of which the network that is built says itself what it is, whatever is written."""
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


def unweighted(context: CheckContext) -> Iterator[Violation]:
    """Layers that predict further tokens, in a model that divides the weight of their loss, and no such weight: it has no default.

    The option ``models`` names the models of which the release's training network has such layers.
    """
    model = context.model
    layers, weight = model.mtp_layers, model.value("mtp_loss_scaling_factor")
    if model.kind in context.names("models") and layers > 0 and weight is None:
        yield Violation(model.field(MTP_LAYERS).path or _MODEL, params={"layers": layers})


def unconverted(context: CheckContext) -> Iterator[Violation]:
    """A key that no field takes: up to 1.8 such a key stops the run, later it is only told (``convert_to_transformer_config``)."""
    facts = context.model.facts
    known = facts.keys_known()
    for key in map(str, context.mapping("model.model_config")):
        if key in known:
            continue
        later = known_since(key, startup.release(context))
        if later:
            yield Violation((*_MODEL, key), "later", {"since": later}, at_key=True)
        elif facts.name:  # which keys other models take out of the conversion is not known
            yield Violation((*_MODEL, key), at_key=True)


def conflicting(context: CheckContext) -> Iterator[Violation]:
    """A second name for a field that the model's class has a value for: 'Mapping Conflicts' or 'Multiple Config'."""
    model = context.model
    section = context.mapping(".".join(_section(context)))
    for own, field in model.clashes():
        if field.path is not None and (own in model.facts.defaults or own not in section):
            yield Violation(field.path, params={"own": own, "field": field.name}, at_key=True)


def dense_and_frequency(context: CheckContext) -> Iterator[Violation]:
    """Dense layers at the beginning, and a frequency of layers with experts that says otherwise."""
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
        yield Violation(_place_of_field(context, "moe_layer_freq", "first_k_dense_replace"), params=params)


def layer_frequency(context: CheckContext) -> Iterator[Violation]:
    """A frequency of layers with experts that is no list of as many zeros and ones as there are layers, or above their number."""
    model = context.model
    frequency, layers = model.value("moe_layer_freq"), model.layers
    if model.value("first_k_dense_replace") not in (None, 0) or layers is None:
        return
    if isinstance(frequency, list):
        broken = len(frequency) != layers or any(number not in (0, 1) for number in frequency)
    else:
        broken = isinstance(frequency, int) and not isinstance(frequency, bool) and frequency > layers
    if broken:
        params = {"moe_layer_freq": frequency, LAYERS: layers}
        yield Violation(_place_of_field(context, "moe_layer_freq", LAYERS), params=params)


def window_size(context: CheckContext) -> Iterator[Violation]:
    """A window of attention with an end below -1."""
    window = context.model.value("window_size")
    if any(isinstance(end, int) and end < -1 for end in (window[:2] if isinstance(window, list) else [])):
        yield Violation(_place_of_field(context, "window_size"))


def _place_of_field(context: CheckContext, *fields: str) -> KeyPath:
    """Where the first of the fields is written, or else the section."""
    return next((place for field in fields if (place := context.place_of(f"network.{field}"))), context.section)
