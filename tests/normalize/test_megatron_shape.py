"""Test the sizes of a program's model: one reading for the estimate and for the operations, with the defaults of ``validate_args``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_tune.dialects.megatron.arguments import command_of
from ms_tune.dialects.megatron.read import ArgumentReader, shape_of
from ms_tune.errors import UnsupportedError
from ms_tune.estimate.flops import widths_of_shape
from ms_tune.source.shell.read import read_launches

if TYPE_CHECKING:
    from ms_tune.dialects.job_parts import ModelShape

BASE = "--num-layers 4 --hidden-size 1000 --num-attention-heads 10 --seq-length 64"


def shape(more: str, release: str = "2.0", base: str = BASE) -> ModelShape:
    (launch,) = read_launches(Path("a.sh"), f"torchrun pretrain_gpt.py {base} {more}\n").launches
    command = command_of(launch, release)
    assert command is not None
    return shape_of(ArgumentReader(command), 4)


@pytest.mark.parametrize(
    ("activation", "gated", "width"),
    [("", False, 4000), ("--swiglu", True, 2624), ("--geglu", True, 4000), ("--gelu-tanh", True, 4000)],
)
def test_every_gate_counts_and_only_swiglu_narrows_the_width(activation: str, *, gated: bool, width: int) -> None:
    found = shape(f"--padded-vocab-size 1000 {activation}")
    assert (found.gated, found.ffn_hidden_size) == (gated, width)
    assert (widths_of_shape(found).gated, widths_of_shape(found).feed_forward) == (gated, width)


def test_words_are_filled_up_for_the_ranks() -> None:
    assert shape("--vocab-size 1000 --tensor-model-parallel-size 2").vocab_size == 1024
    assert shape("--vocab-size 1000 --tensor-model-parallel-size 2 --make-vocab-size-divisible-by 7").vocab_size == 1008
    assert shape("--vocab-size 1000 --padded-vocab-size 1111").vocab_size == 1111


def test_experts_are_as_wide_as_the_layer() -> None:
    experts = shape("--padded-vocab-size 8 --num-experts 8 --n-shared-experts 2 --swiglu").experts
    assert experts is not None
    assert (experts.ffn_hidden_size, experts.shared_ffn_hidden_size, experts.per_token) == (2624, 5248, 2)


@pytest.mark.parametrize(
    ("release", "switch", "plain", "rotary"),
    [
        ("2.0", "--multi-head-latent-attention", "--qk-nope-head-dim", "--qk-rope-head-dim"),
        ("2.3", "--multi-latent-attention", "--qk-head-dim", "--qk-pos-emb-head-dim"),
        ("2.3", "--multi-head-latent-attention", "--qk-nope-head-dim", "--qk-rope-head-dim"),
    ],
)
def test_latent_attention_has_other_names_in_older_releases(release: str, switch: str, plain: str, rotary: str) -> None:
    more = f"--padded-vocab-size 8 {switch} --q-lora-rank 12 --kv-lora-rank 16 {plain} 8 {rotary} 4 --v-head-dim 6"
    one = widths_of_shape(shape(more, release)).attention
    assert (one.head, one.value, one.query_rank, one.key_rank, one.rotary) == (12, 6, 12, 16, 4)


def test_all_sizes_that_are_missing_are_named() -> None:
    with pytest.raises(UnsupportedError, match="--padded-vocab-size"):
        shape("")
    with pytest.raises(UnsupportedError, match="the model size needs --hidden-size, --seq-length "):
        shape("--vocab-size 8", base="--num-layers 4 --num-attention-heads 10")
    with pytest.raises(UnsupportedError, match="--num-experts"):
        shape("--padded-vocab-size 8 --num-experts 100000")


@pytest.mark.parametrize(
    ("more", "biases"),
    [
        ("--disable-bias-linear", (False, False, False)),
        ("", (True, True, True)),
        ("--disable-bias-linear --add-qkv-bias", (True, False, False)),
        ("--disable-bias-linear --add-dense-bias", (False, True, False)),
    ],
)
def test_biases(more: str, biases: tuple[bool, bool, bool]) -> None:
    found = shape(f"--padded-vocab-size 8 {more}")
    assert (found.qkv_bias, found.output_bias, found.mlp_bias) == biases


def test_one_expert_is_none_and_shared_ones_are_only_what_is_written() -> None:
    base = "--padded-vocab-size 8"
    assert shape(base).legacy
    assert shape(f"{base} --num-experts 1").experts is None
    for name, release in (
        ("--moe-ffn-hidden-size 16", "2.3"),
        ("--moe-intermediate-size 16", "2.0"),
        ("--moe-ffn-hidden-size 8 --moe-intermediate-size 16", "2.3"),
    ):
        found = shape(f"{base} --num-experts 2 {name}", release).experts
        assert found is not None
        assert (found.routed, found.ffn_hidden_size, found.shared_ffn_hidden_size) == (2, 16, 0)
    most = shape(f"{base} --num-experts 65536").experts
    assert most is not None
    for ways, split in (("1", False), ("2", True)):
        cut = shape(f"{base} --num-experts 8 --expert-tensor-parallel-size {ways}", "2.3").experts
        assert cut is not None
        assert cut.tensor_parallel is split
