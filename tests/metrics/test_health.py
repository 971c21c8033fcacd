"""Test what is said of a run's health, with runs whose faults are known, and the trend against SciPy's."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

import pytest

from ms_tune import measure_runs
from ms_tune.cli.main import main
from ms_tune.diagnostics import Severity
from ms_tune.metrics.health import are_dependent, find_trend
from ms_tune.metrics.result import MetricsRequest
from tests.readers.training_logs import dynamic_line, megatron_line, megatron_log, static_line

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.metrics.result import MetricsReport


def report_of(folder: Path, text: str, name: str = "train.log") -> MetricsReport:
    (folder / name).write_text(text, "utf-8")
    return measure_runs(folder / name)


def faults(folder: Path, text: str) -> dict[str, Diagnostic]:
    return {one.id: one for one in report_of(folder, text).runs[-1].health}


def losses(values: list[str], *, skipped: int = 0) -> str:
    """Return Megatron's lines with these losses; without one where it is empty."""
    text = ""
    for step, value in enumerate(values, start=1):
        line = megatron_line(step, 100, total=1000, norm=1.0)
        begin, end = line.index("lm loss: "), line.index("loss scale")
        text += line[:begin] + (f"lm loss: {value} | " if value else "") + line[end:]
    return text.replace("skipped iterations:   0", f"skipped iterations:   {skipped}")


class TestLosses:
    @pytest.mark.parametrize("lost", ["nan", "", "inf"])
    def test_a_run_that_ends_without_losses_is_broken(self, tmp_path: Path, lost: str) -> None:
        """Megatron leaves out a loss that is NaN: `avg > 0.0` is false."""
        found = faults(tmp_path, losses(["2.5"] * 30 + [lost] * 10))
        problem = found["infinite-loss" if lost == "inf" else "nan-loss"]
        assert (problem.severity, problem.location.line) == (Severity.ERROR, 31)
        assert "in the last 10 logged steps, up to step 40" in str(problem.message)

    def test_a_loss_that_recovers_is_a_warning(self, tmp_path: Path) -> None:
        problem = faults(tmp_path, losses(["2.5"] * 30 + ["nan"] + ["2.5"] * 9))["nan-loss"]
        assert (problem.severity, problem.message.params["count"]) == (Severity.WARNING, 1)

    def test_skipped_steps_have_no_loss_and_are_no_nan(self, tmp_path: Path) -> None:
        text = losses(["2.5"] * 30) + losses(["2.5"] * 30 + [""] * 2, skipped=1)[len(losses(["2.5"] * 30)) :]
        problem = faults(tmp_path, text)
        assert list(problem) == ["skipped-steps"]
        assert (problem["skipped-steps"].severity, problem["skipped-steps"].message.params["count"]) == (
            Severity.WARNING,
            2,
        )

    def test_fp16_finds_its_loss_scale_by_skipping(self, tmp_path: Path) -> None:
        text = losses([""] * 10, skipped=1) + losses(["2.5"] * 60)[len(losses(["2.5"] * 10)) :]
        assert faults(tmp_path, text)["skipped-steps"].severity is Severity.INFO

    def test_a_loss_that_explodes_among_few(self, tmp_path: Path) -> None:
        assert list(faults(tmp_path, losses(["11.67", "8.84", "8712.6", "15806.4"]))) == ["loss-spikes"]

    def test_an_overflow_of_mindformers(self, tmp_path: Path) -> None:
        good, bad = (
            [static_line(step, 9).replace("overflow cond: False", f"overflow cond: {over}") for step in (1, 2, 3)]
            for over in (False, True)
        )
        assert faults(tmp_path, "".join(good[:1] + bad[1:]))["overflow-steps"].severity is Severity.ERROR
        assert faults(tmp_path, "".join(good[:2] + bad[2:]))["overflow-steps"].severity is Severity.WARNING
        many = "".join(static_line(step, 9) for step in range(1, 30))
        assert "overflow-steps" not in faults(tmp_path, many)

    @pytest.mark.parametrize(
        "event", ["[deepspeed] OVERFLOW! Rank 0 Skipping step.", "[Rank 0] Overflow detected. Skipping step."]
    )
    @pytest.mark.parametrize("bar", ["", "  0%|    | {step}/999 [00:19<37:53:00,  2.14s/it]"])
    def test_an_overflow_behind_a_bar_and_beside_a_slow_step(
        self, tmp_path: Path, event: str, bar: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = "".join(
            f"{bar.format(step=step)}{event if step in (5, 20) else ''}\n"
            f"[2026-01-01 10:{step:02d}:{30 if step in (5, 20) else step % 3:02d},000] [INFO] [timer.py:157:stop] 0/{step}, SamplesPerSec=1.5\n"
            for step in range(1, 40)
        )
        assert faults(tmp_path, text)["overflow-steps"].message.params["count"] == 2
        assert main(["metrics", str(tmp_path / "train.log"), "-v", "--lang", "en"]) in (0, 1)
        assert "an overflow" in capsys.readouterr().out

    def test_a_loss_that_becomes_zero(self, tmp_path: Path) -> None:
        assert list(faults(tmp_path, losses(["2.5"] * 9 + ["0.0"] * 3))) == ["zero-loss"]
        assert faults(tmp_path, losses(["0.0"] * 9)) == {}

    def test_a_spike_and_a_loss_that_stays_high(self, tmp_path: Path) -> None:
        random = Random(5)  # noqa: S311 - the same each time
        calm = [f"{4 - step / 40 + random.gauss(0, 0.02):.4f}" for step in range(60)]
        assert faults(tmp_path, losses(calm)) == {}
        found = faults(tmp_path, losses([*calm[:40], "9.0", *calm[41:]]))
        assert list(found) == ["loss-spikes"]
        assert "to 9 at step 41" in str(found["loss-spikes"].message)
        gone = faults(tmp_path, losses([*calm, *["7.5"] * 20]))
        assert gone["loss-diverged"].severity is Severity.ERROR


class TestDrifts:
    @pytest.mark.slow
    def test_kendalls_tau_is_scipys(self) -> None:
        stats = pytest.importorskip("scipy.stats")
        random = Random(2)  # noqa: S311 - the same each time
        for count in (8, 20, 150, 300):
            for slope in (0.0, 0.01, 0.3):
                values = [round(slope * place + random.gauss(5, 1), 1) for place in range(count)]
                found, expected = find_trend(values), stats.kendalltau(range(count), values, method="asymptotic")
                assert found is not None
                assert (found.tau, found.p) == pytest.approx((expected.statistic, expected.pvalue), abs=1e-12)

    def test_a_step_time_that_grows(self, tmp_path: Path) -> None:
        run = report_of(tmp_path, megatron_log([1000 + 20 * step for step in range(60)], total=60)).runs[0]
        (problem,) = run.health
        assert (problem.id, problem.severity) == ("step-time-grows", Severity.ERROR)
        assert "from 1 to 2.18 s (2.2x): Kendall's tau 1.00, p < 1e-6" in str(problem.message)
        assert (run.times.low, run.times.compiles) == (None, False)  # an interval would assume that steps are alike

    def test_noise_drifts_seldom_and_has_an_interval(self, tmp_path: Path) -> None:
        random = Random(4)  # noqa: S311 - the same each time
        drifting = 0
        for _ in range(40):
            log = megatron_log([9000, *(random.uniform(900, 1100) for _ in range(50))], total=51)
            run = report_of(tmp_path, log).runs[0]
            drifting += run.times.low is None
        assert drifting <= 2  # one in a hundred by chance

    def test_slow_and_fast_steps_in_long_runs_have_no_interval(self, tmp_path: Path) -> None:
        times = [9000, *([100.0] * 20 + [110.0] * 20) * 5]
        run = report_of(tmp_path, megatron_log(times, total=201)).runs[0]
        assert (run.times.low, [one.id for one in run.health]) == (None, ["dependent-steps"])
        assert not are_dependent([100, 110] * 50)

    def test_memory_that_grows(self, tmp_path: Path) -> None:
        head = "step:{} - perf/time_per_step:1.5 - perf/max_memory_allocated_gb:{}\n"
        grows = "".join(head.format(step, 40 + step / 10) for step in range(1, 61))
        assert "from 41.60 GiB at step 16 to 46.00 GiB at step 60" in str(
            faults(tmp_path, grows)["memory-grows"].message
        )
        assert faults(tmp_path, "".join(head.format(step, 40 + min(step, 9)) for step in range(1, 61))) == {}

    def test_in_reinforcement_learning_a_growing_step_is_no_fault(self, tmp_path: Path) -> None:
        line = "step:{} - actor/pg_loss:{} - timing_s/step:{}\n"
        text = "".join(line.format(step, 0.001 * step, 100 + 5 * step) for step in range(1, 61))
        assert [one.severity for one in report_of(tmp_path, text).runs[0].health] == [Severity.WARNING]


class TestRuns:
    def test_a_log_that_begins_in_the_middle_has_no_compilation(self, tmp_path: Path) -> None:
        text = "".join(megatron_line(step, 500 if step == 4001 else 1000) for step in range(4001, 4010))
        run = report_of(tmp_path, text).runs[0]
        assert "begins-late" in [one.id for one in run.problems]
        assert not run.times.compiles

    def test_a_restart_and_the_steps_that_ran_again(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        broken = losses(["2.5"] * 30 + ["nan"] * 5)
        again = "".join(megatron_line(step, 100, total=1000) for step in range(21, 60))
        report = report_of(tmp_path, broken + again)
        (restart,) = report.problems
        assert (restart.id, restart.message.params["again"], restart.location.line) == ("restarted", 15, 36)
        # The run that broke was continued: it is past.
        assert main(["metrics", str(tmp_path / "train.log")]) == 0
        assert capsys.readouterr().out.startswith("metrics: suspicious: train.log: restarts: 1")
        assert main(["metrics", str(report_of(tmp_path, broken).runs[0].source)]) == 1

    def test_the_last_stage_knows_the_loss(self, tmp_path: Path) -> None:
        for rank in (0, 1):
            lines = [dynamic_line(step, 100, last=rank == 1) for step in range(1, 11 - rank)]
            text = "".join(lines[:6]) + "".join(lines[6:]).replace(f"{2.5:10.6f}", "       nan")
            (tmp_path / f"worker_{rank}.log").write_text(text, "utf-8")
        (run,) = measure_runs(tmp_path).runs
        assert (run.steps, run.is_broken, run.health[0].location.line) == (10, True, 7)

    def test_a_comparison_with_a_broken_run_says_so(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        good, bad = tmp_path / "good.log", tmp_path / "bad.log"
        good.write_text(losses(["2.5"] * 40), "utf-8")
        bad.write_text(losses(["2.5"] * 30 + ["nan"] * 10), "utf-8")
        assert main(["metrics", str(good), "--baseline", str(bad)]) == 1
        assert "not meaningful: bad.log is broken" in capsys.readouterr().out
        assert main(["metrics", str(bad), "--json"]) == 1
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        assert run["health"] == {"state": "broken", "findings": ["nan-loss"]}

    def test_a_time_that_is_not_logged_is_null(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        log = tmp_path / "x.log"
        log.write_text("".join(f"{{'loss': 2.5, 'epoch': {step}}}\n" for step in range(9)), "utf-8")
        assert main(["metrics", str(log), "--json", "--html", str(tmp_path / "x.html")]) == 0
        (run,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["runs"]
        assert (run["step_seconds"]["first"], run["curve"]["seconds"]) == (None, [None] * 9)

    def test_linearity_without_batch_sizes_says_why(self, tmp_path: Path) -> None:
        log = tmp_path / "x.log"
        log.write_text("".join(f"iter {step}: loss 2.5, time 9.00ms, mfu 1.00%\n" for step in range(9)), "utf-8")
        report = measure_runs(log, baseline=log, request=MetricsRequest(cards=8, baseline_cards=1))
        (problem,) = report.problems
        assert str(problem.message).endswith("it requires --gbs, --baseline-gbs")
