from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.category import CONTENTS
from ms_tune.footprint.findings import load_checks
from ms_tune.footprint.report import MemoryRequest, analyse_memory
from ms_tune.footprint.steps import StepEvidence
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.table import NONE
from ms_tune.text import Language
from ms_tune.units import MIB
from tests.memory.reports import LLAMA, QWEN_8B, QWEN_TINY, rank_of, report_of
from tests.readers.samples import folder

RUNS = (
    *("asc2", "asc_comm/rank_3", "asc_dp8/rank_3", "asc_gO0", "gpt", "nn_cnn_pynative", "over_limit", "v_simple"),
    *(LLAMA, "llama7b_pynative", QWEN_TINY, QWEN_8B, "two_streams/rank_0"),
)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_everything_adds_up(run: str) -> None:
    for rank in report_of(run).ranks:
        peak = rank.curve.peak_bytes
        reported = rank.table.used_after != NONE
        assert peak == rank.table.used_after[reported].max()
        assert not len(rank.curve.mismatches)
        assert list(rank.peak.contents) == list(CONTENTS)
        assert sum(rank.peak.contents.values()) == peak
        for groups in (rank.peak.holders, rank.peak.operators, rank.peak.lines, rank.peak.layers):
            assert sum(group.bytes for group in groups) == peak
            sizes = [group.bytes for group in groups]
            assert sizes == sorted(sizes, reverse=True)
        if rank.log is not None and rank.log.statistics is not None:
            assert peak // MIB == rank.log.statistics.peak_mib
            assert rank.curve.footprint_bytes // MIB == rank.log.statistics.footprint_mib
        assert rank.lifetimes.peak_if_freed_after_last_use <= peak
        assert rank.lifetimes.peak_without_spikes <= peak


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_the_stretches_of_addresses_are_the_footprint_at_every_tenth_of_the_trace(run: str) -> None:
    rank = rank_of(run)
    for place in np.linspace(0, len(rank.curve.tick) - 1, 10).astype(int).tolist():
        tick = int(rank.curve.tick[place])
        parts = rank.breakdown_at(tick)
        from ms_tune.footprint.curve import map_addresses  # noqa: PLC0415 - used here only

        found = map_addresses(rank.table, rank.curve, tick)
        last = int(np.searchsorted(rank.curve.tick, tick, side="right")) - 1
        assert found.overlaps == 0
        assert sum(segment.bytes for segment in found.segments) == rank.curve.footprint[last]
        assert (
            sum(segment.used for segment in found.segments) == rank.curve.bytes_at(tick) == sum(parts.contents.values())
        )
        assert found.free_bytes == rank.curve.footprint[last] - rank.curve.bytes_at(tick)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("run", "rows"),
    [
        ("asc_gO0", 70),
        ("asc_dp8/rank_3", 88),
        ("gpt", 192),
        ("asc_comm/rank_3", 3),
        pytest.param("llama7b_pynative", 9126, marks=pytest.mark.slow),
    ],
)
def test_every_launched_block_has_its_launch(run: str, rows: int) -> None:
    joined = rank_of(run).join
    assert joined is not None
    assert (joined.joined_rows, joined.joinable_rows) == (rows, rows)


@pytest.mark.slow
def test_launches_of_a_graph_are_joined_by_name() -> None:
    for rank, rows in zip(report_of(QWEN_TINY).ranks, (8320, 9424), strict=True):
        assert rank.join is not None
        assert rank.tasks is not None
        assert (rank.join.joined_rows, rank.join.joinable_rows) == (rows, rows)
        for row in np.flatnonzero(rank.join.joinable).tolist():
            launch = int(rank.join.launch[row])
            assert rank.tasks.name.value_at(launch) == rank.table.task.value_at(row)
            # A block is allocated a few ticks around its launch, never a step earlier.
            assert -4 <= int(rank.tasks.stamp[launch]) - int(rank.table.start[row]) <= 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "steps", "evidence"),
    [
        ("asc2", 2, StepEvidence.UPDATE),
        ("v_simple", 2, StepEvidence.UPDATE),
        ("gpt", 2, StepEvidence.UPDATE),  # its optimizer works in place: the second update allocates nothing
        ("nn_cnn_pynative", 2, StepEvidence.UPDATE),
        (LLAMA, 2, StepEvidence.UPDATE),
        ("llama7b_pynative", 2, StepEvidence.UPDATE),
        ("asc_gO0", 2, StepEvidence.ACTOR),
        ("asc_dp8/rank_3", 2, StepEvidence.ACTOR),
        (QWEN_TINY, 8, StepEvidence.ACTOR),
        (QWEN_8B, 8, StepEvidence.REPETITION),
        ("over_limit", 0, StepEvidence.NONE),
    ],
)
def test_steps(run: str, steps: int, evidence: StepEvidence) -> None:
    found = rank_of(run).steps
    assert (len(found.ends), found.evidence) == (steps, evidence)
    assert list(found.ends) == sorted(set(found.ends))


@pytest.mark.slow
def test_qwen3_against_theory() -> None:
    rank = rank_of(QWEN_8B)
    assert {content.value: round(size / MIB, 1) for content, size in rank.peak.contents.items()} == {
        "weights": 2249.8,
        "optimizer_state": 4499.7,
        "gradients": 2249.8,
        "activations": 6152.3,
        "temporaries": 1187.0,  # two logits that the loss drops before the backward pass
        "workspace": 0.0,
        "communication": 0.0,
        "constants": 32.3,
        "unattributed": 0.0,
    }
    layers = {group.key: group for group in rank.peak.layers}
    assert {f"layers.{number}" for number in range(27, 36)} <= set(layers)
    assert [layer.layer for layer in rank.activations if layer.layer.startswith("layers.")] == [
        f"layers.{number}" for number in range(27, 36)
    ]
    fused = next(group for group in rank.peak.parameters if group.key == "decoder.layers.*.mlp.linear_fc1.weight")
    assert fused.categories[MemoryCategory.OPTIMIZER_STATE] == 2 * fused.categories[MemoryCategory.WEIGHTS]
    assert rank.theory.optimizer_ratio == pytest.approx(2, abs=1e-4)
    assert rank.theory.gradients_ratio == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
def test_tensors_and_padding() -> None:
    rank = rank_of(QWEN_TINY)
    split = next(holder for holder in rank.peak.holders if holder.operator == "SplitWithSize")
    assert split.tensor == "Float32[256, 1, 256, 1]"
    padding = rank.padding_at_peak()
    assert padding is not None
    assert 0 < padding < rank.curve.peak_bytes // 20
    assert rank_of(QWEN_8B).padding_at_peak() is None


@pytest.mark.slow
def test_findings_of_real_runs() -> None:
    def names(run: str) -> list[str]:
        return [finding.name for finding in report_of(run).all_findings]

    assert names(LLAMA) == ["late-free", "fragmentation", "spike"]
    assert names("over_limit") == ["does-not-fit", "stacks-useless", "unattributed"]
    assert names("llama7b_pynative")[0] == "does-not-fit"
    assert names(QWEN_8B) == []


def test_findings_read_well() -> None:
    for run in (LLAMA, "over_limit", "llama7b_pynative"):
        for finding in report_of(run).all_findings:
            for language in Language:
                for text in (each.say(language) for each in (finding.title, finding.message, finding.help) if each):
                    assert text
                    assert "{" not in text
    ids = [check.id for check in load_checks().values()]
    assert len(ids) == len(set(ids))
    assert all(check.title.en and check.title.zh for check in load_checks().values())


def test_files_that_cannot_be_read_are_left_out_and_reported(tmp_path: Path) -> None:
    for name in ("memory_block.csv", "log"):
        (tmp_path / name).write_bytes((folder("asc2") / name).read_bytes())
    (tmp_path / "task.csv").write_bytes(b"")
    (tmp_path / "tensors.json").write_text("{", encoding="utf-8")
    (tmp_path / "tracker_graph.ir").write_text("(%7) = MatMul\n", encoding="utf-8")
    rank = analyse_memory(tmp_path, MemoryRequest(), lambda _done, _total: None).worst
    assert rank.curve.peak_bytes == 2954752
    assert {error.message.id for error in rank.unread} == {"trace.not-tasks", "trace.tensors.json"}
    assert [(name, count) for name, (count, _) in rank.refused_rows().items()] == [("tracker_graph.ir", 1)]
    messages = [str(finding.message) for finding in rank.findings]
    assert any(
        text.startswith("task.csv ") and ": not a task.csv of MindSpore's memory tracker" in text for text in messages
    )
    assert any(text.startswith("tracker_graph.ir: 1 row is invalid; the first is line 1") for text in messages)


def test_offloaded_memory_is_distinguished_from_the_devices(tmp_path: Path) -> None:
    """The rows are those of MindSpore 2.9 with MindFormers' ``optimizer.swap``; its log counts the device only."""
    text = (folder("asc2") / "memory_block.csv").read_text(encoding="utf-8")
    columns = text.splitlines()[0].split(",")
    last = max(int(row.split(",")[0]) for row in text.splitlines()[1:])
    rows = []
    for place in range(3):
        cells = dict.fromkeys(columns, "")
        cells |= {"start_time_stamp": str(last + 1 + place), "end_time_stamp": str(NEVER_FREED), "stream_id": "0"}
        cells |= {"device_addr": hex(8 + 1024 * place), "pool_type": "Other", "size": "1024"}
        rows.append(",".join(cells[column] for column in columns))
    (tmp_path / "memory_block.csv").write_text(text + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    with_host, without = (
        analyse_memory(place, MemoryRequest(), lambda _done, _total: None).worst for place in (tmp_path, folder("asc2"))
    )
    assert (with_host.host_rows, with_host.host_bytes) == (3, 3072)
    assert (without.host_rows, without.host_bytes) == (0, 0)
    assert with_host.curve.peak_bytes == without.curve.peak_bytes
    assert with_host.peak.contents == without.peak.contents
    assert len(with_host.table) == len(without.table)
    (tmp_path / "memory_block.csv").write_text("\n".join([text.splitlines()[0], *rows, ""]), encoding="utf-8")
    assert analyse_memory(tmp_path, MemoryRequest(), lambda _done, _total: None).worst.curve.peak_bytes == 3072
