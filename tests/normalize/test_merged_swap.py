"""Test swap of a plan merged into a config: read back by MindFormers' rules, layer by layer, for models of both kinds."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from ms_tune.enums import RecomputeMode
from ms_tune.errors import UsageError
from ms_tune.job import Job
from ms_tune.normalize.sapp import merge_sapp
from ms_tune.normalize.sapp_lists import SappLists
from ms_tune.source.yaml import SourceFile, parse_source
from tests.jobs import normalize_source

CORE = """\
use_legacy: False
parallel:
  pipeline_config: {pipeline_interleave: True, pipeline_scheduler: 1f1b}
parallel_config:
  pipeline_stage: 2
model:
  model_config:
    model_type: qwen3
    num_layers: 12
    pp_interleave_num: 2  # chunks
recompute_config:
  recompute: [[1, 0], [0, 0]]
  select_recompute: False
"""
LEGACY = """\
use_legacy: True
parallel_config:
  pipeline_stage: 2
model:
  model_config:
    type: LlamaConfig
    num_layers: 12
  arch:
    type: LlamaForCausalLM
recompute_config:
  recompute: [1, 0]
"""


def source(text: str) -> SourceFile:
    return parse_source(text, Path("config.yaml"))


def lists_of(chunks: int, draw: Random) -> SappLists:
    """Draw random lists for three or six layers in each cell."""
    size = 6 // chunks
    rows: dict[str, list[list[int]]] = {"full": [], "select": [], "comm": [], "swap": []}
    for _ in range(chunks):
        full = [draw.randint(0, size // 2) for _ in range(2)]
        select = [draw.randint(least, size) for least in full]
        comm = [draw.randint(least, size) for least in full]
        most = [max(pair) for pair in zip(select, comm, strict=True)]
        for name, row in (("full", full), ("select", select), ("comm", comm)):
            rows[name].append(row)
        rows["swap"].append([draw.randint(0, size - first) for first in most])
    return SappLists(None, rows["full"], rows["select"], rows["comm"], swap=rows["swap"])


def describe_layers(lists: SappLists) -> list[tuple[int, int, bool, bool]]:
    """Return chunk, stage, full recomputation and swap of each layer, cell by cell."""
    assert lists.recompute is not None
    assert lists.swap is not None
    found = []
    for chunk, row in enumerate(lists.recompute):
        for stage, full in enumerate(row):
            first = max(table[chunk][stage] for table in (lists.select_recompute, lists.select_comm_recompute) if table)
            first = max(first, full)
            for place in range(6 // len(lists.recompute)):
                swaps = first <= place < first + lists.swap[chunk][stage]
                found.append((chunk, stage, place < full, swaps))
    return found


@pytest.mark.drawn(8)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("text", [CORE, LEGACY])
def test_the_framework_reads_what_was_meant(text: str, seed: int) -> None:
    lists = lists_of(2 if text is CORE else 1, Random(seed))  # noqa: S311 - test data
    merged = merge_sapp(Job(source(text)), lists)
    plan = normalize_source(source(merged.text))
    assert plan.failure is None
    read = [
        (one.chunk, one.stage, one.recompute is RecomputeMode.FULL, [swap.target for swap in one.swap] == [""])
        for one in plan.layers
    ]
    assert read == describe_layers(lists)
    # And back: without swap the lists count again.
    again = merge_sapp(Job(source(merged.text)), lists._replace(swap=[[0, 0] for _ in lists.swap or ()]))
    plan = normalize_source(source(again.text))
    assert not any(one.swap for one in plan.layers)
    assert [one.recompute is RecomputeMode.FULL for one in plan.layers] == [
        full for _, _, full, _ in describe_layers(lists)
    ]


def test_a_prefetch_and_a_name_that_are_there_stay() -> None:
    entry = "    cpu_offloading: True\n    cpu_offloading_num_layers: [{backward_prefetch: 7, layers: [0]}]\n"
    text = CORE.replace("    pp_interleave_num", entry + "    pp_interleave_num").replace("[[1, 0], [0, 0]]", "[]")
    nothing = [[0, 0], [0, 0]]
    merged = merge_sapp(Job(source(text)), SappLists(None, nothing, nothing, nothing, swap=[[2, 0], [0, 1]]))
    section: Any = yaml.safe_load(merged.text)["model"]["model_config"]
    assert section["cpu_offloading_num_layers"] == [{"backward_prefetch": 7, "layers": [0, 1, 9]}]
    assert "layer_swap" not in section
    assert "# chunks" in merged.text


@pytest.mark.parametrize("version", ["1.6", "1.7"])
def test_releases_that_lose_the_stage_of_layers_are_refused(version: str) -> None:
    lists = SappLists(None, [[0, 0]], [[0, 0]], [[0, 0]], swap=[[1, 0]])
    with pytest.raises(UsageError, match="stage"):
        merge_sapp(Job(source(LEGACY), version=version), lists)


def test_other_dialects_are_refused() -> None:
    text = "training_config: {}\nmodel_config: {num_layers: 4}\nparallel_config: {pipeline_model_parallel_size: 2}\n"
    lists = SappLists(None, [[0, 0]], [[0, 0]], [[0, 0]], swap=[[1, 0]])
    with pytest.raises(UsageError, match="cannot swap layers"):
        merge_sapp(Job(source(text)), lists)
    assert "swap" not in merge_sapp(Job(source(text)), lists._replace(swap=[[0, 0]])).text
