"""Test remedies where nothing fits: changes of a config that a table does not contain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import RecomputeMode
from ms_tune.fit.costs import RelativeCosts
from ms_tune.fit.job import read_job
from ms_tune.fit.run import with_remedies
from ms_tune.fit.table import build_table
from ms_tune.planning import fit as planning_fit
from ms_tune.planning import search
from ms_tune.planning.fit import PlanRemedy, fit_table
from ms_tune.planning.search import Effort
from ms_tune.units import GIB
from tests.dryrun import configs
from tests.fit.test_table import measured_in
from tests.fit.world import MIB, World


@pytest.fixture(autouse=True)
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the searches: other tests examine their results."""
    monkeypatch.setitem(search._BUDGETS, Effort.QUICK, search._Budget(60_000, 150, 10, 100, 3))
    monkeypatch.setattr(planning_fit, "_NODES", 50)


def find_remedies(
    folder: Path, devices: int, parallel: dict[str, Any], training: dict[str, Any]
) -> dict[str, PlanRemedy]:
    """Return the remedies for a job of two stages of four layers on devices that are far too small."""
    data = yaml.safe_load(yaml.safe_dump(configs.MINDSPEED))
    data["model_config"]["num_layers"] = 8
    data["parallel_config"] = {"pipeline_model_parallel_size": 2, **parallel}
    data["training_config"] = {**data.get("training_config", {}), **training}
    data["dataset_config"]["micro_batch_num"] = 4
    file = folder / "train.yaml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    job = read_job(DryrunRequest(config=file, devices=devices))
    table = build_table(job, measured_in(World(), job), RelativeCosts(), 2 * GIB)
    report = with_remedies(fit_table(table, effort=Effort.QUICK), job)
    assert report.planned is None
    return {remedy.name: remedy for remedy in report.remedies}


def test_what_the_config_has_already_is_not_reported(tmp_path: Path) -> None:
    found = find_remedies(tmp_path, 2, {}, {})
    assert set(found) == {"micro-batch", "stages", "tensor"}


@pytest.mark.slow
def test_state_that_every_rank_holds_whole_can_be_shared_out(tmp_path: Path) -> None:
    found = find_remedies(tmp_path, 8, {}, {"use_distributed_optimizer": False})
    assert next(iter(found)) == "optimizer"
    (two, four) = (
        find_remedies(tmp_path, ranks, {}, {"use_distributed_optimizer": False})["optimizer"] for ranks in (4, 8)
    )
    # Each of two ranks frees a half, each of four three quarters.
    assert four.freed_bytes == pytest.approx(two.freed_bytes * 1.5, rel=1e-6)


def test_tensor_parallel_ranks_can_split_the_sequence(tmp_path: Path) -> None:
    split = {"tensor_model_parallel_size": 2}
    assert "sequence" not in find_remedies(tmp_path, 4, {**split, "sequence_parallel": True}, {})
    # This dialect keeps the whole input of a recomputed layer on every rank: with all layers recomputed, nothing is freed.
    assert "sequence" not in find_remedies(tmp_path, 4, {**split, "sequence_parallel": False}, {})


@pytest.mark.slow
def test_a_dialect_with_swap_can_keep_activations_on_the_host() -> None:
    config = Path(__file__).parents[2] / "yaml_templates" / "mindformers" / "qwen3_32b.yaml"
    job = read_job(DryrunRequest(config=config))
    table = build_table(
        job, measured_in(World(), job, (RecomputeMode.NONE, RecomputeMode.FULL)), RelativeCosts(), 2 * GIB
    )
    report = with_remedies(fit_table(table, effort=Effort.QUICK), job)
    remedies = {remedy.name: remedy for remedy in report.remedies}
    assert list(remedies)[-1] == "swap"
    # At most the memory that its layers keep for all micro-batches in flight except one, without recomputation.
    assert 0 < remedies["swap"].freed_bytes < 32 * 300 * 16 * MIB
    assert not {"optimizer", "sequence"} & set(remedies)  # the template has both
