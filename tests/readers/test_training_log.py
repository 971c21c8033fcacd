"""The reader of training logs: five forms, ranks, runs, and files that are broken."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers.logged_steps import Form, parse_steps
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


class TestRanksAndRuns:
    def test_tail_of_several_files_tells_ranks(self, tmp_path: Path) -> None:
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
