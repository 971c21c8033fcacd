"""Describe a model from which a config is written: the values of the placeholders in ``yaml_templates/from_zero``.

Sizes are those of a ``config.json`` of Hugging Face, or of the built-in table; other values follow from the type of
the model (``data/from_zero.json``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, UnsupportedError, UsageError, closest
from ms_tune.facts.query import load
from ms_tune.facts.sizes import find_public_model
from ms_tune.records import Any, Record
from ms_tune.text import msg

_NEEDED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_MOST, _MOST_LAYERS = 1 << 24, 2_000  # an untrusted file may claim any number
_UNSAFE = re.compile(r"[^\w.+-]")  # characters of a name that a script does not get


class NewModel(Record):
    """A model to train."""

    name: str
    values: Mapping[str, Any]  # its settings by the names of `config.json`, and switches of the templates

    def number(self, name: str) -> int:
        """Return a size; 0 if the model has none of this name."""
        value = self.values.get(name)
        return value if type(value) is int else 0

    def has(self, name: str) -> bool:
        """Return whether a switch is on."""
        return bool(self.values.get(name))

    def values_for(self, tokens: int) -> dict[str, Any]:
        """Return the values of a template's placeholders for a sequence length in tokens."""
        return {**self.values, "max_position_embeddings": max(self.number("max_position_embeddings"), tokens)}

    @property
    def dialects(self) -> tuple[Dialect, ...]:
        """Return the dialects with a network that trains it, the preferred one first."""
        return tuple(Dialect(name) for name, kinds in _data()["trains"].items() if self.values["model_type"] in kinds)


def _data() -> Mapping[str, Any]:
    return load("from_zero")


def find_new_model(name: str) -> NewModel:
    """Return the public model of this name."""
    known = load("sizes")["models"]
    exact = next(
        (one for one in known if one.lower() == name.lower()), None
    )  # names of other models may differ by a date
    if exact is not None:
        return describe_model(exact, known[exact]["config"])
    found = find_public_model(name)
    if found is None:
        near = closest(name.lower(), {one.lower() for one in known})
        hint = msg("rule.unknown.similar", similar=near) if near else msg("init.model.hint", names=", ".join(known))
        raise UsageError(msg("init.model.unknown", name=name), hint)
    return describe_model(found.name, found.config)


def describe_model(name: str, config: Mapping[str, Any]) -> NewModel:
    """Return a model with the content of its ``config.json``; ConfigError if a size is missing or no size."""
    wrong = [key for key in _NEEDED if not _is_size(config.get(key))]
    if wrong or config["num_hidden_layers"] > _MOST_LAYERS:
        raise ConfigError(msg("init.model.sizes", name=name, missing=", ".join(wrong) or _NEEDED[3]))
    kind = config.get("model_type")
    known = _data()["types"].get(kind)
    if known is None:
        types = ", ".join(_data()["types"])
        raise UnsupportedError(msg("init.model.type", name=name, type=kind, types=types))
    values: dict[str, Any] = dict(known)
    for start, more in _data()["names"].items():
        values |= more if name.startswith(start) else {}
    rotary = config.get("rope_parameters")
    # Only finite numbers: a text could end a line of a script.
    for settings in (rotary if isinstance(rotary, dict) else {}, config):
        numbers = {key: value for key, value in settings.items() if type(value) in (int, float, bool)}
        values |= {key: value for key, value in numbers.items() if abs(value) < float("inf")}
    return NewModel(_UNSAFE.sub("-", name), values | {"model_type": kind} | _derive(values))


def _is_size(value: object) -> bool:
    return type(value) is int and 0 < value <= _MOST


def _derive(values: Mapping[str, Any]) -> dict[str, Any]:
    heads = values["num_attention_heads"]
    names = ("num_experts", "n_routed_experts", "num_local_experts")
    routed = next((values[name] for name in names if _is_size(values.get(name)) and values[name] > 1), 0)
    width = values.get("moe_intermediate_size") or values["intermediate_size"]
    shared = values.get("n_shared_experts") or 0
    head = values.get("head_dim") or values["hidden_size"] // heads
    tied = values.get("tie_word_embeddings") is True
    return {
        "rotary_base": values.get("rope_theta") or 10000,
        "num_key_value_heads": values.get("num_key_value_heads") or heads,
        "head_dim": head,
        "own_head": head * heads != values["hidden_size"] or values.get("own_head"),
        "tie_word_embeddings": tied,
        "untied": not tied,
        "experts": bool(routed),
        "routed": routed,
        "moe_intermediate_size": width if routed else None,
        "shared": bool(shared),
        "shared_width": values.get("shared_expert_intermediate_size") or shared * width,
        "first_k_dense_replace": values.get("first_k_dense_replace") or 0,
        "query_rank": bool(values.get("q_lora_rank")),
        "predictions": values.get("num_nextn_predict_layers") or 0,
        "grouped": (values.get("num_key_value_heads") or heads) != heads,
    }
