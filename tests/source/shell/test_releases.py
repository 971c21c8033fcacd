"""Test the release that a script is read for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.dialects.megatron.detect import release_taking
from ms_tune.source.shell.read import read_launches


@pytest.mark.parametrize(
    ("arguments", "release"),
    [
        ("--num-layers 8", "2.3"),
        ("--num-layers 8 --use-fused-lightning-indexer", "26.1"),  # 26.0 has it, too
        ("--num-layerz 8", "2.3"),  # no release has it
        ("--num-layerz 8 --use-fused-lightning-indexer --use-sparse-flash-attn", "26.1"),
        ("--moe-model-type megatron_moe", "2.3"),  # no parser that ran accepts it; 2.1's did not run
    ],
)
def test_the_default_unless_another_takes_more(tmp_path: Path, arguments: str, release: str) -> None:
    script = tmp_path / "pretrain.sh"
    script.write_text(f"msrun --worker_num 8 pretrain_gpt.py --ai-framework mindspore {arguments}\n")
    assert release_taking(read_launches(script)) == release


def test_only_among_those_that_come_into_question(tmp_path: Path) -> None:
    script = tmp_path / "pretrain.sh"
    script.write_text("torchrun pretrain_gpt.py --use-fused-lightning-indexer\n")
    assert release_taking(read_launches(script), ("2.2", "2.3", "26.0")) == "26.0"
