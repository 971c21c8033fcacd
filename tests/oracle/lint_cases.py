"""Generate random MindFormers configs for the static graph, valid and invalid, to compare with lint."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from ms_tune.dialects.mindformers.placement import KEYS, RecomputeInputs
from tests.oracle.cases import SETTINGS, random_case
from tests.oracle.network_cases import ARCHITECTURES, legacy_model, some

if TYPE_CHECKING:
    from random import Random


# Values of a wrong type, or out of range, for any key.
_ODD: tuple[Any, ...] = (0, -1, True, False, "2", "x", 1.0, 2.5, None, [], {}, [1], {"a": 1}, 7, 64)
# The network classes themselves state whether they train, and in which release.
_NETWORKS: dict[str, str] = {
    "glm4": "Glm4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "telechat": "TeleChat2ForCausalLM",
}
_SECTIONS = (
    "trainer",
    "runner_config",
    "optimizer",
    "lr_schedule",
    "runner_wrapper",
    "train_dataset",
    "train_dataset_task",
    "callbacks",
    "context",
    "parallel",
    "parallel_config",
    "recompute_config",
    "swap_config",
    "moe_config",
    "model",
    "metric",
    "monitor_config",
)


def random_config(random: Random, version: str, spoilt: float = 0.4) -> dict[str, Any]:
    """Return one config; about half of them start, more with fewer errors in them."""
    inputs = random_case(random, version)
    config: dict[str, Any] = {
        "run_mode": random.choice(("train", "train", "finetune")),
        "use_parallel": random.random() < 0.9,
        "use_legacy": inputs.legacy,
        **some(random, SETTINGS["top"], 0.15),
        "trainer": {"type": "CausalLanguageModelingTrainer", "model_name": "m"},
        "runner_config": some(random, SETTINGS["runner_config"], 0.4),
        "optimizer": {"type": "AdamW", "betas": [0.9, 0.95], "learning_rate": 1.0e-5},
        "lr_schedule": {"type": "ConstantWarmUpLR", "learning_rate": 1.0e-6, "warmup_ratio": 0.0},
        "runner_wrapper": {"type": "MFTrainOneStepCell", "use_clip_grad": True},
        "train_dataset": {"data_loader": {"type": "MindDataset", "dataset_dir": "", "shuffle": True}},
        "train_dataset_task": {"type": "CausalLanguageModelDataset"},
        "callbacks": [{"type": "MFLossMonitor"}, {"type": "CheckpointMonitor", "prefix": "m"}],
        "context": {"mode": 0, **some(random, SETTINGS["context"], 0.3)},
        "parallel": {"parallel_mode": 1, "full_batch": True, **some(random, SETTINGS["parallel"], 0.12)},
        "parallel_config": {**some(random, SETTINGS["parallel_config"], 0.25), "pipeline_stage": inputs.stages},
        "recompute_config": {key: value for key, value in zip(KEYS, inputs.values, strict=True) if value is not False},
        "model": {"arch": {"type": "LlamaForCausalLM"}, "model_config": _model(random, inputs, version)},
    }
    config["model"]["arch"]["type"] = ARCHITECTURES.get(config["model"]["model_config"].get("type"), "LlamaForCausalLM")
    _add_pipeline(random, config, inputs)
    _add_swap(config, inputs)
    if inputs.legacy and random.random() < 0.3:
        config["moe_config"] = some(random, SETTINGS["legacy_experts"], 0.3)
    if random.random() < spoilt:
        for _ in range(random.choice((1, 1, 2))):
            _spoil(random, config)
    return config


def _model(random: Random, inputs: RecomputeInputs, version: str) -> dict[str, Any]:
    heads = random.choice((8, 8, 16, 32, 12))
    sizes = {"hidden_size": heads * 8, "seq_length": 64, "vocab_size": 1024}
    chunks = (
        {}
        if inputs.interleave_num in (None, 1) and random.random() < 0.7
        else {"pp_interleave_num": inputs.interleave_num}
    )
    offset = {} if inputs.offset == 0 and random.random() < 0.5 else {"offset": inputs.offset}
    if inputs.legacy:
        del sizes["vocab_size"]
        return legacy_model(random, {"num_layers": inputs.layers, **sizes, **chunks, **offset}, heads)
    layers = {"num_hidden_layers": inputs.layers, "num_attention_heads": heads, "num_key_value_heads": heads, **sizes}
    # 1.6 trains no other Mcore model.
    kind = "deepseek_v3" if version == "1.6" else random.choice(("qwen3", "qwen3", "deepseek_v3"))
    network = {"deepseek_v3": "DeepseekV3ForCausalLM", "qwen3": "Qwen3ForCausalLM"}[kind]
    if random.random() < 0.05:
        network = random.choice(
            (*_NETWORKS.values(), "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "DeepseekV3ForCausalLM")
        )
    model = {
        "model_type": kind,
        "architectures": [network],
        **layers,
        **chunks,
        **offset,
        **some(random, SETTINGS["core"], 0.08),
    }
    if kind == "deepseek_v3":
        model |= {
            "num_nextn_predict_layers": int(bool(inputs.mtp_layers)),
            "first_k_dense_replace": 0,
            **some(random, SETTINGS["core_experts"], 0.12),
        }
    swap = inputs.core_swap
    if swap.swap is not False:
        model |= {"swap": swap.swap}
    model |= {
        key: value for key, value in (("layer_swap", swap.layer_swap), ("op_swap", swap.op_swap)) if value is not None
    }
    return model


def _add_pipeline(random: Random, config: dict[str, Any], inputs: RecomputeInputs) -> None:
    if inputs.interleave or random.random() < 0.1:
        config["parallel"]["pipeline_config"] = {
            "pipeline_interleave": inputs.interleave,
            "pipeline_scheduler": inputs.scheduler,
        }
    strategy = config["parallel"].get("dataset_strategy")
    if isinstance(strategy, list) and random.random() < 0.6:
        strategy[0][0] = config["parallel_config"].get("data_parallel", 1)


def _add_swap(config: dict[str, Any], inputs: RecomputeInputs) -> None:
    swap = inputs.swap
    values = {"swap": swap.swap, "layer_swap": swap.layer_swap, "op_swap": swap.op_swap}
    if swap.default_prefetch != 1:
        values["default_prefetch"] = swap.default_prefetch
    found = {key: value for key, value in values.items() if value not in (None, False)}
    if found:
        config["swap_config"] = found


def _spoil(random: Random, config: dict[str, Any]) -> None:
    """Insert one wrong or unusual setting."""
    chance = random.random()
    section = random.choice([name for name in _SECTIONS if name in config])
    values = config[section]
    if chance < 0.05 and section != "train_dataset":
        config[section] = copy.deepcopy(random.choice(({}, None, [], True, "x", 3, {"a": 1})))
    elif chance < 0.08:
        config.pop(section)
    elif chance < 0.13:
        config[random.choice(("run_mode", "train_precision_sync"))] = copy.deepcopy(random.choice(_ODD))
    elif chance < 0.16:
        config[random.choice(("profiler_level", "auto_tune", "x", "recompute"))] = 1
    elif not isinstance(values, dict) or not values:
        config["callbacks"] = copy.deepcopy(random.choice(([{}], [{"name": "x"}], {}, None, [None], "x", [])))
    elif chance < 0.24:
        values["unknown_key"] = 1
    elif chance < 0.30 and section not in ("model", "train_dataset"):
        values.pop(random.choice(list(values)))
    elif section == "model" and isinstance(values.get("model_config"), dict) and chance < 0.9:
        values["model_config"]["offset"] = copy.deepcopy(random.choice(_ODD))
    else:
        _spoil_value(random, section, values)


def _spoil_value(random: Random, section: str, values: dict[str, Any]) -> None:
    """Insert a value that its section's code examines; the effect of a batch size of ``[1]``, for instance, is not predicted."""
    known = {
        "parallel_config": SETTINGS["parallel_config"],
        "parallel": SETTINGS["parallel"],
        "moe_config": SETTINGS["legacy_experts"],
    }
    # A degree that is only compared with 1 raises for some wrong types and not for others.
    keys = [key for key in (*values, *known.get(section, {})) if key != "ulysses_degree_in_cp"]
    if section == "runner_config":
        keys = ["gradient_accumulation_steps"]
    elif section == "context":
        keys = ["mode", "max_device_memory", "memory_optimize_level", "jit_config"]
    key = random.choice(keys)
    # Configs for a program's own data set have an empty loader; some memory sizes are not checked.
    odd = [
        value for value in _ODD if (section != "context" or value) and (section != "train_dataset" or value is not None)
    ]
    values[key] = copy.deepcopy(random.choice(odd))
