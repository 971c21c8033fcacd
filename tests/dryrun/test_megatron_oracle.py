"""Reproduce the pair of published figures with the real Megatron-LM, MindSpeed and MindSpeed-LLM on MSAdapter.

On request: ``MS_TUNE_TEST_MEGATRON`` names a Python with MindSpore 2.7.1 or 2.9 and their requirements; their sources
are on PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ms_tune.units import MIB

pytestmark = [pytest.mark.mindspore, pytest.mark.slow]

PYTHON = os.environ.get("MS_TUNE_TEST_MEGATRON")
_PROGRAM = "pretrain_gpt.py"
# Qwen2.5-7B with the settings of the published pair; docs/megatron.md.
_ARGUMENTS = """
--use-mcore-models --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel
--num-layers 28 --hidden-size 3584 --ffn-hidden-size 18944 --num-attention-heads 28 --group-query-attention
--num-query-groups 4 --seq-length 10240 --max-position-embeddings 10240 --disable-bias-linear --add-qkv-bias
--use-flash-attn --swiglu --use-fused-swiglu --normalization RMSNorm --norm-epsilon 1e-6 --use-fused-rmsnorm
--position-embedding-type rope --rotary-base 1000000 --use-fused-rotary-pos-emb --untie-embeddings-and-output-weights
--micro-batch-size 1 --global-batch-size 4 --make-vocab-size-divisible-by 1 --padded-vocab-size 152064
--tokenizer-type PretrainedFromHF --tokenizer-name-or-path absent --data-path absent --split 100,0,0
--attention-dropout 0.0 --hidden-dropout 0.0 --train-iters 2000 --lr 1e-6 --lr-decay-style cosine --min-lr 1e-7
--weight-decay 0.1 --clip-grad 1.0 --adam-beta1 0.9 --adam-beta2 0.95 --initial-loss-scale 4096
--no-gradient-accumulation-fusion --no-masked-softmax-fusion --attention-softmax-in-fp32 --bf16
--distributed-backend nccl --ai-framework mindspore
"""
_RECOMPUTED = ("recompute-granularity=full", "recompute-method=uniform", "recompute-num-layers=1")


def simulated(folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Return exit code and result of the first stage of the two jobs."""
    sources = os.environ["PYTHONPATH"].split(os.pathsep)
    home = next(Path(source) for source in sources if (Path(source) / _PROGRAM).is_file())
    script = folder / "pretrain.sh"
    line = " ".join(_ARGUMENTS.split())
    begin = "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
    script.write_text(
        f"{begin}msrun --worker_num 4 --local_worker_num 4 --join=False {_PROGRAM} {line}\n", encoding="utf-8"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ms_tune", "dryrun", "--json", "--python", str(PYTHON), "--stages", "0", *options),
            *("--run-dir", str(folder / "kept"), str(script)),
        ],
        cwd=home,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sources])},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


@pytest.mark.skipif(PYTHON is None, reason="MS_TUNE_TEST_MEGATRON names no Python")
@pytest.mark.parametrize(
    ("settings", "peak", "footprints"),
    [((), 55389, (57289, 57279)), (_RECOMPUTED, 34946, (35707, 35707))],  # of MindSpore 2.9.0 and of 2.7.1
    ids=["nothing", "everything"],
)
def test_the_published_pair(tmp_path: Path, settings: tuple[str, ...], peak: int, footprints: tuple[int, int]) -> None:
    options = [word for setting in settings for word in ("--set", setting)]
    code, result = simulated(tmp_path, *options)
    assert (code in (0, 1), result["peak_bytes"] // MIB) == (True, peak)  # it just fits
    assert result["footprint_bytes"] // MIB in footprints
    held = result["categories_at_peak"]
    assert held["gradients"] / held["weights"] == pytest.approx(2, rel=1e-3)
    assert held["optimizer_state"] / held["weights"] == pytest.approx(6, rel=1e-3)
    assert [abs(one["difference"]) < 1e-4 for one in result["theory"].values()] == [True] * 3


@pytest.mark.skipif(PYTHON is None, reason="MS_TUNE_TEST_MEGATRON names no Python")
def test_the_published_figure_derived_from_five_layers(tmp_path: Path) -> None:
    _, result = simulated(tmp_path, "--layers", "auto")
    assert (result["extrapolated_from_layers"], result["extrapolated_peak_bytes"] // MIB) == ([2, 3], 55389)
