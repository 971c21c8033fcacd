"""Parameters of static-graph models: the counts that their authors publish, and those of MindFormers' own classes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ms_tune.dialects.job_parts import DType
from ms_tune.dialects.stage import Stage, StageLayer, stage_of
from ms_tune.enums import Dialect
from ms_tune.estimate.flops import widths_of
from ms_tune.estimate.persistent import StaticSharing, WeightBytes, shard_weights
from ms_tune.estimate.static import StaticMemory, StaticModel, count_parameters, estimate_static_memory
from ms_tune.facts.models import ModelConfig, model_of
from tests.dryrun.machine import needs_mindformers


@dataclass(frozen=True)
class Config:
    data: dict[Any, Any]


def legacy_model(**section: object) -> ModelConfig:
    values = {"type": "LlamaConfig", "seq_length": 16, **section}
    experts = values.pop("experts", {})
    return model_of(Config({"model": {"model_config": values}, "moe_config": experts}), Dialect.MINDFORMERS, "1.9")


def whole_stage(layers: int, *, full: bool = False) -> Stage:
    return stage_of([(0, 0, StageLayer(number, full=full)) for number in range(layers)], 0, 1, 1)


def llama(hidden: int, layers: int, heads: int, words: int, **others: object) -> ModelConfig:
    return legacy_model(hidden_size=hidden, num_layers=layers, num_heads=heads, vocab_size=words, **others)


# Elements in the checkpoints that their authors publish (``model.safetensors.index.json`` on Hugging Face).
@pytest.mark.parametrize(
    ("model", "published"),
    [
        pytest.param(llama(4096, 32, 32, 32000), 6_738_415_616, id="Llama-2-7B"),
        pytest.param(llama(5120, 40, 40, 32000), 13_015_864_320, id="Llama-2-13B"),
        pytest.param(
            llama(8192, 80, 64, 32000, n_kv_heads=8, multiple_of=4096, ffn_dim_multiplier=1.3),
            68_976_648_192,
            id="Llama-2-70B",
        ),
        pytest.param(
            llama(4096, 32, 32, 128256, n_kv_heads=8, intermediate_size=14336), 8_030_261_248, id="Llama-3-8B"
        ),
        pytest.param(llama(4096, 32, 32, 125696, intermediate_size=11008), 7_505_973_248, id="Baichuan2-7B"),
        pytest.param(
            llama(3584, 28, 28, 152064, n_kv_heads=4, intermediate_size=18944, qkv_has_bias=True),
            7_615_616_512,
            id="Qwen2.5-7B",
        ),
        pytest.param(llama(4096, 32, 32, 64000, n_kv_heads=4, intermediate_size=11008), 6_061_035_520, id="Yi-6B"),
        pytest.param(
            llama(
                4096, 32, 32, 92544, n_kv_heads=8, intermediate_size=14336, type="InternLM2Config", rms_norm_eps=1e-5
            ),
            7_737_708_544,
            id="InternLM2-7B",
        ),
        pytest.param(
            llama(
                4096,
                32,
                32,
                32000,
                n_kv_heads=8,
                intermediate_size=14336,
                experts={"expert_num": 8, "num_experts_chosen": 2},
            ),
            46_702_792_704,
            id="Mixtral-8x7B",
        ),
        pytest.param(
            legacy_model(
                type="ChatGLM2Config",
                num_layers=40,
                hidden_size=4096,
                num_attention_heads=32,
                padded_vocab_size=151552,
                ffn_hidden_size=13696,
                multi_query_group_num=2,
            ),
            9_399_951_360,
            id="GLM-4-9B",
        ),
        pytest.param(
            legacy_model(type="ChatGLM2Config", num_layers=28, hidden_size=4096, padded_vocab_size=65024),
            6_243_584_000,
            id="ChatGLM3-6B",
        ),
    ],
)
def test_parameters_are_as_many_as_published(model: ModelConfig, published: int) -> None:
    assert count_parameters(model) == published


def test_no_size_of_an_untrusted_config_takes_long() -> None:
    assert count_parameters(llama(4096, 10**9, 32, 32000)) is None


def test_a_class_that_is_no_decoder_has_no_widths() -> None:
    assert widths_of(legacy_model(type="BertConfig", hidden_size=64, num_layers=2, num_heads=4, vocab_size=100)) is None


class TestAdapter:
    def test_frozen_weights_have_no_gradients_and_no_optimizer_state(self) -> None:
        pet = {"pet_type": "lora", "lora_rank": 16, "target_modules": ".*wq|.*wv"}
        model = llama(4096, 32, 32, 32000, param_init_type="float16", pet_config=pet)
        memory = self.memory(model)
        # Queries, keys and values are one matrix of 12,288 rows: rank 16 of 32 layers, and of the output projection.
        trained = 32 * 16 * (4096 + 3 * 4096 + 4096 + 4096)
        norms = 65 * 4096  # float32
        assert memory.weights == 2 * (6_738_415_616 + norms) + 4 * trained
        assert memory.gradients == 4 * trained
        assert memory.optimizer == 8 * trained

    @staticmethod
    def memory(model: ModelConfig) -> StaticMemory:
        widths = widths_of(model)
        assert widths is not None
        job = StaticModel(model, widths, 1, 1, whole_vocabulary=True)
        return estimate_static_memory(job, StaticSharing(), whole_stage(32), shards_sums=False)


def test_whole_weights_are_gathered_from_the_ranks_that_shard_them() -> None:
    """Those of recomputed layers: a trace of MindSpore 2.9 has 25.1 GiB of temporaries, with the head's 0.5."""
    model = llama(4096, 32, 32, 32000, param_init_type="float32", parallel_optimizer=False)
    widths = widths_of(model)
    assert widths is not None
    job, sharing = StaticModel(model, widths, 1, 1, whole_vocabulary=True), StaticSharing(8, shares=True)
    found = [
        estimate_static_memory(job, sharing, whole_stage(32, full=full), shards_sums=False) for full in (False, True)
    ]
    embedding, norms = 32000 * 4096, 4096
    assert [one.gathered for one in found] == [0, (6_738_415_616 - 2 * embedding - norms) * DType.FLOAT32.bytes]
    # Llama's embedding stays whole.
    assert {one.weights for one in found} == {4 * (embedding + (6_738_415_616 - embedding) // 8)}


_PROGRAM = """
import json, math, sys
import mindspore
from mindformers.models.glm2 import ChatGLM2Config, ChatGLM2ForConditionalGeneration
from mindformers.models.llama import LlamaConfig, LlamaForCausalLM
mindspore.set_context(mode=mindspore.GRAPH_MODE, device_target="CPU")
counts = []
for case in json.loads(sys.argv[1]):
    glm = case.pop("type") == "ChatGLM2Config"
    network = ChatGLM2ForConditionalGeneration(ChatGLM2Config(**case)) if glm else LlamaForCausalLM(LlamaConfig(**case))
    counts.append(sum(math.prod(one.shape) for one in network.get_parameters() if one.requires_grad))
print("COUNTS", counts)
"""


def draw_case(draw: random.Random) -> dict[str, object]:
    heads = draw.choice([2, 4, 8])
    if draw.random() < 1 / 2:
        case: dict[str, object] = {
            "type": "LlamaConfig",
            "num_heads": heads,
            "hidden_size": heads * draw.choice([8, 16]),
        }
        case["vocab_size"] = draw.choice([100, 256])
        others = {
            "n_kv_heads": (1, 2),
            "multiple_of": (16, 64),
            "ffn_dim_multiplier": (1.3, 1, 0.7),
            "intermediate_size": (40, 72, None),
            **dict.fromkeys(("qkv_has_bias", "attn_proj_has_bias", "tie_word_embeddings", "qkv_concat"), (True, False)),
        }
    else:
        case = {"type": "ChatGLM2Config", "num_attention_heads": heads, "kv_channels": 16, "hidden_size": heads * 16}
        case |= {"padded_vocab_size": 128, "ffn_hidden_size": draw.choice([64, 96])}
        sandwich = draw.choice([True, False])
        case |= {"post_self_attn_layernorm": sandwich, "post_mlp_layernorm": sandwich}
        flags = ("add_qkv_bias", "add_bias_linear", "mlp_concat", "qkv_concat", "rmsnorm")
        others = {"multi_query_group_num": (1, 2), **dict.fromkeys(flags, (True, False))}
    drawn = {key: draw.choice(values) for key, values in others.items() if draw.random() < 1 / 2}
    return {**case, **drawn, "num_layers": draw.choice([1, 2, 3]), "seq_length": 16}


@pytest.mark.mindspore
@needs_mindformers
def test_parameters_are_those_of_the_real_classes(tmp_path: Path) -> None:
    draw = random.Random(2311)  # noqa: S311 - cases to compare
    cases = [draw_case(draw) for _ in range(24)]
    child = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(cases)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    real = json.loads(next(line for line in child.stdout.splitlines() if line.startswith("COUNTS"))[len("COUNTS") :])
    assert [count_parameters(legacy_model(**case)) for case in cases] == real


def test_a_weight_on_more_ranks_than_a_stage_has_stays_whole() -> None:
    """Experts over 256 ranks in a stage of 32, as in MindFormers' own DeepSeek-V3 configs."""
    weight = WeightBytes(8, 4, DType.FLOAT32, experts=True, ways=256)
    assert shard_weights([weight], StaticSharing(32, shares=True)) == {
        "weights": 8 * 4 * 4,
        "optimizer_state": 8 * 4 * 8,
    }
