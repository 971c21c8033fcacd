"""The reader of training logs: five forms, ranks, runs, and files that are broken."""

from __future__ import annotations

import json
import math
from statistics import median
from typing import TYPE_CHECKING

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers.lines import split_rank
from ms_tune.readers.logged_steps import Form, _parse_positive, parse_rate, parse_steps
from ms_tune.readers.training_log import read_training_log
from tests.readers.training_logs import PUBLIC, dynamic_line, megatron_line, megatron_log, static_line

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.readers.logged_steps import TrainingLog


def read(folder: Path, text: str, name: str = "train.log") -> TrainingLog:
    file = folder / name
    file.write_text(text, "utf-8")
    return read_training_log(file)


class TestForms:
    def test_static_graph(self, tmp_path: Path) -> None:
        log = read(tmp_path, "noise\n" + static_line(1, 9000) + "more noise\n" + static_line(2, 2000))
        (run,) = log.runs
        (steps,) = run.ranks
        assert (steps.form, list(steps.number), list(steps.seconds)) == (Form.STATIC, [1, 2], [9.0, 2.0])
        assert list(steps.line) == [2, 5]
        assert list(steps.rate) == [0.11111, 0.5]
        assert list(steps.tflops) == [11.111, 50.0]
        assert list(steps.loss) == [1.5, 1.5]
        assert (run.total, log.damaged_count, log.cut_off) == (100, 0, False)

    def test_epochs_are_added_up_and_are_no_new_runs(self, tmp_path: Path) -> None:
        text = "".join(static_line(step, 100, total=3, epoch=epoch) for epoch in (1, 2) for step in (1, 2, 3))
        (run,) = read(tmp_path, text).runs
        assert list(run.ranks[0].number) == [1, 2, 3, 4, 5, 6]

    def test_dynamic_graph(self, tmp_path: Path) -> None:
        (run,) = read(tmp_path, dynamic_line(1, 13570) + dynamic_line(2, 710, last=False)).runs
        (steps,) = run.ranks
        assert (steps.form, list(steps.seconds), list(steps.batch)) == (Form.DYNAMIC, [13.57, 0.71], [8, 8])
        assert steps.loss[0] == 2.5
        assert math.isnan(steps.loss[1])
        assert steps.tflops[1] == 70.42

    def test_first_release_of_mindspeed(self, tmp_path: Path) -> None:
        line = "Epoch: {}, Step: {}, Loss: [11.5], Finite_grads: True, Loss_scale: None, Learning_rate: 1e-05, Time: {:.2f} ms\n"
        text = "".join(line.format(epoch, step, 100 + step) for epoch in (0, 1) for step in (1, 2, 3))
        (run,) = read(tmp_path, text).runs
        assert list(run.ranks[0].number) == [1, 2, 3, 4, 5, 6]
        assert run.ranks[0].seconds[1] == 0.102
        assert run.ranks[0].loss[0] == 11.5

    def test_megatron(self, tmp_path: Path) -> None:
        log = read(tmp_path, megatron_line(1, 5000.5, tflops=10.5) + megatron_line(2, 500.5, tflops=105.0, batch=16))
        (steps,) = log.runs[0].ranks
        assert (steps.form, list(steps.seconds)) == (Form.MEGATRON, [5.0005, 0.5005])
        assert list(steps.tflops) == [10.5, 105.0]
        assert list(steps.batch) == [8, 16]
        assert list(steps.norm) == [1.0, 2.0]

    def test_what_mindspeed_counts(self) -> None:
        line = (
            " iteration 2/ 9 | elapsed time per iteration (ms): 100.0 | theoretical throughput per NPU (TFLOP/s/NPU): 90.5 | "
            "actual throughput per NPU (TFLOP/s/NPU): 80.5 | actual throughput per NPU with recompute (TFLOP/s/NPU): 99.5 | x: 1 |"
        )
        (step,) = parse_steps(line)
        assert step is not None
        assert (step.tflops, step.counted, step.hardware) == (90.5, 80.5, 99.5)

    def test_a_value_with_its_average_behind_it(self) -> None:
        line = (
            " iteration 2/ 9 | elapsed time per iteration (ms): 100.5/101.0 | compute per GPU (TFLOP/s/GPU): 90.5 (avg 90.4) |"
            " global batch size: 8 | lm loss: 1.5x | grad norm: / 3 |"
        )
        (step,) = parse_steps(line)
        assert step is not None
        assert (step.seconds, step.tflops, step.batch) == (0.1005, 90.5, 8)
        assert math.isnan(step.loss)
        assert math.isnan(step.norm)

    def test_memory_that_several_ranks_write_at_once_and_before_the_first_step(self, tmp_path: Path) -> None:
        def said(rank: int, size: int) -> str:
            return (
                f"[Rank {rank}] (after 1 iterations) memory (MB) | allocated: 1 | max allocated: {size}.5 | reserved: 2"
            )

        first = f"{said(4, 4)} | max reserved: 9.0\n{said(2, 2)} | max reserved: 9.0{said(6, 6)}\n\n"
        second = f"{said(4, 8)}\n"
        text = (
            first
            + "".join(megatron_line(step, 9.0) for step in (1, 2, 3))
            + second
            + megatron_line(1, 7.0)
            + said(0, 5)
        )
        one, other = read(tmp_path, text).runs
        assert {rank: memory.max_allocated / 2**20 for rank, memory in one.memory.items()} == {4: 4.5, 2: 2.5, 6: 6.5}
        assert {rank: memory.max_allocated / 2**20 for rank, memory in other.memory.items()} == {4: 8.5, 0: 5.5}
        assert (one.memory[2].max_reserved, one.memory[6].max_reserved) == (9 * 2**20, 0)

    def test_expected_figures_in_json(self, tmp_path: Path) -> None:
        rows = [{"rank": 3, "allocated memory": 1.5, "max allocated memory": 2.0}, {"rank": "x"}, 7]
        data = {"time info": [900.0, 100, 101.5], "lm loss": [3, 2], "memo info": rows}
        (run,) = read(tmp_path, json.dumps(data), "base.json").runs
        assert list(run.ranks[0].seconds) == [0.9, 0.1, 0.1015]
        assert list(run.ranks[0].loss)[:2] == [3.0, 2.0]
        assert run.memory[3].max_allocated == 2 * 1024**2


class TestRanksAndRuns:
    @pytest.mark.parametrize(
        "prefix",
        [
            *("[rank{}]: ", "[default{}]:", "{}: ", "[1,{}]<stdout>:", "msrun_log/worker_{}.log:"),
            *(
                "[20260101 10:00:00][rank-{}/64][INFO ] [trainer.py:1] : ",
                "[Rank {} | Local Rank 0] 2026-01-01 10:00:00 INFO ",
            ),
        ],
    )
    def test_prefixes_tell_ranks(self, tmp_path: Path, prefix: str) -> None:
        lines = [prefix.format(rank) + megatron_line(step, 100 + rank) for step in (1, 2, 3) for rank in (0, 5)]
        (run,) = read(tmp_path, "".join(lines)).runs
        assert [(rank.rank, list(rank.number)) for rank in run.ranks] == [(0, [1, 2, 3]), (5, [1, 2, 3])]

    def test_a_time_of_day_is_no_rank(self) -> None:
        assert split_rank("2026-01-01 10:00:00,000 - INFO")[0] is None
        assert split_rank("\x1b[32m[rank7]: x\x1b[0m") == (7, "x")

    def test_tail_of_several_files_tells_ranks(self, tmp_path: Path) -> None:
        text = "".join(
            f"==> log/worker_{rank}.log <==\n{dynamic_line(step, 100)}" for step in (1, 2) for rank in (0, 1)
        )
        (run,) = read(tmp_path, text).runs
        assert [(rank.rank, len(rank)) for rank in run.ranks] == [(0, 2), (1, 2)]

    def test_ranks_without_prefixes_say_the_same(self, tmp_path: Path) -> None:
        text = "".join(megatron_line(step, 100 + rank) for step in (1, 2, 3) for rank in range(3))
        (run,) = read(tmp_path, text).runs
        assert [len(rank) for rank in run.ranks] == [3, 3, 3]
        assert list(run.ranks[2].seconds) == [0.102] * 3

    def test_a_late_rank_is_no_new_run(self, tmp_path: Path) -> None:
        order = [(1, 0), (2, 0), (1, 1), (3, 0), (2, 1), (3, 1)]
        (run,) = read(tmp_path, "".join(megatron_line(step, 100) for step, _ in order)).runs
        assert [len(rank) for rank in run.ranks] == [3, 3]

    def test_a_counter_that_falls_begins_a_run(self, tmp_path: Path) -> None:
        first, second = megatron_log([500, 100, 101]), megatron_log([700, 200, 201, 202])
        runs = read(tmp_path, first + second).runs
        assert [len(run.ranks[0]) for run in runs] == [3, 4]
        assert [run.repeated for run in runs] == [False, False]

    def test_another_number_of_steps_begins_a_run(self, tmp_path: Path) -> None:
        text = megatron_log([500, 100]) + megatron_line(11, 52728.1, total=50000)
        assert [len(run.ranks[0]) for run in read(tmp_path, text).runs] == [2, 1]

    def test_the_same_step_with_another_norm_is_another_run(self, tmp_path: Path) -> None:
        text = static_line(1, 157149, norm=44.31) + static_line(1, 166756, norm=44.32) + static_line(2, 7637)
        runs = read(tmp_path, text).runs
        assert [list(run.ranks[0].number) for run in runs] == [[1], [1, 2]]
        assert [run.repeated for run in runs] == [False, True]

    def test_what_is_said_between_steps(self, tmp_path: Path) -> None:
        memory = "[Rank 4] (after 1 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | reserved: 3.0 | max reserved: 4.0\n"
        text = megatron_line(1, 100) + memory + "saving checkpoint at iteration       1 to x\n" + megatron_line(2, 100)
        (run,) = read(tmp_path, text + " validation loss at iteration 2 | lm loss value: 1\n").runs
        assert run.memory[4].max_reserved == 4 * 1024**2
        assert [(remark.kind, remark.step, remark.line) for remark in run.remarks] == [
            ("checkpoint", 1, 3),
            ("evaluation", 2, 5),
        ]


class TestBroken:
    def test_lines_that_run_into_each_other(self, tmp_path: Path) -> None:
        text = megatron_line(1, 100).rstrip("\n") + megatron_line(2, 200)
        assert list(read(tmp_path, text).runs[0].ranks[0].seconds) == [0.1, 0.2]

    def test_damaged_lines_are_counted_and_named(self, tmp_path: Path) -> None:
        text = (
            megatron_log([100, 100])
            + " iteration 3/ 100 | elapsed time per iteration (ms): nan |\nper_step_time: 5ms\n"
        )
        log = read(tmp_path, text)
        assert (log.damaged, log.damaged_count) == ((3, 4), 2)

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
            (f"{bare} {megatron_line(2, 100)}", [math.nan, 2]),
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

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="no such file"):
            read_training_log(tmp_path / "none.log")

    def test_absurd_counters_are_damaged(self, tmp_path: Path) -> None:
        text = megatron_log([100, 100]) + megatron_line(10**14, 100) + megatron_line(3, 1e12)
        log = read(tmp_path, text)
        assert log.damaged_count == 2
        assert len(log.runs[0].ranks[0]) == 2

    def test_a_rate_alone(self) -> None:
        assert parse_rate("| 0.12096 samples/s/p  1 day") == 0.12096
        assert math.isnan(parse_rate("samples/s/p"))


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
        # Sorted lines of two documents, each of which shows two steps: of one, the second step is not there (its rate is,
        # 0.12096 for 8,266 ms), so that three rates stand beside three steps of two runs.
        ("mindformers_docs_2steps.txt", [157.149, 7.637]),
        ("mindspeed-llm_docs.txt", [1.15641, 1.824945, 52.7281]),
        ("mindspeed-llm_baseline_llama2_tp2_pp4_vpp2_ptd.json", [5.63505]),
    ],
)
def test_public_logs(name: str, medians: list[float]) -> None:
    runs = read_training_log(PUBLIC / "logs" / name).runs
    times = [run.ranks[0].seconds for run in runs]
    assert [median(one[1:] or one) for one in times] == pytest.approx(medians)


def test_a_figure_is_a_number_from_none_up() -> None:
    assert [_parse_positive(text) for text in ("0", "0.0", "2.5")] == [0, 0, 2.5]
    assert all(math.isnan(_parse_positive(text)) for text in ("-1", "inf", "nan", "many"))
