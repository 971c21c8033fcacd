"""Look up how MindSpeed-MM's models are described: names of their sizes, blocks of video models, parts of public models.

Source: ``data/multimodal.json``, which names its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ms_tune.facts.query import load
from ms_tune.facts.sizes import PublicModel, find_public_model
from ms_tune.records import Any

_COUNT = re.compile(r"(?<![A-Za-z0-9.])(\d{1,3}(?:\.\d{1,2})?)[bB](?![A-Za-z0-9])")
_LARGE, _HEAD, _WORDS = 20, 128, 151_936  # billions of a model with more layers; sizes that most public models have
_KIND = re.compile(r"-(?:VL|Omni)(?=-)", re.IGNORECASE)


def table(name: str) -> Mapping[str, Any]:
    """Return a table of the data."""
    found: Mapping[str, Any] = load("multimodal")[name]
    return found


def arguments_for(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments of Megatron-LM that have the sizes of a transformer's settings, whichever program names them."""
    for name, option in table("values").items():
        value = values.get(name)
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            yield from (option, str(value))
    yield from (option for name, option in table("switches").items() if values.get(name) is True)
    groups = any(isinstance(values.get(name), int) for name in ("num_query_groups", "num_key_value_heads"))
    yield from ("--group-query-attention",) if groups else ()
    yield from load("multimodal")["always"].split()


def find_text_model(path: str) -> PublicModel | None:
    """Return the language model of a public multimodal model that a name or path refers to, or None."""
    for part in reversed(re.split(r"[/\\]", path)):
        special = next((text for name, text in table("texts").items() if part.lower().startswith(name.lower())), None)
        found = find_public_model(special or _KIND.sub("", part))
        if found is not None:
            return found
    return _model_by_count(path)


def _model_by_count(path: str) -> PublicModel | None:
    # Return a plain transformer with as many parameters as a name says: "19b". Its activations are only of the right order.
    counts = _COUNT.findall(path)
    if not counts:
        return None
    billions = float(counts[0])
    layers = 32 if billions < _LARGE else 64
    heads = max(1, round((billions * 1e9 / 12 / layers) ** 0.5 / _HEAD))
    sizes = {"num_hidden_layers": layers, "hidden_size": heads * _HEAD, "num_attention_heads": heads}
    inner = 8 * heads * _HEAD // 3
    return PublicModel(
        f"{counts[0]}B", {**sizes, "intermediate_size": inner, "vocab_size": _WORDS, "tie_word_embeddings": True}
    )


def find_vision_encoder(path: str) -> Mapping[str, Any] | None:
    """Return the sizes of a public multimodal model's vision encoder, or None."""
    families: Mapping[str, Mapping[str, Any]] = table("families")
    return next((sizes for name, sizes in families.items() if name.lower() in path.lower()), None)
