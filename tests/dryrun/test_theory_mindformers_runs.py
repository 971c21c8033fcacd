"""Compare the theory of MindFormers jobs with the memory of the real MindFormers, on every stage.

The configs are those of MindFormers' wheel with smaller models, wide enough that the allocator's padding is below 0.1 %.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dryrun.conftest import run_dryrun
from tests.dryrun.machine import needs_mindformers
from tests.dryrun.test_mindformers_models import config_in_wheel

pytestmark = [pytest.mark.mindspore, needs_mindformers]

_QWEN3 = "configs/qwen3/pretrain_qwen3_32b_4k.yaml"
_QWEN3_MOE = "configs/qwen3_moe/pretrain_qwen3_30b_a3b_4k.yaml"
_DEEPSEEK = "configs/deepseek3/pretrain_deepseek3_671b.yaml"
_SIZES = {
    "seq_length": 512,
    "vocab_size": 8192,
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "offset": 0,
}
_GROUPED = {"num_key_value_heads": 4, "head_dim": 128}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 512}
_LATENT = {
    **_EXPERTS,
    "pp_interleave_num": 1,
    "q_lora_rank": 384,
    "kv_lora_rank": 256,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "use_attn_mask_compression": False,  # which wants sequences of 2048 and more
}
_PLAIN_PIPELINE = {
    "parallel.pipeline_config": {"pipeline_interleave": False, "pipeline_scheduler": "1f1b"},
    "optimizer.swap": False,
}


@dataclass(frozen=True)
class Case:
    """A job.

    Attributes:
        config: Its config in MindFormers' wheel.
        model: Changes of its ``model.model_config``.
        split: Data-, tensor-, pipeline- and expert-parallel ranks.
        layers: Layers of the whole model, just enough for every kind on every stage: the whole graph is compiled.
        shares: ``parallel_optimizer_config`` of ranks that shard weights; None if they do not.
        more: Further settings.
    """

    config: str
    model: dict[str, Any]
    split: tuple[int, int, int, int]
    layers: int
    shares: dict[str, int] | None = None
    more: dict[str, Any] | None = None


CASES = {
    "Qwen3, shared out": Case(_QWEN3, _GROUPED, (2, 2, 2, 1), 4, {}),
    "Qwen3, tied, bfloat16, biases": Case(
        _QWEN3,
        {**_GROUPED, "tie_word_embeddings": True, "params_dtype": "bfloat16", "attention_bias": True},
        (1, 2, 2, 1),
        2,
    ),
    "Qwen3-MoE, shared out": Case(
        _QWEN3_MOE,
        {**_GROUPED, **_EXPERTS, "num_experts": 8},
        (2, 2, 2, 2),
        2,
        {"parallel_optimizer_threshold": 8},
    ),
    "DeepSeek-V3, one token more, shared out": Case(
        _DEEPSEEK,
        {**_LATENT, "num_nextn_predict_layers": 1},
        (2, 2, 2, 2),
        2,
        {"optimizer_weight_shard_size": 4},
        _PLAIN_PIPELINE,
    ),
    "DeepSeek-V3, narrow projections in one": Case(
        _DEEPSEEK,
        {**_LATENT, "num_nextn_predict_layers": 0, "mla_qkv_concat": True, "n_shared_experts": 2},
        (2, 2, 1, 4),
        2,
        None,
        _PLAIN_PIPELINE,
    ),
}


def _written(case: Case, folder: Path) -> Path:
    """Write the config with the case's settings."""
    data = yaml.safe_load(config_in_wheel(case.config).read_text(encoding="utf-8"))
    named = ("data_parallel", "model_parallel", "pipeline_stage", "expert_parallel")
    settings: dict[str, Any] = {
        **{f"model.model_config.{key}": value for key, value in {**_SIZES, **case.model}.items()},
        **{f"parallel_config.{key}": ways for key, ways in zip(named, case.split, strict=True)},
        "model.model_config.num_hidden_layers": case.layers,
        "parallel_config.micro_batch_num": 2,
        "parallel.dataset_strategy": [[case.split[0], 1]] * 4,
        "parallel.enable_parallel_optimizer": case.shares is not None,
        "parallel.parallel_optimizer_config": case.shares or {},
        **(case.more or {}),
    }
    for path, value in settings.items():
        *parents, last = path.split(".")
        node = data
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = copy.deepcopy(value)
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "name",  # each takes half a minute; the others are of the same kind
    [pytest.param(name, marks=[pytest.mark.more] if name != "Qwen3, tied, bfloat16, biases" else []) for name in CASES],
)
def test_every_stage_holds_what_theory_says(name: str, tmp_path: Path, stray_cache: Path) -> None:
    case = CASES[name]
    made = run_dryrun(tmp_path, stray_cache, "--layers", "all", "--json", str(_written(case, tmp_path)))
    assert made.code == 0, made.err
    assert made.json["warnings"] == []
    assert len(made.json["stages"]) == case.split[2]
    for stage in made.json["stages"]:
        assert set(stage["theory"]) == {"weights", "optimizer_state"}
        for content, pair in stage["theory"].items():
            assert pair["measured_bytes"] == stage["categories_at_peak"][content]
            assert pair["measured_bytes"] == pytest.approx(pair["bytes"], rel=0.001)
