"""Compare the memory of small models of several kinds in the real MindFormers with tensors counted by hand.

Every tensor is float32. The configs are those of MindFormers' wheel, made small with ``--set``, and ms-tune's own template
for the older Llama, which the wheel no longer contains.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

from ms_tune.facts.query import data_folder
from tests.dryrun.conftest import RealRun, run_dryrun
from tests.dryrun.machine import needs_mindformers
from tests.dryrun.test_end_to_end import MIB, largest_use, logged_footprint, logged_peak, rows, swept_peak

pytestmark = [pytest.mark.mindspore, needs_mindformers, pytest.mark.drawn(3)]  # of three models and a refused one

WORDS, HIDDEN, WIDE, HEADS, GROUPS, SIZE = 1024, 256, 512, 8, 4, 32
EXPERTS, EXPERT_WIDE, EXPERT_WAYS, TENSOR = 8, 128, 2, 2
UNEVEN = 6  # experts
QUERY_RANK, KEY_VALUE_RANK, ROTARY, PLAIN = 96, 64, 16, 32


@dataclass(frozen=True)
class Model:
    """A small model.

    Attributes:
        config: Its config in MindFormers' wheel; in ms-tune's own templates where the wheel has none.
        settings: Settings that make it small, below ``model.model_config`` if the name has no dot.
        weights: The number of elements of every weight tensor on one rank.
        untrained: The number of elements without optimizer state; None where ms-tune has no theory.
    """

    config: str
    settings: dict[str, object]
    weights: Sequence[int]
    untrained: int | None = None


_JOB: dict[str, object] = {
    "seq_length": 512,
    "vocab_size": WORDS,
    "hidden_size": HIDDEN,
    "intermediate_size": WIDE,
    "offset": 0,
    "parallel_config.model_parallel": TENSOR,
    "parallel_config.pipeline_stage": 1,
    "parallel_config.micro_batch_num": 1,
    "parallel.enable_parallel_optimizer": False,
}
_MOE: dict[str, object] = {
    **_JOB,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": EXPERT_WIDE,
    "parallel_config.expert_parallel": EXPERT_WAYS,
}
_NORMS = [HIDDEN, HIDDEN]
_SPLIT_WORDS = [WORDS // TENSOR * HIDDEN] * 2  # the embedding and the head
_QKV = [HIDDEN * SIZE * (HEADS + 2 * GROUPS) // TENSOR]
_PROJECTION = [HEADS * SIZE * HIDDEN // TENSOR]


def _routed(experts: int) -> list[int]:
    local = experts // EXPERT_WAYS
    return [experts * HIDDEN, local * HIDDEN * 2 * EXPERT_WIDE, local * EXPERT_WIDE * HIDDEN]  # the router, the experts


# Latent attention: down projections are whole on every rank, up projections are split.
_LATENT = [
    *(QUERY_RANK * HIDDEN, (KEY_VALUE_RANK + ROTARY) * HIDDEN, QUERY_RANK, KEY_VALUE_RANK),
    *(HEADS * (PLAIN + ROTARY) * QUERY_RANK // TENSOR, HEADS * 2 * PLAIN * KEY_VALUE_RANK // TENSOR),
    HEADS * PLAIN * HIDDEN // TENSOR,
]
MODELS = {
    "legacy Llama": Model(
        "yaml_templates/mindformers/mixtral_8x7b_swap.yaml",
        {
            **_JOB,
            "num_layers": 2,
            "num_heads": HEADS,
            "n_kv_heads": GROUPS,
            "moe_config.expert_num": 1,
            "moe_config.num_experts_chosen": 1,
            "parallel_config.data_parallel": 1,
            "parallel_config.expert_parallel": 1,
            "parallel_config.vocab_emb_dp": True,
            "swap_config.swap": False,
        },
        # vocab_emb_dp: every rank has the whole embedding, and the whole head
        [
            *[WORDS * HIDDEN] * 2,
            HIDDEN,
            *[
                *_NORMS,
                *[HEADS * SIZE * HIDDEN // TENSOR] * 2,
                *[GROUPS * SIZE * HIDDEN // TENSOR] * 2,
                *[HIDDEN * WIDE // TENSOR] * 3,
            ]
            * 2,
        ],
    ),
    "DeepSeek-V3": Model(
        "configs/deepseek3/pretrain_deepseek3_671b.yaml",
        {
            **_MOE,
            "pp_interleave_num": 1,
            "q_lora_rank": QUERY_RANK,
            "kv_lora_rank": KEY_VALUE_RANK,
            "qk_nope_head_dim": PLAIN,
            "qk_rope_head_dim": ROTARY,
            "v_head_dim": PLAIN,
            "n_routed_experts": EXPERTS,
            "n_shared_experts": 1,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "num_nextn_predict_layers": 0,
            "use_attn_mask_compression": False,  # which wants sequences of 2048 and more
            "parallel_config.data_parallel": 1,
            "parallel.pipeline_config.pipeline_interleave": False,
            "parallel.pipeline_config.pipeline_scheduler": "1f1b",
            "optimizer.swap": False,
        },
        [
            *_SPLIT_WORDS,
            HIDDEN,
            *[*_NORMS, *_LATENT] * 2,
            *(2 * WIDE * HIDDEN // TENSOR, WIDE * HIDDEN // TENSOR),  # the first layer is dense
            *_routed(EXPERTS),
            *(2 * EXPERT_WIDE * HIDDEN, EXPERT_WIDE * HIDDEN),  # the shared expert is whole on every rank
        ],
        untrained=2 * EXPERTS,  # a bias of each routed expert, and its token count
    ),
    # MindFormers' own simulation refuses experts whose number does not divide the length of a sequence.
    "Qwen3-MoE": Model(
        "configs/qwen3_moe/pretrain_qwen3_30b_a3b_4k.yaml",
        {**_MOE, "num_key_value_heads": GROUPS, "head_dim": SIZE, "num_experts": UNEVEN},
        [*_SPLIT_WORDS, HIDDEN, *[*_NORMS, *_QKV, *_PROJECTION, SIZE, SIZE, *_routed(UNEVEN)] * 2],
        untrained=0,
    ),
}


def block(elements: int) -> int:
    """Return the bytes of a float32 tensor's block: 32 more, in units of 512 (2.9, ``ascend_memory_manager.cc``)."""
    return -(-(4 * elements + 32) // 512) * 512


def config_of(model: Model) -> Path:
    if model.config.startswith("yaml_templates/"):
        return data_folder("yaml_templates") / model.config.partition("/")[2]
    return config_in_wheel(model.config)


def config_in_wheel(name: str) -> Path:
    """Return a config of the installed MindFormers, by the end of its path."""
    files = metadata.files("mindformers") or []
    found = next((Path(str(file.locate())) for file in files if file.as_posix().endswith(name)), None)
    if found is None or not found.is_file():
        pytest.skip(f"the installed MindFormers does not bring {name}")
    return found


@pytest.fixture(scope="module", params=MODELS)
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, stray_cache: Path
) -> tuple[Model, RealRun]:
    """Run a small model with JSON output."""
    model = MODELS[request.param]
    settings = []
    for name, value in model.settings.items():
        settings += ["--set", f"{name if '.' in name else f'model.model_config.{name}'}={value}"]
    made = run_dryrun(tmp_path_factory.mktemp("small"), stray_cache, "--json", *settings, str(config_of(model)))
    assert made.code == 0, made.err
    return model, made


def test_the_peak_is_that_of_log_and_trace(run: tuple[Model, RealRun]) -> None:
    _, made = run
    peak = made.json["peak_bytes"]
    assert peak == largest_use(made) == swept_peak(made) == sum(made.json["categories_at_peak"].values())
    assert (peak // MIB, made.json["footprint_bytes"] // MIB) == (logged_peak(made), logged_footprint(made))
    assert made.json["warnings"] == []


def test_weights_and_optimizer_state_are_those_of_the_tensors(run: tuple[Model, RealRun]) -> None:
    model, made = run
    weights = sum(map(block, model.weights))
    categories = made.json["categories_at_peak"]
    assert categories["optimizer_state"] == pytest.approx(2 * weights, rel=0.001)  # Adam's two moments
    assert categories["weights"] == pytest.approx(weights, rel=0.001)
    # Of the blocks alone, without any code of ms-tune.
    persistent = {row["node_name"]: int(row["size"]) for row in rows(made) if row["type"] == "Weight"}
    for moment in ("adam_m.", "adam_v."):
        held = sorted(size for name, size in persistent.items() if name.startswith(moment))
        assert held == sorted(map(block, model.weights))


def test_theory_is_what_was_counted_by_hand(run: tuple[Model, RealRun]) -> None:
    model, made = run
    if model.untrained is None:
        assert made.json["theory"] is None
        return
    theory = {name: pair["bytes"] for name, pair in made.json["theory"].items()}
    trained = sum(model.weights)
    assert theory == {"weights": 4 * (trained + model.untrained), "optimizer_state": 8 * trained}


def test_what_is_run_otherwise_is_listed(run: tuple[Model, RealRun]) -> None:
    model, made = run
    assert len(made.json["settings"]) == len(model.settings)
    changed = {change["key"]: change["after"] for change in made.json["changes"]}
    assert changed["callbacks"] == []
    assert "input_columns" in changed["train_dataset"]
    assert "dataset_dir" not in changed["train_dataset"]["data_loader"]
    assert json.loads((made.folder / "changes.json").read_text("utf-8"))["changes"] == made.json["changes"]


def test_a_model_that_mindformers_does_not_train_is_reported_with_its_own_sentence(
    tmp_path: Path, stray_cache: Path
) -> None:
    """MindFormers 1.9 builds Qwen2 for inference unless the config requests training."""
    qwen2 = ("model_type=qwen2", "architectures=Qwen2ForCausalLM", "hidden_act=silu", "hidden_size=256")
    settings = [part for setting in qwen2 for part in ("--set", f"model.model_config.{setting}")]
    config = config_in_wheel("configs/qwen3/pretrain_qwen3_32b_4k.yaml")
    made = run_dryrun(
        tmp_path, stray_cache, "--layers", "1", "--stage", "0", "--no-extrapolate", *settings, str(config)
    )
    assert made.code == 2
    assert "Train mode is not supported for Qwen2 model." in made.err
    assert "MindFormers raised this error while building the model" in made.err
