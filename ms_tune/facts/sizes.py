"""Look up the sizes of a public model by its name, or by the path of its folder.

``data/sizes.json`` has them as in the model's ``config.json``, each with the public file that they were read from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from ms_tune.facts.query import load
from ms_tune.records import Any, Record

# Words after a model's name that do not change its sizes: how it was tuned, its date, its longest sequence.
# The patterns are compiled when a name is first looked up: lint reads this module in each run, and few configs name one.
_SAME_SIZES = r"base|instruct|chat|hf|thinking|sft|safetensors|weights?|ckpt|bf16|fp16|v0\.1|v1\.1|\d{4,8}|\d+[km]"
_WORD, _PART = r"[-_\s]+", r"[a-z]+|\d+"
_FAMILY = r"(.+?)-(\d+(?:[.x]\d+)?b)"  # a family's name and a size: "Llama-3.1" and "8B" of "Llama-3.1-8B"
_MAKERS = ("meta",)  # words before a name


class PublicModel(Record):
    """A public model."""

    name: str
    config: Mapping[str, Any]  # its sizes, as in its `config.json`


def find_public_model(path: str) -> PublicModel | None:
    """Return the model that a name, or the last part of a path that is one, refers to, or None."""
    for part in reversed(re.split(r"[/\\]", path)):
        name = _names().get(
            _normalize_name(part.rpartition("--")[2])
        )  # `models--Qwen--Qwen3-32B` in a cache of Hugging Face
        if name is not None:
            return PublicModel(name, load("sizes")["models"][name]["config"])
    return None


def find_tokenizer(kind: str) -> PublicModel | None:
    """Return the name and vocabulary of the public models that share this type of tokenizer; None if unknown."""
    found = load("sizes")["vocabularies"].get(kind)
    return found and PublicModel(found["name"], found["config"])


def find_family_model(name: str, hidden: int, heads: int) -> PublicModel | None:
    """Return a public model with these sizes whose family a file's name contains; None if their vocabularies differ."""
    text = re.sub("[^a-z0-9]", "", name.lower())
    found: dict[str, list[PublicModel]] = {}
    for other, model in _models_by_name().items():
        config = load("sizes")["models"][model]["config"]
        if (config["hidden_size"], config["num_attention_heads"]) == (hidden, heads):
            parts = re.match(_FAMILY, other.lower())
            family, size = parts.groups() if parts else (other.lower(), "")
            family += "" if any(map(str.isdigit, family)) else size  # later families continue a name without a number
            family = re.sub("[^a-z0-9]", "", family)
            if family in text:
                found.setdefault(family, []).append(PublicModel(model, config))
    best = found[max(found, key=len)] if found else []
    return best[0] if len({one.config["vocab_size"] for one in best}) == 1 else None


def bound_vocabulary(hidden: int, inner: int) -> tuple[int, int]:
    """Return the smallest and largest vocabulary of public models with these widths, or of all if none has them."""
    configs = [one["config"] for one in load("sizes")["models"].values()]
    alike = [one for one in configs if (one["hidden_size"], one["intermediate_size"]) == (hidden, inner)]
    sizes = [one["vocab_size"] for one in alike or configs]
    return min(sizes), max(sizes)


def parts_of(model_type: str) -> Mapping[str, Any]:
    """Return the parts of a model type's layers that its `config.json` does not state: biases, norms, gates."""
    found: Mapping[str, Any] = load("sizes")["parts"].get(model_type, {})
    return found


def _models_by_name() -> dict[str, str]:
    data = load("sizes")
    also = {other: name for name, others in data["also"].items() for other in others}
    return {**also, **{one: one for one in data["models"]}}


@cache
def _names() -> Mapping[tuple[str, ...], str]:
    return {_normalize_name(other): name for other, name in _models_by_name().items()}


def _normalize_name(name: str) -> tuple[str, ...]:
    words = [word for word in re.split(_WORD, name.lower()) if word]
    while len(words) > 1 and re.fullmatch(_SAME_SIZES, words[-1]):
        del words[-1]
    if len(words) > 1 and words[0] in _MAKERS:
        del words[0]
    return tuple(re.findall(_PART, " ".join(words)))
