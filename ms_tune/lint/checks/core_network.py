"""Checks of which network an Mcore model (``use_legacy: False``) is, and whether it can be trained.

``MindFormerRegister.get_instance_type_from_cfg`` in ``mindformers/tools/register/register.py`` finds the network by
``architectures``; each network's ``__new__`` in ``mindformers/models/*/modeling_*.py`` decides what is built. MindFormers 1.6
to 2.1. A ``config.json`` beside the weights may say all this in place of the config.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.config.source import MISSING
from ms_tune.frameworks.releases import VERSIONS
from ms_tune.lint.checks import startup
from ms_tune.lint.context import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.lint.context import Context

_MODEL = ("model", "model_config")
_NETWORK = (*_MODEL, "architectures")
_NEVER = "never"
# The release in which each network came, and the one from which on it can be trained.
_RELEASES = {
    "DeepseekV3ForCausalLM": ("1.6", "1.6"),
    "Qwen2ForCausalLM": ("1.6", _NEVER),
    "Qwen3ForCausalLM": ("1.6", "1.7"),
    "Qwen3MoeForCausalLM": ("1.6", "1.7"),
    "Glm4ForCausalLM": ("1.7", _NEVER),
    "Glm4MoeForCausalLM": ("1.7", _NEVER),
    "TeleChat2ForCausalLM": ("1.7", _NEVER),
    "TeleChat3ForCausalLM": ("1.9", "1.9"),
    "TeleChat3MoeForCausalLM": ("1.9", "1.9"),
}
# The usual network of each `model_type` (`search_names` of the configuration classes).
_USUAL = {
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_mtp": "DeepseekV3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "telechat": "TeleChat2ForCausalLM",
    "telechat3": "TeleChat3ForCausalLM",
    "telechat3_moe": "TeleChat3MoeForCausalLM",
    "telechat3_mtp": "TeleChat3MoeForCausalLM",
}


def untrained(context: Context) -> Iterator[Violation]:
    """A network that the release does not have, or has for inference only."""
    names = context.source.get(_NETWORK)
    name = str(names[0]) if isinstance(names, list) and names else str(names)
    if name not in _RELEASES:
        return
    release = startup.release(context)
    since, trained = _RELEASES[name]
    params = {"name": name, "release": release, "since": since}
    if VERSIONS.index(since) > VERSIONS.index(release):
        yield Violation(_NETWORK, "later", params)
    elif trained == _NEVER or VERSIONS.index(trained) > VERSIONS.index(release):
        yield Violation(_NETWORK, params=params)


def unnamed(context: Context) -> Iterator[Violation]:
    """A model whose settings are named and whose network is not."""
    usual = _USUAL.get(str(context.source.get((*_MODEL, "model_type"))))
    elsewhere = context.get("model.pretrained_model_dir") or context.get("pretrained_model_dir")
    if usual and not elsewhere and context.source.get(_NETWORK, MISSING) in (MISSING, None):
        yield Violation(_MODEL, params={"network": usual})
