"""Checks of Mcore models (``use_legacy: False``): the network, values that its class refuses by name, widths that cannot be cut.

``MindFormerRegister.get_instance_type_from_cfg`` in ``mindformers/tools/register/register.py`` finds the network by
``architectures``; each network's ``__new__`` in ``mindformers/models/*/modeling_*.py`` decides what is built. MindFormers 1.6
to 2.1. A ``config.json`` beside the weights may say all this in place of the config.
``convert_str_to_mstype`` in ``mindformers/parallel_core/mf_model_config.py`` (1.6) and ``transformer_config.py`` (1.7 to 2.1)
takes the names of data types; the linear layers of ``mindformers/parallel_core/training_graph/tensor_parallel/layers.py`` give
each rank an equal part of their output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindformers import startup
from ms_tune.errors import closest
from ms_tune.facts.legacy import fills_experts
from ms_tune.facts.models import UNKNOWN, facts_of
from ms_tune.facts.registries import mindspore_values
from ms_tune.facts.releases import VERSIONS
from ms_tune.lint.checks import legacy_llama
from ms_tune.source.yaml import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext

_MODEL = ("model", "model_config")
_NETWORK = (*_MODEL, "architectures")
_TYPED = ("params", "compute", "layernorm_compute", "rotary", "moe_router", "softmax_compute", "embedding_params")
_WIDTHS = ("ffn_hidden_size", "moe_ffn_hidden_size", "vocab_size", "hidden_size")


def data_types(context: CheckContext) -> Iterator[Violation]:
    """A data type that has no such name: spelling and capitals count."""
    known = mindspore_values("core_data_types")
    model = context.model
    for name in _TYPED:
        for field in model.written(f"{name}_dtype"):
            if field.path is None or field.value is None or field.value is UNKNOWN or field.value in known:
                continue
            similar = closest(str(field.value).lower(), known)
            params = {"name": field.value, "similar": similar, "choices": ", ".join(known)}
            yield Violation(field.path, "similar" if similar else "default", params)


def activations(context: CheckContext) -> Iterator[Violation]:
    """An activation function that training has not got, by the table that the option ``known`` names: ``get_activation`` refuses it."""
    known = mindspore_values(str(context.options["known"]))
    for field in context.model.written("hidden_act"):
        if (
            field.path is not None
            and field.value is not None
            and field.value is not UNKNOWN
            and field.value not in known
        ):
            similar = closest(str(field.value).lower(), known)
            params = {"name": field.value, "similar": similar, "choices": ", ".join(known)}
            yield Violation(field.path, "similar" if similar else "default", params)


def widths(context: CheckContext) -> Iterator[Violation]:
    """Widths that are no multiple of ``model_parallel``."""
    ways = context.integer("parallel_config.model_parallel", 1) or 1
    if ways <= 1 or not startup.splits(context) or startup.is_legacy(context):
        return
    for name in _WIDTHS:
        for field in context.model.written(name):
            width = field.value
            if field.path and isinstance(width, int) and not isinstance(width, bool) and width > 0 and width % ways:
                related = ((("parallel_config", "model_parallel"), "ways"),)
                yield Violation(field.path, params={"width": width, "ways": ways}, related=related)


def unsplit_vocabulary(context: CheckContext) -> Iterator[Violation]:
    """A vocabulary of a legacy model that is no multiple: ``LlamaForCausalLM`` splits neither the loss nor the output layer."""
    ways = context.integer("parallel_config.model_parallel", 1) or 1
    if ways <= 1 or not startup.splits(context) or not legacy_llama.is_llama(context):
        return
    size = context.model.number("vocab_size")
    path = (*_MODEL, "vocab_size")
    if size and size % ways and context.source.get(path) is not None:
        yield Violation(path, params={"size": size, "ways": ways})


def untrained(context: CheckContext) -> Iterator[Violation]:
    """A network that the release does not have, or has for inference only."""
    names = context.source.get(_NETWORK)
    name = str(names[0]) if isinstance(names, list) and names else str(names)
    since = next((one for one in VERSIONS if facts_of(one, architecture=name).name), None)
    if since is None:
        return
    release = startup.release(context)
    facts = facts_of(release, architecture=name)
    params = {"name": name, "release": release, "since": since}
    if facts.name is None:
        yield Violation(_NETWORK, "later", params)
    elif not facts.modes:
        yield Violation(_NETWORK, params=params)


def unnamed(context: CheckContext) -> Iterator[Violation]:
    """A model whose settings are named and whose network is not."""
    kind = context.source.get((*_MODEL, "model_type"))
    usual = facts_of(startup.release(context), kind=str(kind)).architectures
    elsewhere = context.get("model.pretrained_model_dir") or context.get("pretrained_model_dir")
    if usual and not elsewhere and context.source.get(_NETWORK, MISSING) in (MISSING, None):
        yield Violation(_MODEL, params={"network": usual[0]})


def nameless(context: CheckContext) -> Iterator[Violation]:
    """The name that the register looks a class up by is not there: another one is, or none is.

    ``MindFormerRegister.get_instance_from_cfg`` wants ``type`` of a legacy model (of the settings, then of ``arch``), and of
    others ``model_type``. Only told of a config that has the sections which the option names.
    """
    settings = context.source.get(_MODEL)
    if not isinstance(settings, dict) or not context.names("sections") <= context.source.data.keys():
        return
    if not startup.is_legacy(context):
        elsewhere = context.get("model.pretrained_model_dir") or context.get("pretrained_model_dir")
        if not elsewhere and settings.get("model_type") is None:
            yield Violation(_MODEL, "kind")
    elif "type" not in settings:
        named = [(*_MODEL, key) for key in ("model_type", "architectures") if key in settings]
        yield Violation(*((named[0], "default") if named else (_MODEL, "legacy")))
    elif "type" not in context.mapping("model.arch"):
        yield Violation(("model",), "network")


def no_switch_for_legacy(context: CheckContext) -> Iterator[Violation]:
    """What stands in the place of True or False, and which kind of network it gives."""
    for path in (("use_legacy",), ("context", "use_legacy")):
        value = context.source.get(path)
        if value is not None and not isinstance(value, bool):
            yield Violation(path, "default" if value else "core")


def half_legacy(context: CheckContext) -> Iterator[Violation]:
    """A model of Mcore whose ``moe_config`` is made an object as for a legacy one (``build_parallel_config``)."""
    if fills_experts(context.source.data):
        yield Violation(("context", "use_legacy"))
