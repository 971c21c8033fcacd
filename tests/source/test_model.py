"""What follows from the sizes of a config."""

from __future__ import annotations

import pytest

from ms_tune.dialects.job_parts import DType, LatentAttention, Optimizer, Parallelism, Sharding
from tests.estimate.test_persistent import LLAMA_7B


def test_bytes_of_an_element() -> None:
    assert {kind.value: kind.bytes for kind in DType} == {"float16": 2, "bfloat16": 2, "float32": 4}


def test_a_head_of_latent_attention_is_its_plain_part_and_the_one_that_turns() -> None:
    assert LatentAttention(1536, 512, 128, 64, 128).head_size == 192


@pytest.mark.parametrize(("activation", "gated"), [("swiglu", True), ("fusedswiglu", True), ("gelu", False)])
def test_gated_blocks(activation: str, *, gated: bool) -> None:
    assert LLAMA_7B._replace(activation=activation).gated is gated


def test_devices_of_one_copy() -> None:
    assert Parallelism(2, 3, 5, 4, None, sequence=True).model_size == 30


@pytest.mark.parametrize(
    ("sharding", "distributed"), [(Sharding.NONE, False), (Sharding.OPTIMIZER, True), (Sharding.PARAMETERS, True)]
)
def test_sharded_state(sharding: Sharding, *, distributed: bool) -> None:
    assert Optimizer("AdamW", gradient_buffers=True, sharding=sharding).distributed is distributed
