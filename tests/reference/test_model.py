"""Test the reference transformer: its ranks, phases and defaults, its one entry point, and where MindSpore is installed."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import ms_tune
from ms_tune.dialects.job_parts import ContextMethod, DType, Experts, Parallelism, TrainingConfig
from ms_tune.dryrun.request import DryrunRequest, PreparedRun
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.query import data_folder
from ms_tune.facts.training import Framework
from ms_tune.footprint.phases import ORDER, Phase, Phases
from ms_tune.job import Job
from ms_tune.readers.memory_block import Frame
from ms_tune.reference import mindspeed as reference_mindspeed
from ms_tune.reference.job import ReferenceJob, rank_groups
from ms_tune.text import Language, render
from tests import dynamic_jobs
from tests.dryrun.configs import MINDSPEED, SHAPE, TRAINING, edited, source_of
from tests.readers.rows import table_from
from tests.readers.samples import block
from tests.reference.configs import CASES
from tests.sources import modules

SIZES = st.sampled_from([1, 2, 4])


@st.composite
def jobs(draw: st.DrawFn) -> tuple[TrainingConfig, int]:
    tensor, context, pipeline, data, expert = (draw(SIZES) for _ in range(5))
    method = draw(st.sampled_from(ContextMethod))
    split = draw(st.booleans())
    others = context * data * (1 if split else tensor)
    expert = expert if others % expert == 0 else 1
    parallel = Parallelism(
        tensor, pipeline, context, expert, None, sequence=True, context_method=method, ulysses=min(2, context)
    )
    shards = draw(st.sampled_from([None, 1, data]))
    return (
        TRAINING._replace(
            shape=SHAPE._replace(experts=Experts(8, 2, 32, tensor_parallel=split)),
            parallelism=parallel,
            optimizer=TRAINING.optimizer._replace(shards=shards),
        ),
        data,
    )


@given(jobs(), st.data())
def test_the_groups_are_those_of_an_array_of_all_ranks(job: tuple[TrainingConfig, int], data: st.DataObject) -> None:
    config, ways = job
    parallel, experts = config.parallelism, config.shape.experts
    assert experts is not None
    everything = np.arange(parallel.pipeline * ways * parallel.context * parallel.tensor)
    ranks = everything.reshape(parallel.pipeline, ways, parallel.context, parallel.tensor)
    rank = data.draw(st.sampled_from(everything.tolist()))
    p, d, c, t = (int(axis[0]) for axis in np.where(ranks == rank))
    groups = rank_groups(config, ways, rank)
    assert groups.tensor == tuple(ranks[p, d, c])
    assert groups.context == tuple(ranks[p, d, :, t])
    assert groups.data == tuple(ranks[p, :, :, t].reshape(-1))
    # Without expert parallelism every tensor-parallel rank has all experts, like all norms.
    column_only = experts.tensor_parallel or parallel.expert == 1
    tokens = ranks[p, :, :, t].reshape(-1) if column_only else ranks[p].reshape(-1)
    grid = tokens.reshape(-1, parallel.expert)
    row, column = (int(axis[0]) for axis in np.where(grid == rank))
    assert groups.expert == tuple(grid[row])
    assert groups.expert_data == tuple(grid[:, column])
    assert groups.previous == int(np.roll(ranks, 1, axis=0)[p, d, c, t])
    assert groups.following == int(np.roll(ranks, -1, axis=0)[p, d, c, t])


@given(jobs(), st.data())
def test_a_group_is_the_same_for_all_its_members(job: tuple[TrainingConfig, int], data: st.DataObject) -> None:
    config, ways = job
    world = config.parallelism.model_size * ways
    rank = data.draw(st.integers(0, world - 1))
    groups = rank_groups(config, ways, rank)
    for name in ("ulysses", "ring", "shards", "expert_shards"):
        members = getattr(groups, name)
        assert rank in members
        assert all(getattr(rank_groups(config, ways, other), name) == members for other in members)
    assert len(groups.ulysses) * len(groups.ring) == config.parallelism.context
    assert set(groups.shards) <= set(groups.data)
    assert set(groups.expert_shards) <= set(groups.expert_data)
    if config.optimizer.shards is None:
        assert (groups.shards, groups.expert_shards) == (groups.data, groups.expert_data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("UnshardedWeights", Phase.UPDATE),
        ("make_adamw", Phase.UPDATE),
        ("squared_norm", Phase.UPDATE),
        ("ShardedWeights", None),  # it also receives gradients and gathers weights
        ("GradientBuffers", None),
        ("Trainer", None),
    ],
)
def test_the_update_is_what_is_in_the_file_of_the_optimizer(name: str, phase: Phase | None) -> None:
    (path,) = (
        module.path
        for module in modules()
        if module.inside("reference.transformer")
        for node in module.tree.body
        if getattr(node, "name", "") == name
    )
    made = block(1, stack=(Frame(str(path), 1, "step"),))
    (found,) = Phases(table_from([made]), np.array([False])).own_codes.tolist()
    assert (ORDER[found - 1] if found else None) is phase


PACKAGE = Path(ms_tune.__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the package without that folder, with a config of the dynamic graph."""
    made = tmp_path_factory.mktemp("without")
    shutil.copytree(PACKAGE, made / "ms_tune", ignore=shutil.ignore_patterns("reference", "__pycache__"))
    for name in ("checklists", "yaml_templates"):
        shutil.copytree(data_folder(name), made / name)
    (made / "config.yaml").write_text(yaml.safe_dump(CASES["Qwen3"].config), encoding="utf-8")
    return made


def ms_tune_without(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-P",
        "-c",
        f"import sys; sys.path.insert(0, {str(folder)!r}); import ms_tune.cli.main as m",
    ]
    command[-1] += "; m.entry_point()"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8", "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("--help",), ("lint", "config.yaml"), ("dryrun", "--help"), ("memory", "--help"), ("rule", "MST778")]
)
def test_the_rest_works_without_it(arguments: tuple[str, ...], folder: Path) -> None:
    done = ms_tune_without(folder, *arguments)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_what_is_missing_is_said(folder: Path) -> None:
    done = ms_tune_without(folder, "dryrun", "config.yaml", "--devices", "4")
    assert done.returncode == 2, done.stderr
    assert "reference" in done.stderr
    assert "Traceback" not in done.stderr


MINDFORMERS = "mindformers.experimental.parallel_core.pynative"


@pytest.mark.parametrize(
    ("package", "normalization", "dtype"),
    [
        (None, "RMSNorm", None),
        ("mindspeed_ms", "RMSNorm", None),
        (MINDFORMERS, "RMSNorm", DType.FLOAT32),
        (MINDFORMERS, "LayerNorm", DType.FLOAT32),
        (MINDFORMERS, "FusedRMSNorm", DType.BFLOAT16),
    ],
)
def test_normalisations_have_the_number_format_of_the_installed_framework(
    package: str | None, normalization: str, dtype: DType | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = None if package is None else Framework(package, "a framework")
    monkeypatch.setattr(reference_mindspeed, "mindspeed_framework", lambda: found)
    config = edited(MINDSPEED, "model_config", {**MINDSPEED["model_config"], "normalization": normalization})
    job = reference_mindspeed.read_mindspeed(Job(source_of(config)), devices=8)
    assert job.config.precision.norm is dtype


def prepared(config: dict[str, Any], devices: int) -> PreparedRun:
    request = DryrunRequest(config=Path("config.yaml"), reference=True)
    return dynamic_jobs.prepare(source_of(config), "config.yaml", request, devices, Dialect.MINDFORMERS_PYNATIVE)


def without(name: str, *keys: str) -> dict[str, Any]:
    config = copy.deepcopy(CASES[name].config)
    for key in keys:
        del config["model"][key]
    return config


def test_a_size_that_is_missing_is_taken_and_reported() -> None:
    run = prepared(without("DeepSeek-V3", "kv_lora_rank", "n_routed_experts"), 8)
    assert isinstance(run.job, ReferenceJob)
    shape = run.job.config.shape
    assert shape.latent is not None
    assert shape.latent.key_value_rank == 512
    assert shape.experts is not None
    assert shape.experts.routed == 256
    for language in Language:
        messages = [render(message, language) for message in run.warnings if message.id == "reference.defaults"]
        assert [("kv_lora_rank: 512" in text, "n_routed_experts: 256" in text) for text in messages] == [(True, True)]


def test_another_name_of_a_size_counts_and_so_does_null() -> None:
    config = without("Qwen3-MoE", "num_experts", "num_hidden_layers")
    config["model"] |= {"num_moe_experts": 8, "num_layers": 4}
    assert not any(message.id == "reference.defaults" for message in prepared(config, 8).warnings)
    config = without("DeepSeek-V3, without pipeline", "q_lora_rank")
    config["model"]["q_lora_rank"] = None
    run = prepared(config, 4)
    assert isinstance(run.job, ReferenceJob)
    assert run.job.config.shape.latent is not None
    assert run.job.config.shape.latent.query_rank is None
    assert not any(message.id == "reference.defaults" for message in run.warnings)


def test_a_model_of_a_class_that_is_not_known_needs_all_its_sizes() -> None:
    config = without("Qwen3", "vocab_size")
    config["model"]["model_type"] = "of_my_own"
    with pytest.raises(ConfigError, match="vocab_size"):
        prepared(config, 4)
