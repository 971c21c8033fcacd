"""Test the refusals of the legacy Llama network; ``tests/oracle`` compares random configs with the network itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.diagnostics import Severity
from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language

CHECKS = [check for check in built_in(Dialect.MINDFORMERS) if check.id.startswith(("MST345", "MST346", "MST347"))]
BASE = """
run_mode: train
use_parallel: True
parallel_config: {PARALLEL}
moe_config: {EXPERTS}
model:
  model_config: {type: LlamaConfig, num_layers: 2, hidden_size: 64, num_heads: 8, seq_length: 64, MODEL}
"""


def lint_legacy(parallel: str = "", model: str = "", experts: str = "", text: str = BASE) -> list[str]:
    config = text.replace("PARALLEL", parallel).replace("MODEL", model).replace("EXPERTS", experts)
    findings = lint(parse_source(config, Path("a.yaml")), Dialect.MINDFORMERS, CHECKS)
    return [f"{one.id} {one.message.say(Language.EN)}" for one in findings]


# Each was run through `LlamaForCausalLM` of the installed MindFormers 1.9.0.
@pytest.mark.parametrize(
    ("parallel", "model", "refused"),
    [
        ("model_parallel: 8", "n_kv_heads: 4", True),
        ("model_parallel: 8", "intermediate_size: 100", True),
        ("model_parallel: 8", "vocab_size: 101", False),
        ("", "use_ring_attention: True", True),
        ("", "use_attn_mask_compression: True", True),
        ("seq_split_num: 2", "use_flash_attention: False", True),
        ("seq_split_num: 2", "use_flash_attention: True, use_ring_attention: True", True),
        (
            "context_parallel: 4, context_parallel_algo: ulysses_cp, model_parallel: 4",
            "use_flash_attention: True",
            True,
        ),
        ("", "compute_dtype: x", True),
        ("", "extend_method: YARN", True),
        ("", "extend_method: DYNAMIC_NTK, scaling_factor: x", False),
    ],
)
def test_settings(parallel: str, model: str, refused: bool) -> None:  # noqa: FBT001 - a column of the table
    assert bool(lint_legacy(parallel, model)) is refused


def test_sizes_count_only_where_the_network_is_split() -> None:
    alone = BASE.replace("use_parallel: True", "use_parallel: False")
    assert lint_legacy("model_parallel: 3", text=alone) == []
    assert lint_legacy("seq_split_num: 2", text=alone) != []  # this one is not reset


def test_other_networks_are_left_alone() -> None:
    other = BASE.replace("type: LlamaConfig", "type: ChatGLM2Config")
    assert lint_legacy("model_parallel: 3", "compute_dtype: x", text=other) == []
    research = BASE.replace("model:\n", "model:\n  arch: {type: ParallelLlamaForCausalLM}\n")
    assert lint_legacy("model_parallel: 3", text=research) == []


def test_stretched_positions() -> None:
    llama3 = (
        "extend_method: LLAMA3, scaling_factor: {factor: FACTOR, low_freq_factor: 1.0, high_freq_factor: 4.0, "
        "original_max_position_embeddings: LENGTH}"
    )
    good = llama3.replace("FACTOR", "8.0").replace("LENGTH", "32")
    assert lint_legacy(model=good) == []
    assert lint_legacy(model=good.replace("8.0", "8")) == ["MST347 LLAMA3 needs a factor with a decimal point: 8.0"]
    assert lint_legacy(model=good.replace("8.0", "0.5")) == ["MST347 the factor must be at least 1, not 0.5"]
    assert lint_legacy(model=good.replace(": 32", ": 64")) != []
    assert lint_legacy(model=good.replace("high_freq_factor: 4.0", "high_freq_factor: 0.5")) != []
    assert lint_legacy(model=good.replace("high_freq_factor: 4.0, ", "")) == [
        "MST347 extend_method: LLAMA3 also needs high_freq_factor"
    ]
    assert lint_legacy(model=good.replace("{factor", "{x: 1, factor")) == [
        "MST347 extend_method: LLAMA3 does not accept 'x'"
    ]


# ``LayerSetting`` refuses these offsets; the class has 32 layers, that of ChatGLM 28.
@pytest.mark.parametrize(
    ("model", "refused"),
    [
        ("type: LlamaConfig, offset: [-1, 2]", ["MST302"]),
        ("type: LlamaConfig, offset: [-1, 1]", []),
        ("type: ChatGLM2Config, offset: 1", ["MST302"]),
        ("type: NobodysConfig, offset: [-1, 2]", []),
    ],
)
def test_layers_that_are_left_out_are_those_of_the_class(model: str, refused: list[str]) -> None:
    text = f"run_mode: train\nuse_parallel: True\nparallel_config: {{pipeline_stage: 2}}\nmodel: {{model_config: {{{model}}}}}\n"
    for more in ("", "base_config: other.yaml\n"):
        found = lint(
            parse_source(text + more, Path("a.yaml")), Dialect.MINDFORMERS, built_in(Dialect.MINDFORMERS), "1.9"
        )
        ids = [one.id for one in found if one.severity is Severity.ERROR]
        assert ids == ([] if more else refused), more
