"""Test the reader of training logs: five forms, ranks, runs, broken files, and logs beyond each limit."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import median

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers import training_log
from ms_tune.readers.logged_steps import TrainingLog, read_baseline
from ms_tune.readers.step_lines import form_of_pattern
from ms_tune.readers.training_log import read_training_log
from ms_tune.units import MIB
from tests.readers.training_logs import PUBLIC, dynamic_line, megatron_line, megatron_log, static_line

OLD = "Epoch: {}, Step: {}, Loss: 1.5, x: 1, Time: 100 ms\n"
MEMORY = "[Rank {}] (after {} iterations) memory (MB) | allocated: 1 | max allocated: {} | reserved: 3\n"


def read(folder: Path, text: str, name: str = "train.log") -> TrainingLog:
    file = folder / name
    file.write_text(text, "utf-8")
    return read_training_log(file)


class TestForms:
    def test_static_graph(self, tmp_path: Path) -> None:
        log = read(tmp_path, "noise\n" + static_line(1, 9000) + "more noise\n" + static_line(2, 2000))
        (run,) = log.runs
        (steps,) = run.ranks
        assert (steps.form.name, list(steps.number), list(steps.seconds)) == ("mindformers", [1, 2], [9.0, 2.0])
        assert list(steps.line) == [2, 5]
        assert list(steps.rate) == [0.11111, 0.5]
        assert list(steps.tflops) == [11.111, 50.0]
        assert list(steps.loss) == [1.5, 1.5]
        assert (run.total, log.damaged_count, log.cut_off) == (100, 0, False)

    def test_a_value_with_its_average_after_it(self, tmp_path: Path) -> None:
        line = (
            " iteration 2/ 9 | elapsed time per iteration (ms): 100.5/101.0 | compute per GPU (TFLOP/s/GPU): 90.5 (avg 90.4) |"
            " global batch size: 8 | lm loss: 1.5x | grad norm: / 3 |\n"
        )
        (steps,) = read(tmp_path, line).runs[0].ranks
        assert (steps.seconds[0], steps.tflops[0], steps.batch[0]) == (0.1005, 90.5, 8)
        assert math.isnan(steps.loss[0])
        assert math.isnan(steps.norm[0])


class TestRanksAndRuns:
    def test_tail_of_several_files_shows_ranks(self, tmp_path: Path) -> None:
        text = "".join(
            f"==> log/worker_{rank}.log <==\n{dynamic_line(step, 100)}" for step in (1, 2) for rank in (0, 1)
        )
        (run,) = read(tmp_path, text).runs
        assert [(rank.rank, len(rank)) for rank in run.ranks] == [(0, 2), (1, 2)]

    def test_a_late_rank_is_no_new_run(self, tmp_path: Path) -> None:
        order = [(1, 0), (2, 0), (1, 1), (3, 0), (2, 1), (3, 1)]
        (run,) = read(tmp_path, "".join(megatron_line(step, 100) for step, _ in order)).runs
        assert [len(rank) for rank in run.ranks] == [3, 3]


class TestBroken:
    def test_a_cut_off_time_is_not_taken(self, tmp_path: Path) -> None:
        whole = megatron_log([100, 100])
        log = read(tmp_path, whole + megatron_line(3, 6543.2)[:100])
        assert "elapsed time per iteration" in megatron_line(3, 6543.2)[:150]
        assert log.cut_off
        assert len(log.runs[0].ranks[0]) == 2

    def test_the_last_figure_needs_no_bar_but_an_end_of_its_line(self, tmp_path: Path) -> None:
        bare = megatron_line(1, 100).partition(" grad norm")[0] + " grad norm: 5"
        for text, norms in (
            (f"{bare}\n{bare.replace('1/', '2/', 1)}\n", [5, 5]),
            (f"{bare}\n{bare.replace('1/', '2/', 1)}.2", [5, math.nan]),
            (f"{bare} {megatron_line(2, 100)}", [5, 2]),
        ):
            found = list(read(tmp_path, text).runs[0].ranks[0].norm)
            assert found == pytest.approx(norms, nan_ok=True)

    def test_a_cut_off_rate_is_not_taken(self, tmp_path: Path) -> None:
        text = static_line(1, 1000) + static_line(2, 1000)
        log = read(tmp_path, text[: text.rfind("1.00000") + 4] + " samples/s/p")
        assert math.isnan(log.runs[0].ranks[0].rate[1])

    def test_no_step(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="no line of this log reports"):
            read(tmp_path, "Hello\n" * 100)

    def test_only_damaged_steps(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match=r"train\.log:2: no line with a step can be read"):
            read(tmp_path, "x\nper_step_time: ms\n")

    @pytest.mark.parametrize(
        ("text", "what"),
        [
            ("{", "invalid JSON"),
            ("{}", "no list"),
            ('{"time": []}', "no list"),
            ('{"time": [1, "x"]}', "entry 2 of 'time'"),
            ('{"time": [1, 1e400]}', "entry 2"),
            ('{"time info": [1, -5]}', "entry 2"),
            ('{"time":' + "[" * 100_000, "invalid JSON"),
        ],
    )
    def test_a_baseline_that_is_none(self, tmp_path: Path, text: str, what: str) -> None:
        with pytest.raises(TraceError, match=what):
            read(tmp_path, text, "base.json")


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public logs are not here")
@pytest.mark.parametrize(
    ("name", "medians"),
    [
        ("mindspeed-core-ms_feature-0.2_test_qwen_sft_pta_det.txt", [9.0066]),
        ("mindspeed-core-ms_feature-0.2_test_qwen_sft_pta_non_det.txt", [4.5113]),
        ("mindspeed-core-ms_feature-0.2_test_ds3_sft_pta_det.txt", [0.7272]),
        ("mindspeed-core-ms_feature-0.2_test_ds3_sft_pta_non_det.txt", [0.5064]),
        ("mindspeed-core-ms_feature-0.2_test_ds3_pretrain_pta_det.txt", [3.2509]),
        ("mindspeed-core-ms_feature-0.2_test_ds3_pretrain_pta_non_det.txt", [2.7773]),
        # Sorted lines of two documents, each of which shows two steps: one lacks the second step (but has its rate,
        # 0.12096 for 8,266 ms), so that there are three rates for three steps of two runs.
        ("mindformers_docs_2steps.txt", [157.149, 7.637]),
        ("mindspeed-llm_docs.txt", [1.15641, 1.824945, 52.7281]),
        ("mindspeed-llm_baseline_llama2_tp2_pp4_vpp2_ptd.json", [5.63505]),
    ],
)
def test_public_logs(name: str, medians: list[float]) -> None:
    runs = read_training_log(PUBLIC / "logs" / name).runs
    times = [run.ranks[0].seconds for run in runs]
    assert [median(one[1:] or one) for one in times] == pytest.approx(medians)


def numbers(log: TrainingLog) -> list[list[list[int]]]:
    return [[list(rank.number) for rank in run.ranks] for run in log.runs]


@pytest.mark.parametrize(("most", "kept"), [(9, [*range(1, 10)]), (5, [1, 3, 5, 7, 9]), (4, [1, 5, 9])])
def test_of_too_many_steps_every_second_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, kept: list[int]
) -> None:
    monkeypatch.setattr(training_log, "_MOST_STEPS", most)
    log = read(
        tmp_path,
        megatron_log([100] * 8)
        + megatron_line(9, 100).replace("lm loss: 9.91", "lm loss: nan ").replace("E+00 | loss", "| loss"),
    )
    (steps,) = log.runs[0].ranks
    assert (list(steps.number), log.dropped, steps.last, steps.seen) == (kept, 9 - len(kept), 9, 9)


@pytest.mark.parametrize(("most", "dropped"), [(1, 4), (2, 2), (3, 0)])
def test_so_many_ranks_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, dropped: int) -> None:
    monkeypatch.setattr(training_log, "_MOST_RANKS", most)
    text = "".join(f"[rank{rank}]: {megatron_line(step, 9)}" for step in (1, 2) for rank in (4, 5, 6))
    log = read(tmp_path, text)
    assert (numbers(log), log.dropped) == ([[[1, 2]] * most], dropped)
    assert [rank.rank for rank in log.runs[0].ranks] == [4, 5, 6][:most]
    said = megatron_line(1, 9) + "".join(MEMORY.format(rank, 1, 2) for rank in (1, 2, 3, 1))
    assert list(read(tmp_path, said).runs[0].memory) == [1, 2, 3][:most]
    # Without prefixes each is another rank's: those beyond the most are dropped.
    log = read(tmp_path, megatron_line(1, 9) * 3)
    assert (numbers(log), log.dropped) == ([[[1]] * most], 3 - most)


@pytest.mark.parametrize(("most", "dropped"), [(1, 2), (2, 1), (3, 0)])
def test_so_many_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, dropped: int) -> None:
    monkeypatch.setattr(training_log, "_MOST_RUNS", most)
    log = read(tmp_path, "".join(megatron_line(7, 9, total=total) for total in (10, 20, 30)))
    assert ([run.total for run in log.runs], log.dropped) == ([10, 20, 30][:most], dropped)


def test_so_many_damaged_lines_and_remarks_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_log, "_MOST_DAMAGED", 2)
    monkeypatch.setattr(training_log, "_MOST_REMARKS", 2)
    damaged, saved = "per_step_time: 5ms\n", "......Saving ckpt......\n"
    log = read(tmp_path, saved + megatron_line(1, 9) + damaged * 3 + saved * 2 + "Eval result: 1\n")
    assert (log.damaged, log.damaged_count) == ((3, 4), 3)
    assert [(one.kind, one.step, one.line) for one in log.runs[0].remarks] == [
        ("checkpoint", 1, 6),
        ("checkpoint", 1, 7),
    ]


@pytest.mark.parametrize(
    ("epochs", "found"),
    [
        ([(0, 1), (0, 2), (1, 1), (1, 2)], [[[1, 2, 3, 4]]]),
        ([(0, 1), (0, 2), (1, 3)], [[[1, 2, 3]]]),  # counters that go on
        ([(0, 1), (0, 2), (1, 2), (1, 3)], [[[1, 2, 4, 5]]]),
        ([(0, 1), (0, 2), (0, 3), (2, 1)], [[[1, 2, 3]], [[1]]]),
        ([(0, 1), (0, 2), (1, 1), (0, 1), (0, 2)], [[[1, 2, 3]], [[1, 2]]]),
    ],
)
def test_epochs_of_the_first_release_of_mindspeed(
    tmp_path: Path, epochs: list[tuple[int, int]], found: list[list[list[int]]]
) -> None:
    assert numbers(read(tmp_path, "".join(OLD.format(*one) for one in epochs))) == found


def test_epochs_of_the_static_graph(tmp_path: Path) -> None:
    text = "".join(static_line(step, 100, total=5, epoch=epoch) for epoch, step in ((0, 2), (1, 3), (3, 1)))
    assert numbers(read(tmp_path, text)) == [[[2, 3, 11]]]


def test_a_rate_belongs_to_the_step_before_it(tmp_path: Path) -> None:
    log = read(tmp_path, "| 9.5 samples/s/p\n" + static_line(1, 1000, rate=2.5) + "| 3.5 samples/s/p\n")
    assert (log.orphans, list(log.runs[0].ranks[0].rate)) == (1, [3.5])
    assert read(tmp_path, static_line(1, 1000)).orphans == 0


def test_memory_of_a_run_that_has_not_begun_is_of_the_next(tmp_path: Path) -> None:
    """A report after step 5 belongs to the run whose last step was at most 5; a report after step 1 to the next run."""
    text = MEMORY.format(0, 1, 2) + megatron_line(1, 9) + megatron_line(5, 9)
    text += MEMORY.format(1, 5, 3) + MEMORY.format(2, 1, 4) + megatron_line(1, 9) + MEMORY.format(3, 1, 5)
    one, other = read(tmp_path, text).runs
    assert ({rank: expected.steps for rank, expected in one.memory.items()}, list(other.memory)) == (
        {0: 1, 1: 5},
        [2, 3],
    )


def test_the_same_step_is_another_ranks_if_it_says_the_same(tmp_path: Path) -> None:
    first = megatron_log([100, 100, 100])
    # One step late at most, and with the same norm: a rank. Two steps late, or with another norm: a run.
    assert numbers(read(tmp_path, first + megatron_line(3, 90))) == [[[1, 2, 3], [3]]]
    assert numbers(read(tmp_path, first + megatron_line(2, 90))) == [[[1, 2, 3], [2]]]
    assert numbers(read(tmp_path, first + megatron_line(1, 90))) == [[[1, 2, 3]], [[1]]]
    assert numbers(read(tmp_path, first + megatron_line(3, 90, norm=7.0))) == [[[1, 2, 3]], [[3]]]
    assert [run.repeated for run in read(tmp_path, first + megatron_line(3, 90, norm=7.0)).runs] == [False, True]


def test_a_repeated_step_without_norm_and_loss_is_another_ranks(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("".join(f"step {step}: 100 ms\n" for step in (1, 2, 3, 3)), "utf-8")
    pattern = form_of_pattern(r"step (?P<step>\d+): (?P<time_ms>\d+) ms")
    assert numbers(read_training_log(tmp_path / "train.log", pattern=pattern)) == [[[1, 2, 3], [3]]]


def test_a_log_of_a_rank_and_where_it_ends(tmp_path: Path) -> None:
    expected: list[int] = []
    text = megatron_line(1, 9)
    path = tmp_path / "worker_12.log"
    path.write_text(text + "x", "utf-8")
    log = read_training_log(path, expected.append)
    assert (log.rank, log.cut_off, sum(expected)) == (12, True, len(text) + 1)
    assert not read(tmp_path, text).cut_off
    assert read(tmp_path, text).rank is None


def test_the_columns_of_a_baseline_are_as_long_as_its_times(tmp_path: Path) -> None:
    data = {"time info": [100, 200, 300], "loss": [9, 9, 9], "lm loss": [1.5], "throughput": [5, 6, 7, 8]}
    log = read(tmp_path, json.dumps(data), "rank_3.json")
    (steps,) = log.runs[0].ranks
    assert (list(steps.number), list(steps.line), list(steps.seconds)) == ([1, 2, 3], [0, 0, 0], [0.1, 0.2, 0.3])
    assert [math.isnan(loss) for loss in steps.loss] == [False, True, True]
    assert (steps.loss[0], list(steps.tflops)) == (1.5, [5, 6, 7])
    assert (log.runs[0].total, log.runs[0].repeated, log.rank) == (0, False, 3)
    bad = [True, "1", None, {}]
    log = read(tmp_path, json.dumps({"time": [1] * 4, "loss": bad}), "x.json")
    assert all(math.isnan(loss) for loss in log.runs[0].ranks[0].loss)
    assert not log.runs[0].ranks[0].troubles
    with pytest.raises(TraceError):  # lists in a log are no baseline
        read(tmp_path, json.dumps(data), "x.log")


@pytest.mark.parametrize("time", [0, 0.0, -1.0, 1e10, "1.5", None, True])
def test_a_step_takes_some_time_and_not_for_ever(time: object, tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps({"time info": [1200.0, time]}), encoding="utf-8")
    with pytest.raises(TraceError) as caught:
        read_baseline(file)
    assert caught.value.message.params == {"list": "time info", "place": 2}


@pytest.mark.parametrize(("size", "kept"), [(0, True), (1.5, True), (-1.0, False), (1e9, False), ("1", False)])
def test_memory_is_mebibytes_from_none_up(size: object, kept: bool, tmp_path: Path) -> None:  # noqa: FBT001 - parametrised
    file = tmp_path / "baseline.json"
    memory = [{"rank": 3, "allocated memory": size, "max allocated memory": 2.5}]
    file.write_text(json.dumps({"time": [1200.0], "memo info": memory}), encoding="utf-8")
    found = read_baseline(file).memory
    assert list(found) == ([3] if kept else [])
    if isinstance(size, int | float) and kept:
        assert (found[3].allocated, found[3].max_allocated) == (size * MIB, 2.5 * MIB)
