"""Test figures of runs: computed by hand, compared, and refused if impossible."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random

import pytest

from ms_tune import measure_runs
from ms_tune.cli.main import main
from ms_tune.diagnostics import Severity
from ms_tune.errors import TraceError, UsageError
from ms_tune.metrics.figures import bound_median
from ms_tune.metrics.result import MetricsRequest, RunMetrics
from tests.readers.training_logs import PUBLIC, megatron_line, megatron_log, static_line


def run_of(folder: Path, text: str, request: MetricsRequest | None = None) -> RunMetrics:
    file = folder / "train.log"
    file.write_text(text, "utf-8")
    return measure_runs(file, request=request).runs[-1]


def ids(run: RunMetrics) -> list[str]:
    return [problem.id for problem in run.problems]


class TestFigures:
    def test_all_of_them(self, tmp_path: Path) -> None:
        times = [9000, 2000, 2010, 1990, 2000, 2020, 1980, 2000]
        text = megatron_log(times, total=8, batch=64, tflops=100.0)  # wrong on purpose: see below
        request = MetricsRequest(cards=16, tokens=4096, peak_tflops=400.0)
        run = run_of(tmp_path, text, request)
        assert run.times.median == 2.0
        assert run.times.mad == pytest.approx(0.01)
        assert (run.times.first, run.times.count, run.times.shortest, run.times.longest) == (9.0, 7, 1.98, 2.02)
        assert run.value("samples_per_second") == 32
        assert run.value("samples_per_second_per_card") == 2
        assert run.value("tokens_per_second") == 32 * 4096
        assert run.value("tokens_per_second_per_card") == 2 * 4096
        assert run.value("tflops_per_card") == 100
        assert run.value("mfu") == 0.25
        # The first step claims 100 TFLOP/s in 9 s, the others in 2 s: that is not the same work.
        assert "mixed-runs" in ids(run)

    def test_the_log_shows_the_rate_of_a_card(self, tmp_path: Path) -> None:
        text = "".join(static_line(step, 500, rate=4.0) for step in range(1, 9))
        run = run_of(tmp_path, text, MetricsRequest(tokens=1024))
        assert run.value("samples_per_second_per_card") == 4
        assert run.value("tokens_per_second_per_card") == 4096
        samples = run.figure("samples_per_second")
        assert samples is not None
        assert (samples.value, samples.missing) == (None, ("--gbs",))
        assert ids(run) == ["coarse-clock", "unfinished"]

    def test_tokens_that_the_log_counts(self, tmp_path: Path) -> None:
        text = "".join(megatron_line(step, 1000, total=9, tokens=32768 * step) for step in range(1, 10))
        run = run_of(tmp_path, text, MetricsRequest(cards=8))
        assert run.value("tokens_per_second") == 32768
        assert run.value("tokens_per_second_per_card") == 4096
        assert ids(run) == []

    def test_what_is_missing_is_named(self, tmp_path: Path) -> None:
        run = run_of(tmp_path, megatron_log([900, 100, 100]))
        assert {one.name: one.missing for one in run.figures if one.value is None} == {
            "samples_per_second_per_card": ("--cards",),
            "tokens_per_second": ("--seq",),
            "tokens_per_second_per_card": ("--seq", "--cards"),
            "tflops_per_card": ("--config",),
            "mfu": ("--config", "--chip"),
        }

    def test_a_slow_step_and_what_it_coincides_with(self, tmp_path: Path) -> None:
        lines = [megatron_line(step, 5000 if step == 6 else 1000, total=12) for step in range(1, 13)]
        lines.insert(5, "saving checkpoint at iteration 5 to x\n")
        (slow,) = run_of(tmp_path, "".join(lines)).times.outliers
        assert (slow.step, slow.line, slow.seconds, slow.beside) == (6, 7, 5.0, ("checkpoint",))

    def test_a_unit_of_a_coarse_clock_is_no_slow_step(self, tmp_path: Path) -> None:
        times = [900, *[7] * 9, 8, *[7] * 9, 9]
        lines = [static_line(step, milliseconds) for step, milliseconds in enumerate(times, start=1)]
        assert [one.step for one in run_of(tmp_path, "".join(lines)).times.outliers] == [21]

    def test_a_chip_by_its_name(self, tmp_path: Path) -> None:
        text = megatron_log([1000] * 8, total=8, tflops=200)
        run = run_of(tmp_path, text, MetricsRequest(chip="Ascend910B2"))
        assert run.value("mfu") == pytest.approx(200 / 353.89)
        for name in ("H100", "NVIDIA H100 SXM5", "h100-80gb"):
            assert run_of(tmp_path, text, MetricsRequest(chip=name)).value("mfu") == pytest.approx(200 / 989.4)
        with pytest.raises(UsageError, match="'910X' is unknown; known chips: 910B1"):
            run_of(tmp_path, text, MetricsRequest(chip="910X"))

    @pytest.mark.parametrize("end", ["", ".gz"])
    def test_ranks_of_a_folder(self, tmp_path: Path, end: str) -> None:
        for rank in range(3):
            text = megatron_log([900, *[100 + 10 * rank] * 7], total=8).encode()
            (tmp_path / f"worker_{rank}.log{end}").write_bytes(gzip.compress(text) if end else text)
        (run,) = measure_runs(tmp_path).runs
        assert (run.ranks.count, run.ranks.fastest_median, run.ranks.slowest_median, run.ranks.slowest) == (
            3,
            0.1,
            0.12,
            2,
        )

    def test_only_the_last_rank_of_megatron_writes_steps(self, tmp_path: Path) -> None:
        for rank in range(3):
            (tmp_path / f"worker_{rank}.log").write_text("building the model\n", "utf-8")
        with pytest.raises(TraceError, match=r"worker_0\.log: no line of this log"):
            measure_runs(tmp_path)
        (tmp_path / "worker_3.log").write_text(megatron_log([900, 100, 100]), "utf-8")
        (run,) = measure_runs(tmp_path).runs
        assert (run.ranks.count, run.times.median) == (1, 0.1)


class TestJudgement:
    @pytest.mark.parametrize(("tflops", "word"), [(29, "low"), (30, "typical"), (50, "typical"), (51, "high")])
    def test_the_mfu_is_compared_with_published_runs(self, tmp_path: Path, tflops: float, word: str) -> None:
        run = run_of(tmp_path, megatron_log([1000] * 8, total=8, tflops=tflops), MetricsRequest(peak_tflops=100))
        (judged,) = run.judgement
        assert str(judged) == f"{word} (published large runs: 30% to 50%)"

    def test_what_lowers_it_is_named_with_figures(self, tmp_path: Path) -> None:
        config = Path(__file__).parents[2] / "examples" / "out_of_memory.yaml"
        request = MetricsRequest(config=config, cards=8, batch=8, peak_tflops=354)
        (judged, bubble) = run_of(tmp_path, megatron_log([3000] * 8, total=8), request).judgement
        assert "low" in str(judged)
        # Four stages, 8 micro-batches: 3 / (8 + 3); with 32 of them 3 / (32 + 3).
        assert str(bubble) == "pipeline bubble at least 27%: micro_batch_num 32 instead of 8 gives 9%"


class TestDoubts:
    def test_more_than_the_peak_is_impossible(self, tmp_path: Path) -> None:
        run = run_of(tmp_path, megatron_log([1000] * 8, total=8, tflops=1528.6), MetricsRequest(chip="910B2"))
        assert ids(run) == ["impossible-mfu"]
        assert run.value("mfu") is None
        assert "above the peak of 353.89" in str(run.problems[0].message)

    def test_without_a_chip_more_than_any_has_is(self, tmp_path: Path) -> None:
        run = run_of(tmp_path, megatron_log([1000] * 8, total=8, tflops=380))
        assert ids(run) == ["impossible-mfu"]
        assert {one.name: one.value for one in run.figures}["tflops_per_card"] is None
        assert ids(run_of(tmp_path, megatron_log([1000] * 8, total=8, tflops=370))) == []

    def test_a_log_of_cuda_is_held_to_gpus(self, tmp_path: Path) -> None:
        steps = megatron_log([1000] * 8, total=8, tflops=480)
        assert ids(run_of(tmp_path, "distributed_backend ... nccl\n" + steps)) == []
        assert ids(run_of(tmp_path, "distributed_backend ... nccl, torch_npu\n" + steps)) == ["impossible-mfu"]

    def test_legacy_models_log_all_cards(self, tmp_path: Path) -> None:
        request = MetricsRequest(cards=8, chip="910B2")
        text = "".join(static_line(step, 1000, total=8, tflops=1600) for step in range(1, 9))
        problem = next(one for one in run_of(tmp_path, text, request).problems if one.id == "impossible-mfu")
        assert "divided by the devices it is 200" in str(problem.help)
        (problem,) = run_of(tmp_path, megatron_log([1000] * 8, total=8, tflops=1600), request).problems
        assert "divided" not in str(problem.help)  # MindFormers' own

    def test_work_that_changes(self, tmp_path: Path) -> None:
        lines = [megatron_line(step, 1000, total=10, tflops=100 if step < 6 else 150) for step in range(1, 11)]
        (problem,) = run_of(tmp_path, "".join(lines)).problems
        assert (problem.id, problem.severity, problem.location.line) == ("mixed-runs", Severity.ERROR, 6)
        assert "at least 49.9%" in str(problem.message)

    def test_work_that_changes_with_the_batch(self, tmp_path: Path) -> None:
        lines = [
            megatron_line(step, 1000, total=10, tflops=100 if step < 6 else 200, batch=8 if step < 6 else 16)
            for step in range(1, 11)
        ]
        run = run_of(tmp_path, "".join(lines))
        assert ids(run) == ["sizes-changed", "flops-changed"]
        assert run.value("samples_per_second") is None

    def test_digits_are_no_change_of_work(self, tmp_path: Path) -> None:
        random = Random(7)  # noqa: S311 - the same each time
        lines = []
        for step in range(1, 51):
            milliseconds = round(random.uniform(150, 250), 1)
            lines.append(megatron_line(step, milliseconds, total=50, tflops=round(1000 / milliseconds, 1)))
        assert ids(run_of(tmp_path, "".join(lines))) == []

    def test_a_loss_of_infinity_is_no_number(self, tmp_path: Path) -> None:
        line = megatron_line(2, 100).replace("lm loss: 9.980000E+00", "lm loss: inf")
        run = run_of(tmp_path, megatron_line(1, 100) + line)
        assert run.curve.loss == (9.99, None)
        assert run.losses == (9.99, 9.99)

    def test_few_steps(self, tmp_path: Path) -> None:
        assert ids(run_of(tmp_path, megatron_log([1000], total=1))) == ["too-few-steps"]
        assert ids(run_of(tmp_path, megatron_log([1000] * 6, total=6))) == ["few-steps"]
        assert run_of(tmp_path, megatron_log([1000], total=1)).times.median is None

    def test_lines_that_represent_several_steps(self, tmp_path: Path) -> None:
        text = "".join(megatron_line(step, 1000, total=100) for step in range(10, 101, 10))
        run = run_of(tmp_path, text)
        assert ids(run) == ["averaged-steps"]
        assert run.times.averaged_over == 10

    def test_doubts_about_files(self, tmp_path: Path) -> None:
        file = tmp_path / "x.log"
        file.write_text(megatron_log([1000] * 8) * 2 + megatron_line(9, 1000)[:90], "utf-8")
        assert [problem.id for problem in measure_runs(file).problems] == ["several-runs", "truncated"]


class TestComparison:
    def test_ratio_and_linearity(self, tmp_path: Path) -> None:
        one, many = tmp_path / "one.log", tmp_path / "many.log"
        one.write_text(megatron_log([9000, *[1000] * 9], total=10, batch=8), "utf-8")
        many.write_text(megatron_log([9000, *[1100] * 9], total=10, batch=64), "utf-8")
        request = MetricsRequest(cards=64, baseline_cards=8)
        found = measure_runs(many, request=request, baseline=one).comparison
        assert found is not None
        assert found.ratio == pytest.approx(1.1)
        assert found.low == found.high == pytest.approx(1.1)
        assert found.is_significant
        assert found.linearity is not None
        assert found.guide is not None
        assert found.linearity.value == pytest.approx(1 / 1.1)
        # The guide's formula is too small by the cards of the baseline.
        assert found.guide.value == pytest.approx(1 / 1.1 / 8)

    def test_too_few_steps_show_nothing(self, tmp_path: Path) -> None:
        one, other = tmp_path / "one.log", tmp_path / "other.log"
        one.write_text(megatron_log([900, 100, 101, 102]), "utf-8")
        other.write_text(megatron_log([900, 200, 201, 202]), "utf-8")
        found = measure_runs(other, baseline=one).comparison
        assert found is not None
        assert (found.low, found.is_significant) == (None, False)
        assert found.ratio == pytest.approx(201 / 101)

    def test_noise_is_no_difference(self, tmp_path: Path) -> None:
        random = Random(3)  # noqa: S311 - the same each time
        files = [tmp_path / name for name in ("a.log", "b.log")]
        for file in files:
            file.write_text(megatron_log([900, *(random.uniform(90, 110) for _ in range(40))], total=41), "utf-8")
        found = measure_runs(files[0], baseline=files[1]).comparison
        assert found is not None
        assert found.low is not None
        assert not found.is_significant


class TestInterval:
    def test_of_nine(self) -> None:
        values = [float(value) for value in range(9)]
        assert bound_median(values, 0.95) == (1, 7)  # 1 - 2 x (1 + 9) / 512 = 96.1 %
        assert bound_median(values, 0.975) == (0, 8)
        assert bound_median(values[:5], 0.95) is None
        assert bound_median([], 0.95) is None


class TestCommand:
    def test_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "x.log"
        file.write_text(megatron_log([9000, *[1000] * 9], total=10, tflops=900), "utf-8")
        assert main(["metrics", str(file), "--baseline", str(file), "--json"]) == 1
        found = json.loads(capsys.readouterr().out)
        (run,) = found["runs"]
        assert (run["steps"], run["step_seconds"]["median"], run["step_seconds"]["first"]) == (10, 1.0, 9.0)
        assert "impossible-mfu" in [problem["id"] for problem in run["problems"]]
        assert run["mfu"] is None
        assert (found["comparison"]["ratio"], found["comparison"]["interval"]) == (1.0, [1.0, 1.0])

    @pytest.mark.parametrize("language", ["en", "zh"])
    def test_text(self, tmp_path: Path, language: str, capsys: pytest.CaptureFixture[str]) -> None:
        log = tmp_path / "worker_3.log"
        remarks = "saving checkpoint at iteration 9 to x\n"
        log.write_text(
            megatron_log([9000, *[1000] * 8, 9000], total=10).replace(" [2026", remarks + " [2026", 1), "utf-8"
        )
        command = ["metrics", str(log), "--cards", "8", "--seq", "64", "--lang", language]
        assert main([*command, "-v"]) == 0
        shown = capsys.readouterr().out
        for text in ("1.0000 s", "9.0000 s", "--chip", "9.0x" if language == "en" else "9.0 倍"):
            assert text in shown
        assert main(command) == 0
        short = capsys.readouterr().out.splitlines()
        assert len(short) == 4
        assert short[0].startswith("metrics: healthy. worker_3.log" if language == "en" else "指标：正常。worker_3.log")
        assert "--chip" in short[-1]
        assert main([*command, "-q"]) == 0
        assert capsys.readouterr().out.splitlines() == short[:1]

    @pytest.mark.parametrize("language", ["en", "zh"])
    def test_page(self, tmp_path: Path, language: str) -> None:
        log, page = tmp_path / "<b>.log", tmp_path / "x.html"
        log.write_text(megatron_log([9000, *[1000 + one for one in range(9)]], total=10, tflops=900), "utf-8")
        arguments = ["metrics", str(log), "--baseline", str(log), "--html", str(page), "--lang", language, "--json"]
        assert main(arguments) == 1
        text = page.read_text("utf-8")
        assert text.count("<polyline") == 2 * 4  # in each language
        assert "default-src &#x27;none&#x27;" in text
        assert "<script" not in text
        assert "<b>" not in text
        assert "[impossible-mfu]" in text
        assert main(arguments) == 2


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public logs are not here")
@pytest.mark.parametrize(("test", "ratio"), [("qwen_sft", 2.00), ("ds3_sft", 1.44), ("ds3_pretrain", 1.17)])
def test_determinism_costs_what_it_did(test: str, ratio: float) -> None:
    names = [
        PUBLIC / "logs" / f"mindspeed-core-ms_feature-0.2_test_{test}_pta_{kind}.txt" for kind in ("det", "non_det")
    ]
    found = measure_runs(names[0], baseline=names[1]).comparison
    assert found is not None
    assert round(found.ratio, 2) == ratio
    assert found.is_significant
