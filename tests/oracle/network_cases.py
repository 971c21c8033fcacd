"""Generate random settings of the legacy networks: Llama and ChatGLM, with or without experts."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from tests.oracle.cases import SETTINGS

if TYPE_CHECKING:
    from random import Random

ARCHITECTURES = {"LlamaConfig": "LlamaForCausalLM", "ChatGLM2Config": "ChatGLM2ForConditionalGeneration"}


def legacy_model(random: Random, sizes: dict[str, Any], heads: int, share: float = 0.05) -> dict[str, Any]:
    """Return the section ``model_config`` of a legacy network, with this share of all settings written."""
    if random.random() < 0.15:
        several = {"num_attention_heads": heads, "multi_query_group_num": heads}
        return {"type": "ChatGLM2Config", **sizes, **several, **some(random, SETTINGS["glm"], 2 * share)}
    more: dict[str, Any] = {"vocab_size": 1024, "use_flash_attention": random.random() < 0.9}
    if random.random() < 2 * share:
        more["fine_grain_interleave"] = random.choice((1, 2, 2, 4))
    if random.random() < 2 * share:
        more |= {"use_3d_tensor_parallel": random.random() < 0.9, **some(random, SETTINGS["dimensions"], 0.5)}
    more |= {**some(random, SETTINGS["llama"], share), **_stretched(random)}
    return {"type": "LlamaConfig", "num_heads": heads, **sizes, **more}


def random_network(random: Random) -> dict[str, Any]:
    """Return a config with only a legacy network and its parallelism: more of them reach the network."""
    heads = random.choice((8, 8, 16, 16, 12))
    sizes = {"num_layers": 2, "hidden_size": heads * 8, "seq_length": random.choice((64, 2048, 4096))}
    model = legacy_model(random, sizes, heads, random.choice((0.05, 0.1, 0.2)))
    config: dict[str, Any] = {
        "run_mode": "train",
        "use_parallel": random.random() < 0.95,
        "runner_config": {"batch_size": 1},
        "train_dataset": {"data_loader": {"type": "MindDataset"}},
        "parallel": {"parallel_mode": random.choice((1, 1, 1, 1, 0, 2)), "full_batch": True},
        "parallel_config": some(random, SETTINGS["network_parallel_config"], 0.5),
        "model": {"arch": {"type": ARCHITECTURES[model["type"]]}, "model_config": model},
    }
    if random.random() < 0.15:
        config["parallel"]["search_mode"] = "sharding_propagation"
    if random.random() < 0.4:
        config["moe_config"] = {"routing_policy": "TopkRouterV2", **some(random, SETTINGS["legacy_experts"], 0.25)}
    return config


def some(random: Random, choices: dict[str, list[Any]], share: float) -> dict[str, Any]:
    """Return this share of the settings, each with one of its values."""
    return {key: copy.deepcopy(random.choice(values)) for key, values in choices.items() if random.random() < share}


def _stretched(random: Random) -> dict[str, Any]:
    """Return extended positions, mostly with valid settings."""
    if random.random() < 0.9:
        return {}
    found: dict[str, Any] = copy.deepcopy(random.choice(SETTINGS["stretched"]))
    factor = found["scaling_factor"]
    if isinstance(factor, dict) and random.random() < 0.5:
        key = random.choice(list(factor))
        if random.random() < 0.2:
            del factor[key]
        else:
            factor[random.choice((key, key, key, "x"))] = random.choice((0.5, 1, 2, 16, 64, 2.0, "8", None))
    return found
