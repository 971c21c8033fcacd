from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.config.source import parse_source
from ms_tune.frameworks.dialect import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint

CHECKS = tuple(check for check in built_in(Dialect.MINDFORMERS) if check.id in {f"MST56{n}" for n in range(1, 6)})
MODEL = "use_legacy: False\nmodel: {{model_config: {{model_type: qwen3, architectures: [Qwen3ForCausalLM], {}}}}}"


def found(text: str, version: str = "1.9") -> list[tuple[str, object]]:
    source = parse_source(text, Path("a.yaml"))
    return [(one.id, one.path[-1]) for one in lint(source, Dialect.MINDFORMERS, CHECKS, version)]


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ("optimizer: {type: AdamW, swap: True}", "1.6", [("MST561", "swap")]),  # 2.1's takes it
        ("optimizer: {type: AdamW, swap: True}", "2.1", []),
        ("optimizer: {type: AdamWeightDecay, wieght_decay: 0.1}", "1.9", []),  # MindSpore's own
        ("optimizer: {type: AdamW, auto_register: mine.AdamW, other: 1}", "1.9", []),
        ("callbacks: [{type: MyCallback, interval: 2}]", "1.9", []),
        ("callbacks: [{type: MFLossMonitor}, {type: CheckpointMonitor, prefx: a}]", "1.9", [("MST561", "prefx")]),
        ("callbacks: {type: CheckpointMonitor, prefx: a}", "1.9", []),  # another check's
        ("lr_schedule: {type: CosineWithWarmUpLR, lr_ends: 0.}", "1.9", [("MST562", "lr_ends")]),
        ("lr_schedule: {type: CosineWithWarmUpLR, warmup_epoch: 1}", "1.9", [("MST562", "warmup_epoch")]),
        ("lr_schedule: {type: CosineWithWarmUpLR, warmup_epochs: 1, of_my_own: 2}", "1.9", []),
        ("run_mode: predict\noptimizer: {type: AdamW, beta1: 0.9}", "1.9", []),
        ("train_dataset: {data_loader: {config: {seq_legnth: 4096}}}", "1.9", [("MST565", "seq_legnth")]),
        ("train_dataset: {data_loader: {handler: [{tyype: take}]}}", "2.1", [("MST565", "tyype")]),
        ("train_dataset: {prefetch_size: 1, prefetc_size: 2}", "1.9", []),  # what is meant is there
        ("train_dataset: [1, 2]", "1.9", []),
    ],
)
def test_arguments_of_classes(text: str, version: str, expected: list[tuple[str, object]]) -> None:
    assert found(text, version) == expected


@pytest.mark.parametrize(
    ("value", "wrong"),
    [("'False'", True), ("Flase", True), ("2", True), ("0.5", True), ("True", False), ("1", False), ("0", False), ("''", False), ("", False)],
)  # fmt: skip
def test_a_switch_is_true_or_false(value: str, wrong: bool) -> None:  # noqa: FBT001 - a column of the table
    assert found(f"only_save_strategy: {value}") == ([("MST563", "only_save_strategy")] if wrong else [])
    assert found(MODEL.format(f"qk_layernorm: {value}")) == ([("MST563", "qk_layernorm")] if wrong else [])


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("num_hidden_layers: '4'", True),
        ("num_hidden_layers: 8k", True),
        ("rms_norm_eps: 1e-5", False),  # MST102's
        ("num_hidden_layers: 4", False),
        ("hidden_act: silu", False),
        ("of_my_own: many", False),
    ],
)
def test_numbers_of_the_model_are_no_texts(field: str, wrong: bool) -> None:  # noqa: FBT001 - a column of the table
    assert found(MODEL.format(field)) == ([("MST564", field.partition(":")[0])] if wrong else [])
    assert found(f"model: {{model_config: {{type: Unknown, {field}}}}}") == []
