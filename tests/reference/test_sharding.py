"""Compare sharded weights of the reference transformer in the real MindSpore with a count by hand at every event of a step.

Weights are large and tokens few, so that almost nothing else is in memory.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import Dialect
from ms_tune.planning.schedule import Schedule, stage_passes
from ms_tune.records import plain_data
from ms_tune.reference.job import ReferenceJob
from tests import dynamic_jobs
from tests.dryrun.configs import source_of
from tests.dryrun.machine import needs_mindspore
from tests.oracle import sharding
from tests.oracle.sharding import Wrapped
from tests.reference.configs import CASES
from tests.reference.test_runs import MIB, environment_of

pytestmark = [pytest.mark.mindspore, needs_mindspore]

CHILD = "tests.oracle.sharding_child"  # it imports MindSpore, so this process does not
HIDDEN, WIDTH, WORDS, LAYERS = 1024, 4096, 32_000, 3
LAYER = 4 * HIDDEN**2 + 3 * HIDDEN * WIDTH + 2 * HIDDEN
SMALL = 6 * MIB  # activations of 16 tokens, and a mask of FlashAttention
BF16, FLOAT32 = 2, 4


def config_of(parallelism: dict[str, Any], samples: int) -> dict[str, Any]:
    made = copy.deepcopy(CASES["Qwen3"].config)
    made["training"]["global_batch_size"] = samples
    made["parallelism"] |= parallelism
    made["model"] |= {
        "vocab_size": WORDS,
        "seq_length": 16,
        "hidden_size": HIDDEN,
        "intermediate_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "params_dtype": "bfloat16",
        "use_attn_mask_compression": True,
    }
    return made


def noted(folder: Path, config: dict[str, Any], devices: int, stage: int = 0) -> tuple[ReferenceJob, list[Any]]:
    """Return the job, and the notes of its second step."""
    request = DryrunRequest(config=folder / "config.yaml", stage=stage, reference=True)
    run = dynamic_jobs.prepare(source_of(config), "config.yaml", request, devices, Dialect.MINDFORMERS_PYNATIVE)
    assert isinstance(run.job, ReferenceJob)
    (folder / "job.json").write_text(json.dumps(plain_data(run.job)), encoding="utf-8")
    program = [sys.executable, "-m", CHILD, str(folder / "job.json"), str(folder / "notes.json")]
    environment = environment_of(run.rank, run.world_size)
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return run.job, json.loads((folder / "notes.json").read_text("utf-8"))


def layers(count: int, *, reshards: bool, ahead: tuple[str, ...], back: tuple[str, ...]) -> list[Wrapped]:
    names = [f"layer {number}" for number in range(count)]
    following = [*((name,) for name in names[1:]), ahead]
    previous = [back, *((name,) for name in names[:-1])]
    return [
        Wrapped(name, LAYER, BF16, reshards, after, before)
        for name, after, before in zip(names, following, previous, strict=True)
    ]


def whole_model(*, reshards: bool) -> list[Wrapped]:
    return [
        Wrapped("embedding", WORDS * HIDDEN, FLOAT32, reshards, ("layer 0",), at_the_end=True),
        *layers(LAYERS, reshards=reshards, ahead=("norm", "output"), back=("embedding",)),
        Wrapped("norm", HIDDEN, FLOAT32, reshards=True),
        Wrapped("output", WORDS * HIDDEN, BF16, reshards=False, fetches_back=(f"layer {LAYERS - 1}",)),
    ]


def agree(notes: list[Any], expected: list[tuple[str, str, int]]) -> None:
    """Check that the events are equal, with equal differences in bytes from the first one on."""
    assert [(event, unit.partition(": ")[2]) for event, unit, _ in notes] == [
        (event, unit) for event, unit, _ in expected
    ]
    start = notes[0][2] - expected[0][2]
    differences = [measured[2] - start - by_hand[2] for measured, by_hand in zip(notes, expected, strict=True)]
    assert max(map(abs, differences)) < SMALL, [
        (*by_hand[:2], by_hand[2] / MIB, difference / MIB)
        for by_hand, difference in zip(expected, differences, strict=True)
    ]


@pytest.mark.parametrize(
    ("parallelism", "ways", "copies", "reshards"),
    [
        ({}, 4, 1, True),
        pytest.param({"reshard_after_forward_policy": "never"}, 4, 1, False, marks=pytest.mark.more),
        ({"data_parallel_shard": 2}, 2, 2, True),
    ],
    ids=["four parts", "kept after forward", "two parts and two copies"],
)
def test_what_is_whole_and_what_is_on_its_way(
    parallelism: dict[str, Any], ways: int, copies: int, *, reshards: bool, tmp_path: Path
) -> None:
    job, notes = noted(tmp_path, config_of(parallelism, samples=8), devices=4)
    assert job.config.batch.micro_batch_num == 2
    agree(notes, list(sharding.step(whole_model(reshards=reshards), ways, copies, micro_batches=2)))


@pytest.mark.parametrize("stage", [0, pytest.param(1, marks=pytest.mark.more)])
def test_a_pipeline_keeps_weights_and_float32_gradients_whole(stage: int, tmp_path: Path) -> None:
    parallelism = {"pipeline_parallel": 2, "pipeline_parallel_layers_per_stage": ["0-1", "2"]}
    config = config_of(parallelism, samples=8)
    # MindFormers cannot divide Qwen3 into stages; a user's own network may be as large.
    config["model"] |= {"model_type": "own", "architectures": "OwnForCausalLM", "qk_layernorm": True}
    job, notes = noted(tmp_path, config, devices=4, stage=stage)
    first = [Wrapped("embedding", WORDS * HIDDEN, FLOAT32, reshards=False, at_the_end=True)]
    last = [
        Wrapped("norm", HIDDEN, FLOAT32, reshards=False),
        Wrapped("output", WORDS * HIDDEN, BF16, reshards=False),
    ]
    own = layers(2 - stage, reshards=False, ahead=(), back=())
    units = [*first, *own] if stage == 0 else [*own, *last]
    count = job.config.batch.micro_batch_num
    order = [
        (one.forward, one.micro_batch == count - 1)
        for one in stage_passes(Schedule.ONE_FORWARD_ONE_BACKWARD, stage, 2, 1, count)
    ]
    expected = sharding.pipeline_step(units, 2, order)
    # While a hook runs, MindSpore keeps the gradient that it received: for a unit with one weight only, it is released
    # later.
    agree(
        [note for note in notes if note[0] != "behind"],
        [event for event in expected if event[0] != "behind"],
    )
