"""Keys of MindSpeed-Core-MS configs that choose operators and number formats, in the neutral model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ms_tune.dialects.job_parts import DType, TrainingConfig
from ms_tune.dialects.mindspeed_ms.training_config import read_mindspeed_ms
from tests.dryrun.configs import MINDSPEED, edited


def read(model: dict[str, Any], training: dict[str, Any] | None = None) -> TrainingConfig:
    data = edited(MINDSPEED, "model_config", {**MINDSPEED["model_config"], **model})
    data = edited(data, "training_config", {**MINDSPEED["training_config"], **(training or {})})
    return read_mindspeed_ms(data, Path("config.yaml"))


@pytest.mark.parametrize(
    ("model", "field", "value"),
    [
        ({"apply_rope_fusion": True}, "fused_rotary", True),
        ({}, "fused_rotary", False),
        ({"normalization": "FusedRMSNorm"}, "fused_norm", True),
        ({"normalization": "RMSNorm"}, "fused_norm", False),
        ({}, "heads_first", True),
        ({"fa_config": {"input_layout": "BNSD"}}, "heads_first", True),
        ({"fa_config": {"input_layout": "SBH"}}, "heads_first", False),
        ({}, "adds_mask", True),
        ({"mask_func_type": "attn_mask_fill"}, "adds_mask", False),
        ({}, "legacy", True),
    ],
)
def test_operators(model: dict[str, Any], field: str, value: object) -> None:
    assert getattr(read(model).shape, field) == value


@pytest.mark.parametrize("normalization", ["FusedRMSNorm", "RMSNorm", "LayerNorm"])
def test_normalisations_have_the_number_format_of_the_weights(normalization: str) -> None:
    assert read({"normalization": normalization}).precision.norm is None


def test_mixed_precision_decides_the_number_format_of_the_computation() -> None:
    computing = {"params_dtype": "float32", "compute_dtype": "float16"}
    assert read(computing).precision.compute is DType.BFLOAT16
    whole = read(computing, {"bf16": False}).precision
    assert (whole.parameters, whole.compute) == (DType.FLOAT32, DType.FLOAT16)


def test_the_softmax_is_float32_unless_both_keys_say_otherwise() -> None:
    assert read({"softmax_compute_dtype": "bfloat16"}).precision.softmax is None
    chosen = {"softmax_compute_dtype": "bfloat16", "attention_softmax_in_fp32": False}
    assert read(chosen).precision.softmax is DType.BFLOAT16
