"""Checks of the model's settings in Mcore models (``use_legacy: False``), which ``TransformerConfig`` takes or refuses.

The rules are those of ``TransformerConfig.__post_init__`` (``mindformers/parallel_core/transformer_config.py``, 1.6 to
2.1), and of the layers that are built after it (``training_graph/transformer``, and ``mindformers/pynative/transformers`` of
the dynamic graph); what the fields are, :mod:`ms_tune.facts.models` knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.enums import Dialect
from ms_tune.facts.model_keys import keys_for, known_since
from ms_tune.facts.models import UNKNOWN, ModelConfig, facts_of
from ms_tune.facts.query import order
from ms_tune.lint.checks import startup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ms_tune.dialects.check_context import CheckContext

_MODEL = ("model", "model_config")
_BALANCED = ("sub_seq_aux_loss", "seq_aux_loss", "gbs_aux_loss")
_LEAST_OF_A_GROUP = 2  # pynative/transformers/moe/router.py: the best two of each group are added up
_DISPATCHERS = ("alltoall", "alltoall_deredundency", "alltoall_zero_redundancy")
_BALANCED_16 = ("aux_loss", "seq_aux_loss", "none")
_ROOTS = (2, 1)  # the release from which scores may be square roots of softplus
_POSITIONS = ("rope", "yarn", "none", "relative", "learned_absolute", "partial_rope")


class _Fields:
    """The model's fields, as the framework's classes fill them in."""

    def __init__(self, context: CheckContext, model: ModelConfig) -> None:
        self.context, self.model = context, model

    def __getitem__(self, field: str) -> object:
        """The value of a field; :data:`UNKNOWN` where it is not known."""
        return self.model.value(field)

    def number(self, field: str) -> int | None:
        """A whole number; None where there is none, or it is not known."""
        return self.model.number(field)

    @property
    def section(self) -> tuple[str, ...]:
        """The model's section."""
        return ("model",) if self.context.dialect is Dialect.MINDFORMERS_PYNATIVE else _MODEL

    @property
    def release(self) -> str:
        """The release that is checked for."""
        return startup.release(self.context)

    def layers(self) -> int | None:
        """The number of layers."""
        return self.number("num_layers")

    def ways(self, kind: str) -> int:
        """How many ways experts (``expert``) or matrices (``tensor``) are split, unless that is set back to 1."""
        if self.context.dialect is Dialect.MINDFORMERS_PYNATIVE:
            return self.context.integer(f"parallelism.{kind}_parallel", 1) or 1
        key = {"tensor": "model"}.get(kind, kind)
        return (self.context.integer(f"parallel_config.{key}_parallel", 1) or 1) if startup.splits(self.context) else 1


def refused(context: CheckContext) -> Iterator[Violation]:
    """A setting, or several together, that is refused by the rule that the option ``rule`` names."""
    model = context.model
    fields = _Fields(context, model)
    names, broken = _RULES[str(context.options["rule"])]
    if broken(fields):
        yield Violation(_place(fields, names), params=_params(fields, names))


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
    layers, weight = model.number("mtp_num_layers") or 0, model.value("mtp_loss_scaling_factor")
    if model.kind in context.names("models") and layers > 0 and weight is None:
        yield Violation(model.field("mtp_num_layers").path or _MODEL, params={"layers": layers})


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


def _without_experts(fields: _Fields) -> bool:
    return fields.ways("expert") > 1 and fields["num_moe_experts"] is None


def _too_few_in_parallel(fields: _Fields) -> bool:
    per_device = fields.number("npu_nums_per_device")
    wanted = fields["moe_token_dispatcher_type"] == "alltoall_deredundency"  # noqa: S105 - tokens of a text
    return wanted and per_device is not None and fields.ways("expert") < per_device


def _capacity(fields: _Fields) -> bool:
    known = _BALANCED_16 if fields.release == "1.6" else _BALANCED
    kind = fields.context.get(".".join((*fields.section, "moe_router_load_balancing_type")))
    return fields["moe_expert_capacity_factor"] not in (None, UNKNOWN) and kind is not None and kind not in known


def _bias(fields: _Fields) -> bool:
    known = ("sigmoid", "sqrtsoftplus") if order(fields.release) >= _ROOTS else ("sigmoid",)
    score = fields["moe_router_score_function"]
    score = {True: "sigmoid", False: "softmax"}.get(score, score) if isinstance(score, bool) else score
    return fields["moe_router_enable_expert_bias"] is True and score is not UNKNOWN and score not in known


def _one_expert(fields: _Fields) -> bool:
    soft = fields["moe_router_score_function"] == "softmax" and fields["moe_router_pre_softmax"] is False
    kind = fields["moe_router_load_balancing_type"]
    return fields.number("moe_router_topk") == 1 and soft and kind not in ("sinkhorn", UNKNOWN)


def _remainder(one: str, other: str) -> Callable[[_Fields], bool]:
    """Whether experts are grouped, and one number is no multiple of the other."""

    def broken(fields: _Fields) -> bool:
        number, divisor = fields.number(one), fields.number(other)
        return bool(fields.number("moe_router_group_topk") and number and number > 0 and divisor and number % divisor)

    return broken


def _too_many_groups(fields: _Fields) -> bool:
    wanted, groups = fields.number("moe_router_group_topk"), fields.number("moe_router_num_groups")
    return bool(wanted and groups and wanted > groups)


def _small_groups(fields: _Fields) -> bool:
    experts, groups = fields.number("num_moe_experts"), fields.number("moe_router_num_groups")
    return bool(experts and groups and groups > 0 and not experts % groups and experts // groups < _LEAST_OF_A_GROUP)


def _dense_and_frequency(fields: _Fields) -> bool:
    dense, frequency = fields.number("first_k_dense_replace"), fields["moe_layer_freq"]
    if not dense or dense < 0:
        return False
    if isinstance(frequency, list):
        layers = fields.layers()
        return layers is not None and frequency != [0] * dense + [1] * (layers - dense)
    return isinstance(frequency, int) and not isinstance(frequency, bool) and frequency > 1


def _too_many_dense(fields: _Fields) -> bool:
    dense, layers = fields.number("first_k_dense_replace"), fields.layers()
    return bool(dense and layers is not None and dense > layers)


def _frequency(fields: _Fields) -> bool:
    frequency, layers = fields["moe_layer_freq"], fields.layers()
    if fields["first_k_dense_replace"] not in (None, 0) or layers is None:
        return False
    if isinstance(frequency, list):
        return len(frequency) != layers or any(number not in (0, 1) for number in frequency)
    return isinstance(frequency, int) and not isinstance(frequency, bool) and frequency > layers


def _fusion(fields: _Fields) -> bool:
    """Without a word about the activation: another one than ``swiglu`` is a matter of its own check."""
    unsaid = fields.context.source.get((*fields.section, "hidden_act"), UNKNOWN) is UNKNOWN
    return fields["bias_swiglu_fusion"] is True and unsaid


def _latent(field: str) -> Callable[[_Fields], bool]:
    return lambda fields: fields["multi_latent_attention"] is True and fields[field] is True


def _interval(fields: _Fields) -> bool:
    value = fields["nope_layer_interval"]
    if value is None or value is UNKNOWN or fields["position_embedding_type"] == "none":
        return False
    return not isinstance(value, int) or value <= 0


def _window(fields: _Fields) -> bool:
    window = fields["window_size"]
    ends = window[:2] if isinstance(window, list) else []
    return any(isinstance(end, int) and end < -1 for end in ends)


def _linear_bias(fields: _Fields) -> bool:
    return bool(fields.number("num_moe_experts")) and fields["add_bias_linear"] is True


def _position(fields: _Fields) -> bool:
    return fields["position_embedding_type"] not in (*_POSITIONS, UNKNOWN)


def _no_multiple(one: str, other: str) -> Callable[[_Fields], bool]:
    """Whether heads of an attention that is not latent do not go into each other, or into the width."""

    def broken(fields: _Fields) -> bool:
        number, divisor = fields.number(one), fields.number(other)
        return bool(number and divisor and number % divisor) and fields["multi_latent_attention"] is False

    return broken


def _unshared(fields: _Fields) -> bool:
    experts, ways = fields.number("num_moe_experts"), fields.ways("expert")
    return bool(experts and ways > 1 and experts % ways)


def _too_many_chosen(fields: _Fields) -> bool:
    experts, chosen = fields.number("num_moe_experts"), fields.number("moe_router_topk")
    return bool(experts and chosen and chosen > experts > 0)


def _none_of(field: str, known: tuple[str, ...]) -> Callable[[_Fields], bool]:
    """Whether a model with experts has another value than those that its code goes by."""

    def broken(fields: _Fields) -> bool:
        value = fields[field]
        return bool(fields.number("num_moe_experts")) and isinstance(value, str) and value not in known

    return broken


def _unsplit_sequence(fields: _Fields) -> bool:
    return (
        bool(fields.number("num_moe_experts"))
        and fields.ways("tensor") > 1
        and not startup.splits_sequence(fields.context)
    )


# By its name in the checklist, the fields that each rule is about and whether they break it.
_RULES: dict[str, tuple[tuple[str, ...], Callable[[_Fields], bool]]] = {
    "without-experts": (("num_moe_experts",), _without_experts),
    "devices": (("npu_nums_per_device",), _too_few_in_parallel),
    "none": (("num_moe_experts",), lambda fields: (fields.number("num_moe_experts") or 1) <= 0),
    "capacity": (("moe_expert_capacity_factor",), _capacity),
    "linear-bias": (("add_bias_linear",), _linear_bias),
    "expert-bias": (("moe_router_enable_expert_bias",), _bias),
    "one-expert": (("moe_router_topk",), _one_expert),
    "group-size": (
        ("moe_router_num_groups", "num_moe_experts"),
        _remainder("num_moe_experts", "moe_router_num_groups"),
    ),
    "groups": (("moe_router_group_topk", "moe_router_num_groups"), _too_many_groups),
    "small-groups": (("moe_router_num_groups", "num_moe_experts"), _small_groups),
    "experts-of-groups": (
        ("moe_router_topk", "moe_router_group_topk"),
        _remainder("moe_router_topk", "moe_router_group_topk"),
    ),
    "dense-and-frequency": (("moe_layer_freq", "first_k_dense_replace"), _dense_and_frequency),
    "dense": (("first_k_dense_replace", "num_layers"), _too_many_dense),
    "frequency": (("moe_layer_freq", "num_layers"), _frequency),
    "fusion": (("bias_swiglu_fusion", "hidden_act"), _fusion),
    "latent-fusion": (("apply_rope_fusion",), _latent("apply_rope_fusion")),
    "latent-interleaved": (("rotary_interleaved",), _latent("rotary_interleaved")),
    "position": (("position_embedding_type",), _position),
    "interval": (("nope_layer_interval",), _interval),
    "window": (("window_size",), _window),
    "heads": (("num_attention_heads", "hidden_size"), _no_multiple("hidden_size", "num_attention_heads")),
    "groups-of-heads": (
        ("num_query_groups", "num_attention_heads"),
        _no_multiple("num_attention_heads", "num_query_groups"),
    ),
    "unshared": (("num_moe_experts",), _unshared),
    "chosen": (("moe_router_topk", "num_moe_experts"), _too_many_chosen),
    "dispatcher": (("moe_token_dispatcher_type",), _none_of("moe_token_dispatcher_type", _DISPATCHERS)),
    "balance": (
        ("moe_router_load_balancing_type",),
        lambda fields: _none_of("moe_router_load_balancing_type", _BALANCED)(fields) and not _capacity(fields),
    ),
    "unsplit-sequence": (("num_moe_experts",), _unsplit_sequence),
}


def muon(context: CheckContext) -> Iterator[Violation]:
    """Muon, which takes models with latent attention alone (``_verify_model`` of ``optim/muon.py``, 1.8 to 2.1)."""
    if context.model.value("multi_latent_attention") is False:
        yield Violation(("optimizer", "type"))


def _place(fields: _Fields, named: tuple[str, ...]) -> tuple[str, ...]:
    """Where the first of the fields is written, or else the section."""
    found = (one.path for field in named for one in fields.model.written(field) if one.path)
    return next(found, fields.section)


def _params(fields: _Fields, named: tuple[str, ...]) -> dict[str, object]:
    values = [fields[field] for field in named]
    shown = [value for value in values if value is not UNKNOWN]
    ways = {f"{kind}_ways": fields.ways(kind) for kind in ("expert", "tensor")}
    return {"first": shown[0] if shown else "?", "second": shown[1] if len(shown) > 1 else "?", **ways}
