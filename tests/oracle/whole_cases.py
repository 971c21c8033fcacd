"""Generate random complete configs with randomly missing keys, so that the framework's own defaults decide."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ms_tune.enums import Dialect
from ms_tune.facts.models import is_legacy, model_of
from ms_tune.source.yaml import parse_source
from tests.oracle import cases, lint_cases, pynative_cases
from tests.oracle.cases import SETTINGS

if TYPE_CHECKING:
    from random import Random

DROP = float(os.environ.get("MS_TUNE_ORACLE_DROP", "0.3"))  # the probability of leaving out a known key
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))

# The network class of each model.
ARCHITECTURES = {
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "telechat3": "TeleChat3ForCausalLM",
    "telechat3_moe": "TeleChat3MoeForCausalLM",
}
EXPERTS = ("deepseek_v3", "glm4_moe", "qwen3_moe", "telechat3_moe")
# Names of fields: that of the model's own class, and others, which mostly conflict with it.
_OTHERS = {"layers": ("num_layers", "n_layer"), "mtp": ("mtp_num_layers", "mtp_depth"), "experts": ("num_moe_experts",)}


def without_some(random: Random, section: dict[str, Any], chance: float | None = None) -> dict[str, Any]:
    """Return the section with each of its keys left out with a probability."""
    return {key: value for key, value in section.items() if random.random() >= (DROP if chance is None else chance)}


# Sections for the model and its training, of all dialects.
SECTIONS = (
    *("model.model_config", "moe_config", "parallel", "parallel_config", "recompute_config", "swap_config"),
    *("runner_config", "context", "training", "parallelism", "recompute", "recompute_comm", "swap"),
    *("model_config", "training_config", "dataset_config", "optimizer_config"),
)


def left_out(random: Random, config: dict[str, Any], needed: Iterable[str] = ()) -> dict[str, Any]:
    """Return the config with keys of these sections left out with a probability; required keys stay."""

    def less(section: dict[str, Any], path: str) -> dict[str, Any]:
        kept = without_some(random, section) if path in SECTIONS else section
        kept = {key: value for key, value in section.items() if key in kept or f"{path}.{key}" in needed}
        inner = {key: f"{path}.{key}" if path else str(key) for key in kept}
        return {key: less(one, inner[key]) if isinstance(one, dict) else one for key, one in kept.items()}

    return less(config, "")


def model_section(random: Random, kinds: Iterable[str], layers: int, mtp: int) -> dict[str, Any]:
    """Return a plausible section of a model, with all settings that concern its layers."""
    kinds = tuple(kinds)
    kind = random.choice(kinds)
    network = ARCHITECTURES[kind if random.random() < 0.95 else random.choice(kinds)]  # seldom that of another model

    def named(field: str, own: str) -> str:
        return own if random.random() < 0.9 else random.choice(_OTHERS[field])

    section: dict[str, Any] = {
        "model_type": kind,
        "architectures": random.choice(([network], network)),
        named("layers", "num_hidden_layers"): layers,
        "hidden_size": 64,
        "num_attention_heads": 8,
        "seq_length": 64,
        "vocab_size": 1024,
        "hidden_act": random.choice(("silu", "swiglu")),
    }
    if kind in EXPERTS:
        dense = random.choice((0, 0, 1, 2, 3, layers))
        frequencies = (1, 1, 2, 3, [random.choice((0, 1)) for _ in range(layers)])
        section |= {
            "moe_grouped_gemm": True,
            named("experts", "num_experts" if kind == "qwen3_moe" else "n_routed_experts"): random.choice((8, 16, 64)),
            "first_k_dense_replace": dense,
            "moe_layer_freq": 1 if dense and random.random() < 0.9 else random.choice(frequencies),
            "num_experts_per_tok": random.choice((4, 8)),
        }
    if kind == "deepseek_v3" or random.random() < 0.03:
        section[named("mtp", "num_nextn_predict_layers")] = min(mtp, 1)
    # Required settings are left out less often.
    needed = ("model_type", "architectures", "moe_grouped_gemm")
    kept = without_some(random, {key: section[key] for key in needed if key in section}, DROP / 5)
    return {**kept, **without_some(random, {key: section[key] for key in section if key not in needed})}


def dynamic_config(random: Random, version: str, patterns: dict[str, list[str]]) -> dict[str, Any]:
    """Return a config of the dynamic graph.

    Args:
        random: The random source.
        version: The release.
        patterns: Names inside the layers of each model, from which patterns are made.
    """
    config, layers, mtp = pynative_cases.random_config(random, version)
    model = model_section(random, tuple(patterns), layers, mtp)
    named = patterns.get(str(model.get("model_type")), ["mlp"])
    config = {
        name: renamed(random, without_some(random, section), named) if isinstance(section, dict) else section
        for name, section in config.items()
    }
    config = without_some(random, config, DROP / 3)
    training = without_some(random, {"global_batch_size": 64, "local_batch_size": 1, "steps": 10})
    return {**config, "training": training, "model": model}


def renamed(random: Random, value: Any, patterns: list[str]) -> Any:  # noqa: ANN401 - sound or not
    """Return the value with its patterns replaced, usually."""
    if isinstance(value, dict):
        known = {"select_module", "exclude_op"}
        made: dict[Any, Any] = {}
        for key, item in value.items():
            if key in known and isinstance(item, dict):
                names = [random.choice(patterns) if random.random() < 0.8 else name for name in item]
                made[key] = dict(zip(names, item.values(), strict=True))
            elif key == "op_swap" and isinstance(item, list):
                made[key] = [
                    {**one, "op_name": random.choice(patterns)} if isinstance(one, dict) and "op_name" in one else one
                    for one in item
                ]
            else:
                made[key] = item
        return made
    return value


# The models that each release of the static graph trains.
STATIC = {
    "1.6": ("deepseek_v3",),
    **dict.fromkeys(("1.7", "1.8"), ("deepseek_v3", "qwen3", "qwen3_moe")),
    **dict.fromkeys(("1.9", "2.0", "2.1"), ("deepseek_v3", "qwen3", "qwen3_moe", "telechat3", "telechat3_moe")),
}
CORE_PATTERNS: list[Any] = SETTINGS["patterns_core"]
LEGACY_PATTERNS: list[Any] = SETTINGS["patterns_legacy"]


def static_config(random: Random, version: str) -> dict[str, Any]:
    """Return a config of the static graph."""
    config = lint_cases.random_config(random, version, 0.1)
    config["use_parallel"] = True  # as the launcher sets it on the command line
    model = config.get("model")
    section = model.get("model_config") if isinstance(model, dict) else None
    legacy = is_legacy(config)
    if random.random() < 0.05:  # an equal value
        config["use_legacy"] = random.choice((1, None, "False", [0]) if legacy else (0, "", [], {}))
    if isinstance(section, dict) and not legacy:
        layers, mtp = section.get("num_hidden_layers", 4), section.get("num_nextn_predict_layers", 0)
        kept = {
            key: section[key]
            for key in ("offset", "pp_interleave_num", "swap", "layer_swap", "op_swap")
            if key in section
        }
        section = model_section(random, STATIC[version], layers, mtp) | without_some(random, kept)
    elif isinstance(section, dict):
        kept = {
            key: section[key] for key in ("type", "num_heads", "num_attention_heads", "hidden_size") if key in section
        }
        section = kept | without_some(random, {key: section[key] for key in section if key not in kept})
    patterns = LEGACY_PATTERNS if legacy else CORE_PATTERNS
    for name in ("recompute_config", "swap_config", "parallel_config", "moe_config", "runner_config"):
        if isinstance(config.get(name), dict):
            config[name] = without_some(random, _with_patterns(random, config[name], patterns))
    if isinstance(section, dict):
        config["model"]["model_config"] = _with_patterns(random, section, patterns)
        if random.random() < 0.7:
            _place(random, config, version)
    return config


def in_model_folder(random: Random, config: dict[str, Any], version: str, folder: Path) -> dict[str, Any]:
    """Return the config with some of its model, and some different values, in the ``config.json`` of a folder."""
    model = config.get("model")
    section = model.get("model_config") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(section, dict):
        return config
    reported = {key: value for key, value in section.items() if random.random() < 0.6}
    other = model_section(random, STATIC[version], random.choice((2, 4, 8)), 0)
    other = {key: other[key] for key in other if key not in ("model_type", "architectures")}  # specific to one model
    reported |= {key: value for key, value in other.items() if random.random() < 0.05}
    kept = {key: value for key, value in section.items() if key not in reported or random.random() < 0.4}
    (folder / "config.json").write_text(json.dumps(reported), "utf-8")
    model = {key: value for key, value in model.items() if key != "model_config"}
    if kept or random.random() < 0.5:
        model["model_config"] = kept
    if random.random() < 0.5:
        return {**config, "model": model, "pretrained_model_dir": str(folder)}
    model["pretrained_model_dir"] = str(folder)
    return {**config, "model": model}


def _place(random: Random, config: dict[str, Any], version: str) -> None:
    """Make the placement valid for the new number of layers."""
    source = parse_source(cases.text_of(config), Path("a.yaml"))
    model = model_of(source, Dialect.MINDFORMERS, version)
    layers, stages = model.number("num_layers"), source.get(("parallel_config", "pipeline_stage"), 1)
    ahead = (model.number("mtp_num_layers") or 0) if version == "1.6" and not is_legacy(config) else 0
    chunks = model.number("virtual_pipeline_model_parallel_size" if model.facts.latent else "pp_interleave_num") or 1
    if source.get(("parallel", "pipeline_config", "pipeline_interleave")) is not True:
        chunks = 1
    if layers and isinstance(stages, int) and stages > 0 and chunks > 0:
        section = config["model"]["model_config"]
        section["offset"] = cases.random_offset(random, layers + ahead, stages, chunks, sound=True)


def _with_patterns(random: Random, section: dict[str, Any], patterns: Sequence[str]) -> dict[str, Any]:
    """Return the section with patterns that match operators of the model."""
    made: dict[str, Any] = {}
    for key, value in section.items():
        made[key] = value
        if key.startswith("select") and isinstance(value, dict) and len(value) <= len(patterns):
            made[key] = dict(zip(random.sample(patterns, len(value)), value.values(), strict=True))
        elif (
            key.startswith("select")
            and isinstance(value, list)
            and value
            and all(isinstance(one, str) for one in value)
        ):
            made[key] = random.sample(patterns, min(len(value), len(patterns)))
        elif key == "op_swap" and isinstance(value, list):
            made[key] = [
                {**one, "op_name": random.choice(patterns)} if isinstance(one, dict) and "op_name" in one else one
                for one in value
            ]
    return made
