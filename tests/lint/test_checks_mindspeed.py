from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language

CHECKS = built_in(Dialect.MINDSPEED_MS)


def lint_ids(text: str) -> list[str]:
    findings = lint(parse_source(text, Path("a.yaml")), Dialect.MINDSPEED_MS, CHECKS)
    assert all(finding.id != "MST001" for finding in findings), [f.message.say(Language.EN) for f in findings]
    return [finding.id for finding in findings]


# Each was run through the library itself (r0.1.0).
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("parallel_config: {tensor_model_parallel_size: '2'}", ["MST610"]),
        ("parallel_config: {virtual_pipeline_model_parallel_size: 0}", ["MST611"]),
        ("parallel_config: {virtual_pipeline_model_parallel_size: }", []),
        ("parallel_config: {recv_dtype: fp16}", ["MST612"]),
        ("dataset_config: {batch_size: 1.0}", ["MST610"]),
        ("model_config: {norm_epsilon: 1e-5}", ["MST610", "MST102"]),
        ("training_config: {loss_scale: 1.0}", []),
        ("model_config: {select_recompute: [1]}", ["MST610"]),
        ("parallel_config: {num_layer_list: 4}", ["MST618", "MST610"]),
        ("model_config: {rotary_config: {rotary_base: 1.0}}", ["MST610"]),
    ],
)
def test_values(text: str, expected: list[str]) -> None:
    assert sorted(lint_ids(f"{text}\n")) == sorted(expected)


def config(layers: int, stages: int, chunks: int | None, values: str) -> str:
    chunk = f"\n  virtual_pipeline_model_parallel_size: {chunks}" if chunks else ""
    return (
        f"model_config: {{num_layers: {layers}}}\ndataset_config: {{micro_batch_num: {stages * 2}}}\n"
        f"parallel_config:\n  pipeline_model_parallel_size: {stages}\n  tensor_model_parallel_size: 2\n"
        f"  sequence_parallel: True{chunk}\n  recompute_config: {{{values}}}\n"
    )


@pytest.mark.parametrize(
    ("layers", "stages", "chunks", "values", "expected"),
    [
        (4, 2, None, "recompute: [2, 1], select_recompute: [1, 1]", ["MST622"]),
        (4, 2, None, "recompute: [2, 1], select_comm_recompute: [1, 1]", ["MST622"]),
        (4, 2, None, "recompute: [1, 1, 1]", ["MST620"]),
        (8, 2, 2, "recompute: [1, 1]", ["MST620"]),
        (8, 2, 2, "recompute: [[2, 1], [0, 1]], select_recompute: [[0, 1], [2, 1]]", []),
        (12, 3, 2, "recompute: [[1, 1], [1, 1], [1, 1]]", ["MST620"]),
        (4, 2, None, "recompute: [-1, 1]", ["MST621"]),
        (4, 1, None, "recompute: [2]", []),
        (4, 2, None, "recompute: False", []),
        (8, 2, 2, "recompute: [[1, 1], [1]]", ["MST620"]),
    ],
)
def test_recompute_lists(layers: int, stages: int, chunks: int | None, values: str, expected: list[str]) -> None:
    assert lint_ids(config(layers, stages, chunks, values)) == expected


@pytest.mark.parametrize(
    ("value", "layers", "stages", "chunks", "expected"),
    [
        ("[2, 2]", 8, 2, None, ["MST617"]),
        ("[4, 0]", 4, 2, None, ["MST617"]),
        ("'[[1, 1], [1, 1]]'", 4, 2, 2, []),
        ("'(2, 1)'", 4, 2, None, ["MST617"]),
        ("'__import__(\"os\")'", 4, 2, None, ["MST669"]),  # only parsed as a literal, which it is not
        ("[1, 1, 1, 1]", 4, 4, 4, ["MST617", "MST616"]),
    ],
)
def test_layer_lists(value: str, layers: int, stages: int, chunks: int | None, expected: list[str]) -> None:
    text = config(layers, stages, chunks, "").replace("  recompute_config: {}\n", f"  num_layer_list: {value}\n")
    assert sorted(lint_ids(text)) == sorted(expected)


def test_unknown_keys() -> None:
    assert lint_ids("model_config: {num_layer: 4}\n") == ["MST608"]
    assert lint_ids("model_config: {my_own_key: 4}\n") == ["MST609"]
    assert lint_ids("my_section: {a: 1}\nx-anchor: &a 1\n") == []
    assert lint_ids("trainin_config: {a: 1}\n") == ["MST608"]
