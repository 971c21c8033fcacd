"""Compare the layers of a program in ms-tune with the frameworks' own code for its arguments."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import pytest

from ms_tune.dialects.megatron.read import SERVED
from ms_tune.dialects.megatron.read import plan_of as plan_of_command
from ms_tune.facts.megatron import UNREAD, definitions, names_by_dest
from tests.oracle.make_megatron import SOURCES
from tests.oracle.megatron_cases import random_arguments
from tests.oracle.megatron_layers import answers, command_with, describe_plan

pytestmark = [
    pytest.mark.skipif(SOURCES not in os.environ, reason=f"{SOURCES} names no sources of MindSpeed-LLM"),
    pytest.mark.slow,
]
CASES = int(os.environ.get("MS_TUNE_ORACLE_CASES", "50"))
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))


# Keys that ``validate_yaml`` of Megatron-LM core_v0.12.1 reads of each section.
_LANGUAGE_MODEL = (
    *(
        "activation_func",
        "apply_rope_fusion",
        "distribute_saved_activations",
        "ffn_hidden_size",
        "fp32_residual_connection",
    ),
    *("hidden_size", "kv_channels", "moe_grouped_gemm", "num_attention_heads", "num_layers", "num_moe_experts"),
    *("persist_layer_norm", "recompute_granularity", "recompute_method", "rotary_interleaved"),
)
_BESIDE = {
    "micro_batch_size": 1,
    "seq_length": 64,
    "max_position_embeddings": 64,
    "train_iters": 9,
    "lr_warmup_fraction": None,
}
_PARALLEL = (
    *("async_tensor_model_parallel_allreduce", "bf16", "context_parallel_size", "expert_model_parallel_size", "fp16"),
    *("overlap_p2p_comm", "params_dtype", "pipeline_model_parallel_size", "pipeline_model_parallel_split_rank"),
    *("sequence_parallel", "tensor_model_parallel_size", "tp_comm_overlap", "variable_seq_lengths"),
)


def cases_of(seed: str, count: int) -> list[list[str]]:
    random = Random(seed)  # noqa: S311 - cases, no secrets
    return [random_arguments(random) for _ in range(count)]


@pytest.mark.parametrize("release", SERVED)
def test_random_arguments(release: str) -> None:
    cases = cases_of(f"{SEED} {release}", CASES)
    found = answers(Path(os.environ[SOURCES], release), cases)
    different = [
        (" ".join(case), theirs, ours)
        for case, theirs in zip(cases, found, strict=True)
        if theirs != (ours := describe_plan(case, release))
    ]
    assert different == []


@pytest.mark.parametrize("release", SERVED)
def test_no_file_of_arguments_passes(release: str, tmp_path: Path) -> None:
    twice = {"pipeline_model_parallel_size": 1, "variable_seq_lengths": False}
    sections: dict[str, dict[str, object]] = {}
    sections["language_model"] = dict.fromkeys(_LANGUAGE_MODEL, 4)
    sections["model_parallel"] = dict.fromkeys(_PARALLEL, 0)
    sections["language_model"] |= {
        "num_moe_experts": None,
        "recompute_granularity": None,
        "fp32_residual_connection": False,
        "distribute_saved_activations": False,
        "rotary_interleaved": False,
        "moe_grouped_gemm": False,
    }
    sections["model_parallel"] |= {"tensor_model_parallel_size": 1, "context_parallel_size": 1, **twice}
    settings = yaml_arguments(release, {*sections["language_model"], *sections["model_parallel"]}) | sections
    cases = []
    for name, written in (("once", settings), ("twice", settings | twice)):
        (tmp_path / name).write_text(json.dumps(written))
        cases.append(["--yaml-cfg", str(tmp_path / name)])
    once, both = answers(Path(os.environ[SOURCES], release), cases)
    assert once == ["AttributeError: 'types.SimpleNamespace' object has no attribute 'pipeline_model_parallel_size'"]
    failure = plan_of_command(command_with(cases[1], release)).failure
    assert failure is not None
    assert both == [f"{failure.exception}: {failure.text}"]


def yaml_arguments(release: str, without: set[str]) -> dict[str, object]:
    """Return every argument that a release knows with its default, except some."""
    found: dict[str, object] = {"world_size": 1, "rank": 0, **_BESIDE}
    for dest, names in names_by_dest(release).items():
        defaults = [one.default for name in names for one in definitions(name, release) if one.dest == dest]
        if dest not in without and dest not in found:
            found[dest] = None if defaults[-1] == UNREAD else defaults[-1]
    return found


@pytest.mark.parametrize("release", SERVED)
def test_a_process_that_has_imported_everything_answers_as_a_new_one_does(release: str) -> None:
    cases = cases_of(f"new {SEED} {release}", 5)
    folder = Path(os.environ[SOURCES], release)
    assert list(answers(folder, cases)) == list(answers(folder, cases, "cold"))
