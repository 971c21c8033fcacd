"""Checks of the model's settings in Mcore models (``use_legacy: False``), which ``TransformerConfig`` takes or refuses.

The rules are those of ``TransformerConfig.__post_init__`` (``mindformers/parallel_core/transformer_config.py``, 1.6 to
2.1). Several names stand for one field, see :mod:`ms_tune.frameworks.keys.mindformers_model`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.config.source import MISSING
from ms_tune.frameworks.dialect import Dialect
from ms_tune.frameworks.keys import names as key_names
from ms_tune.frameworks.keys.mindformers_model import ALIASES
from ms_tune.frameworks.releases import VERSIONS
from ms_tune.lint.checks import startup
from ms_tune.lint.context import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ms_tune.lint.context import Context

_MODEL = ("model", "model_config")
# What the model's own class says where the config does not (``models/*/configuration_*.py``, 1.9). Others are not
# known, nor is what a ``config.json`` beside the weights says.
_DEFAULTS: dict[str, dict[str, object]] = {
    "qwen3": {"num_moe_experts": None, "multi_latent_attention": False, "add_bias_linear": False},
    "deepseek_v3": {
        "num_moe_experts": 256,
        "moe_router_topk": 8,
        "moe_router_num_groups": 8,
        "moe_router_group_topk": 4,
        "first_k_dense_replace": 3,
        "moe_layer_freq": 1,
        "moe_router_enable_expert_bias": True,
        "moe_router_score_function": "sigmoid",
        "multi_latent_attention": True,
        "add_bias_linear": False,
    },
}
# What ``TransformerConfig`` says, which is what a field has that no model's class knows.
_FIELDS: dict[str, object] = {
    "moe_token_dispatcher_type": "alltoall",
    "npu_nums_per_device": 8,
    "moe_expert_capacity_factor": None,
    "moe_router_load_balancing_type": "sub_seq_aux_loss",
    "moe_router_enable_expert_bias": False,
    "moe_router_pre_softmax": False,
    "apply_rope_fusion": False,
    "rotary_interleaved": False,
    "position_embedding_type": "rope",
    "nope_layer_interval": None,
    "window_size": None,
    "hidden_act": None,
    "bias_swiglu_fusion": False,
}
_BALANCED = ("sub_seq_aux_loss", "seq_aux_loss", "gbs_aux_loss")
_BALANCED_16 = ("aux_loss", "seq_aux_loss", "none")
_POSITIONS = ("rope", "yarn", "none", "relative", "learned_absolute", "partial_rope")


@dataclass(frozen=True, slots=True)
class _Fields:
    """The model's fields: what the config says, or else the model's class, or else nothing is known."""

    context: Context
    sealed: bool

    def __getitem__(self, field: str) -> object:
        """The value of a field; :data:`MISSING` where it is not known."""
        for name in _heard(self.context, field):
            value = self.context.source.get((*_MODEL, name), MISSING)
            if value is not MISSING:
                return value
        known = _DEFAULTS.get(str(self.context.get("model.model_config.model_type")), {})
        if self.sealed or (field not in known and field not in _FIELDS):
            return MISSING
        return known.get(field, _FIELDS.get(field, MISSING))

    def number(self, field: str) -> int | None:
        """A whole number; None where there is none, or it is not known."""
        value = self[field]
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def layers(self) -> int | None:
        """The number of layers."""
        return self.number("num_layers")

    def experts_in_parallel(self) -> int:
        """``expert_parallel``, unless it is set back to 1."""
        return (self.context.integer("parallel_config.expert_parallel", 1) or 1) if startup.splits(self.context) else 1


def refused(context: Context) -> Iterator[Violation]:
    """A setting, or several together, that the option ``rules`` names (``experts`` or ``model``) and that are refused."""
    version = VERSIONS.index(startup.release(context))
    fields = _Fields(context, sealed=bool(context.get("pretrained_model_dir")))
    for rule in _RULES[str(context.options["rules"])]:
        first, last = VERSIONS.index(rule.since), VERSIONS.index(rule.until)
        if first <= version <= last and rule.broken(fields):
            yield Violation(_place(context, rule.fields), rule.message, _params(fields, rule.fields))


def unconverted(context: Context) -> Iterator[Violation]:
    """A key that no field takes: up to 1.8 such a key stops the run, later it is only told (``convert_to_transformer_config``)."""
    known = key_names(Dialect.MINDFORMERS, _MODEL) | _LEFT_OUT
    release = VERSIONS.index(startup.release(context))
    # Which keys other models take out of the conversion is not known.
    strict = str(context.get("model.model_config.model_type")) in _OWNED
    for key in context.mapping("model.model_config"):
        later = next((version for version, names in _LATER.items() if key in names), "")
        if later and VERSIONS.index(later) > release:
            yield Violation((*_MODEL, str(key)), "later", {"since": later}, at_key=True)
        elif key not in known and strict:
            yield Violation((*_MODEL, str(key)), at_key=True)


def conflicting(context: Context) -> Iterator[Violation]:
    """A second name for a field that the model's class has under its own name in any case.

    The class of the model has a value of its own for each of its names, so another name for the same field is a second
    value: 'Mapping Conflicts' (1.9 on) or 'Multiple Config' (1.7 and 1.8).
    """
    kind = str(context.get("model.model_config.model_type"))
    owned = _OWNED.get(kind, ())
    if kind == "deepseek_v3" and startup.release(context) == "1.6":
        owned = (*owned, "scoring_func")  # later taken out of the conversion
    for own in owned:
        field = next((field for field, names in ALIASES.items() if own in names), "")
        for name in _heard(context, field):
            if name != own and context.source.get((*_MODEL, name), MISSING) is not MISSING:
                yield Violation((*_MODEL, name), params={"own": own, "field": field}, at_key=True)


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule: the fields that it is about, what it says, and whether the fields break it."""

    message: str
    fields: tuple[str, ...]
    broken: Callable[[_Fields], bool]
    since: str = "1.6"
    until: str = "2.1"


def _without_experts(fields: _Fields) -> bool:
    return fields.experts_in_parallel() > 1 and fields["num_moe_experts"] is None


def _too_few_in_parallel(fields: _Fields) -> bool:
    per_device = fields.number("npu_nums_per_device")
    wanted = fields["moe_token_dispatcher_type"] == "alltoall_deredundency"  # noqa: S105 - tokens of a text
    return wanted and per_device is not None and fields.experts_in_parallel() < per_device


def _capacity(*known: str) -> Callable[[_Fields], bool]:
    def broken(fields: _Fields) -> bool:
        kind = fields.context.get("model.model_config.moe_router_load_balancing_type")
        return fields["moe_expert_capacity_factor"] not in (None, MISSING) and kind is not None and kind not in known

    return broken


def _bias(*known: str) -> Callable[[_Fields], bool]:
    def broken(fields: _Fields) -> bool:
        score = fields["moe_router_score_function"]
        score = {True: "sigmoid", False: "softmax"}.get(score, score) if isinstance(score, bool) else score
        return fields["moe_router_enable_expert_bias"] is True and score is not MISSING and score not in known

    return broken


def _one_expert(fields: _Fields) -> bool:
    soft = fields["moe_router_score_function"] == "softmax" and fields["moe_router_pre_softmax"] is False
    kind = fields["moe_router_load_balancing_type"]
    return fields.number("moe_router_topk") == 1 and soft and kind not in ("sinkhorn", MISSING)


def _remainder(one: str, other: str) -> Callable[[_Fields], bool]:
    """Whether experts are grouped, and one number is no multiple of the other."""

    def broken(fields: _Fields) -> bool:
        number, divisor = fields.number(one), fields.number(other)
        return bool(fields.number("moe_router_group_topk") and number is not None and divisor and number % divisor)

    return broken


def _too_many_groups(fields: _Fields) -> bool:
    wanted, groups = fields.number("moe_router_group_topk"), fields.number("moe_router_num_groups")
    return bool(wanted and groups and wanted > groups)


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
    unsaid = fields.context.source.get((*_MODEL, "hidden_act"), MISSING) is MISSING
    return fields["bias_swiglu_fusion"] is True and unsaid


def _latent(field: str) -> Callable[[_Fields], bool]:
    return lambda fields: fields["multi_latent_attention"] is True and fields[field] is True


def _interval(fields: _Fields) -> bool:
    value = fields["nope_layer_interval"]
    if value is None or value is MISSING or fields["position_embedding_type"] == "none":
        return False
    return not isinstance(value, int) or value <= 0


def _window(fields: _Fields) -> bool:
    window = fields["window_size"]
    ends = window[:2] if isinstance(window, list) else []
    return any(isinstance(end, int) and end < -1 for end in ends)


_RULES: dict[str, tuple[_Rule, ...]] = {
    "experts": (
        _Rule("without-experts", ("num_moe_experts",), _without_experts),
        _Rule("devices", ("npu_nums_per_device",), _too_few_in_parallel, since="1.7"),
        _Rule("none", ("num_moe_experts",), lambda fields: (fields.number("num_moe_experts") or 1) <= 0),
        _Rule("capacity", ("moe_expert_capacity_factor",), _capacity(*_BALANCED_16), until="1.6"),
        _Rule("capacity", ("moe_expert_capacity_factor",), _capacity(*_BALANCED), since="1.7"),
        _Rule(
            "linear-bias",
            ("add_bias_linear",),
            lambda fields: bool(fields.number("num_moe_experts")) and fields["add_bias_linear"] is True,
        ),
        _Rule("expert-bias", ("moe_router_enable_expert_bias",), _bias("sigmoid"), until="2.0"),
        _Rule("expert-bias", ("moe_router_enable_expert_bias",), _bias("sigmoid", "sqrtsoftplus"), since="2.1"),
        _Rule("one-expert", ("moe_router_topk",), _one_expert),
        _Rule(
            "group-size",
            ("moe_router_num_groups", "num_moe_experts"),
            _remainder("num_moe_experts", "moe_router_num_groups"),
        ),
        _Rule("groups", ("moe_router_group_topk", "moe_router_num_groups"), _too_many_groups),
        _Rule(
            "experts-of-groups",
            ("moe_router_topk", "moe_router_group_topk"),
            _remainder("moe_router_topk", "moe_router_group_topk"),
            since="1.7",
        ),
        _Rule("dense-and-frequency", ("moe_layer_freq", "first_k_dense_replace"), _dense_and_frequency),
        _Rule("dense", ("first_k_dense_replace", "num_layers"), _too_many_dense),
        _Rule("frequency", ("moe_layer_freq", "num_layers"), _frequency, since="1.7"),
    ),
    "model": (
        _Rule("fusion", ("bias_swiglu_fusion", "hidden_act"), _fusion, since="1.7"),
        _Rule("latent-fusion", ("apply_rope_fusion",), _latent("apply_rope_fusion"), until="1.9"),
        _Rule("latent-interleaved", ("rotary_interleaved",), _latent("rotary_interleaved"), until="1.9"),
        _Rule(
            "position",
            ("position_embedding_type",),
            lambda fields: fields["position_embedding_type"] not in (*_POSITIONS, MISSING),
            since="1.8",
        ),
        _Rule("interval", ("nope_layer_interval",), _interval, since="1.8"),
        _Rule("window", ("window_size",), _window, since="1.8"),
    ),
}
# Names that came with a release (``COMMON_CONFIG_MAPPING`` of that one, compared with the one before).
_LATER = {
    "1.7": frozenset(
        {
            *("add_mlp_fc1_bias_linear", "add_mlp_fc2_bias_linear", "disable_lazy_inline", "layer_norm_epsilon"),
            *(
                "moe_aux_loss_coeff",
                "moe_router_force_expert_balance",
                "moe_router_fusion",
                "moe_token_dispatcher_type",
            ),
            *("n_head", "n_layer", "partial_rotary_factor", "pre_process", "print_separate_loss", "rotary_cos_format"),
            *("use_contiguous_weight_layout_attention", "use_interleaved_weight_layout_mlp", "use_qk_norm"),
        }
    ),
    "1.8": frozenset(
        {
            *("model_architecture", "nope_layer_interval", "num_decoder_layers", "num_encoder_layers", "window_size"),
            *("param_init_std_rules", "print_expert_load", "track_max_attention_logit", "window_attn_skip_freq"),
        }
    ),
    "1.9": frozenset(
        {
            *("dsa_indexer_head_dim", "dsa_indexer_loss_coeff", "dsa_indexer_n_heads", "dsa_indexer_topk"),
            *(
                "dsa_indexer_use_sparse_loss",
                "enable_expert_relocation",
                "experimental_attention_variant",
                "index_topk",
            ),
            *("expert_relocation_freq", "expert_relocation_initial_iteration", "index_head_dim", "index_n_heads"),
        }
    ),
}
# Taken by a model's class and left out of the conversion, or known to a release only.
_LEFT_OUT = frozenset(
    {
        *("auto_map", "torch_dtype", "use_cache", "transformers_version", "sliding_window", "use_sliding_window"),
        *(
            "max_window_layers",
            "layer_types",
            "ep_size",
            "scoring_func",
            "pretraining_tp",
            "mlp_bias",
            "pretrained_model_dir",
        ),
        *("mindformers_version", "_name_or_path", "name_or_path", "is_encoder_decoder", "is_sample_acceleration"),
        *("rl_config", "post_process", "quantization", "auto_register", "aux_loss_types", "aux_loss_factors"),
        *("enable_deredundency", "monitor_local_loss", "monitor_device_local_loss", "use_allgather_dispatcher"),
        *("use_contiguous_weight_layout", "residual_dtype", "parallel_decoding_params", "masked_softmax_fusion"),
        *("bias_activation_fusion", "moe_pad_expert_input_to_capacity", "layernorm_zero_centered_gamma"),
        *("moe_init_method_std", "moe_input_jitter_eps", "moe_per_layer_logging", "persist_layer_norm"),
        *("memory_efficient_layer_norm", "attention_next_tokens", "attention_pre_tokens", "rope_interleave"),
    }
)
# The names of fields that the class of a model has values for.
_OWNED = {
    "qwen3": (
        *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size", "head_dim"),
        *("rms_norm_eps", "initializer_range", "rope_theta", "attention_bias", "max_position_embeddings"),
    ),
    "deepseek_v3": (
        *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size", "rms_norm_eps"),
        *("initializer_range", "rope_theta", "attention_bias", "max_position_embeddings", "moe_intermediate_size"),
        *("n_routed_experts", "num_experts_per_tok", "n_group", "topk_group", "routed_scaling_factor"),
        *("n_shared_experts", "num_nextn_predict_layers", "qk_nope_head_dim", "qk_rope_head_dim"),
    ),
}


def _heard(context: Context, field: str) -> tuple[str, ...]:
    """The names that a field is read from: since 1.9 its own one and that of the model's class, since 2.0 one of the two."""
    names = ALIASES.get(field, (field,))
    owned = _OWNED.get(str(context.get("model.model_config.model_type")))
    if owned is None or VERSIONS.index(startup.release(context)) < VERSIONS.index("1.9"):
        return names
    own = tuple(name for name in names if name in owned)
    if own and startup.release(context) in ("2.0", "2.1"):
        return own
    return tuple(name for name in names if name == field or name in own)


def _place(context: Context, fields: tuple[str, ...]) -> tuple[str, ...]:
    """Where the first of the fields is written, or else the section."""
    section = context.mapping("model.model_config")
    for field in fields:
        for name in ALIASES.get(field, (field,)):
            if name in section:
                return (*_MODEL, name)
    return _MODEL


def _params(fields: _Fields, named: tuple[str, ...]) -> dict[str, object]:
    values = [fields[field] for field in named]
    shown = [value for value in values if value is not MISSING]
    return {"first": shown[0] if shown else "?", "second": shown[1] if len(shown) > 1 else "?"}
