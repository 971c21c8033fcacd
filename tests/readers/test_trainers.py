"""Test the lines of each trainer: written by its own format, with the traps that its figures have."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune import measure_runs
from ms_tune.cli.main import main
from ms_tune.errors import TraceError
from ms_tune.readers import training_log
from ms_tune.readers.step_lines import step_forms
from ms_tune.readers.training_log import read_training_log
from tests.dryrun.machine import needs_mindformers
from tests.files import read_data

if TYPE_CHECKING:
    from ms_tune.readers.logged_steps import RankSteps

TIMES = [9.5, *(2.0 + (step * 7 % 5) / 10 for step in range(24))]  # seconds; the first one compiles
LOSSES = [round(4 - step / 20, 4) for step in range(25)]
CLOCK = [sum(TIMES[: step + 1]) for step in range(25)]


def stamp(seconds: float) -> str:
    """Return a time of day with milliseconds."""
    whole = timedelta(seconds=round(seconds, 3) + 36000)
    return f"2026-01-01 {str(whole)[:8]},{whole.microseconds // 1000:03d}"


def _places(step: int, first: int) -> dict[str, Any]:
    """Return what the lines of a step may name."""
    clock, loss, seconds = CLOCK[step], LOSSES[step], TIMES[step]
    whole = int(clock)
    return {
        "number": step + first,
        "before": 8 * step,
        "samples": 8 * step + 8,
        "tokens": 4096 * (step + 1),
        "loss": loss,
        "seconds": seconds,
        "ms": seconds * 1000,
        "whole_ms": int(seconds * 1000),
        "speed": 8 / seconds,
        "mean": clock / (step + 1),
        "mean_speed": 8 * (step + 1) / clock,
        "elapsed": timedelta(seconds=whole),
        "rate": round((step + 1) / clock, 6),
        "pace": round(clock / (step + 1), 6),
        "whole": whole,
        "minutes": whole // 60,
        "rest": whole % 60,
        "skipped": min(step, 3),
        "mfu": -100.0 if step < 5 else 35.25,
        "stamp": stamp(clock),
    }


TRAINERS: dict[str, dict[str, Any]] = read_data("trainer_lines.yaml")


def written(trainer: str, step: int) -> str:
    """Return what a trainer writes for a step."""
    facts = TRAINERS[trainer]
    line: str = facts["line"]
    return line.format_map(_places(step, facts.get("first", 1)))


def log_of(trainer: str, steps: int = 25) -> str:
    """Return a trainer's log."""
    return "".join(written(trainer, step) for step in range(steps))


def read(folder: Path, text: str, name: str = "train.log") -> RankSteps:
    (folder / name).write_text(text, "utf-8")
    (run,) = read_training_log(folder / name).runs
    (steps,) = run.ranks
    return steps


@pytest.mark.parametrize("trainer", TRAINERS)
def test_counters_times_and_losses_of_a_trainer(tmp_path: Path, trainer: str) -> None:
    steps, facts = read(tmp_path, log_of(trainer)), TRAINERS[trainer]
    assert (steps.form.name, len(steps), steps.troubles.keys() - {"skipped"}) == (facts["form"], 25, set())
    first = facts.get("first", 1)
    assert list(steps.number) == [*range(first, first + 25)]
    assert list(steps.seconds)[1:] == pytest.approx(TIMES[1:], abs=facts["exact"])
    if trainer != "deepspeed":
        assert list(steps.loss) == pytest.approx(LOSSES, abs=0.0006)


def test_all_forms_have_a_trainer_here() -> None:
    additions = {
        "mindformers-rate",
        "mindspore-epoch",
        "progress",
        "train-runtime",
        "minimind",
        "maxtext",
        "olmo",
        "fms-fsdp",
    }
    here = {facts["form"] for facts in TRAINERS.values()} | additions | {"mindformers-pynative", "mindspeed-ms"}
    assert {form.name for form in step_forms()} == here


_CALLBACKS = """
from types import SimpleNamespace
import numpy
import mindspore
from mindspore.train.callback import LossMonitor, TimeMonitor
from mindformers.core.callback import callback
from mindformers.pynative.callback import loss_callback

class Parameters(dict):
    __getattr__ = dict.__getitem__

loss, time = LossMonitor(), TimeMonitor(data_size=2)
for epoch in (1, 2):
    of = Parameters(cur_epoch_num=epoch, batch_num=2, dataset_sink_mode=False, mode="train")
    context = SimpleNamespace(original_args=lambda: of)
    time.epoch_begin(context)
    for step in (1, 2):
        of |= {"cur_step_num": epoch * 2 + step - 2, "net_outputs": mindspore.Tensor(2.5 - epoch / 4, mindspore.float32)}
        loss.step_end(context)
    time.epoch_end(context)
print("MindFormers")
shown = SimpleNamespace(info=lambda text, *more: print(text % more if more else text), warning=print)
callback.logger = loss_callback.logger = shown
monitor = SimpleNamespace(learning_rate=1e-5, mf_calculated=True, full_model_flops=8e14, device_num=8, tensor_writer=None,
                          print_separate_loss=False, print_warning_flag=False, global_batch_size=8)
sizes = (1, 2, 0.5, 3, 100, 2.345, 1234.5, True, 65536.0, 10, 3.0, numpy.array([1.5]), None, None, None, None)
callback.MFLossMonitor.print_output_info(monitor, Parameters(dataset_sink_mode=True), *sizes)
print("dynamic graph")
for step in (3, 4):
    info = dict(cur_step=step, max_steps=100, loss=2.345, step_time=1234, learning_rate=1e-5, throughput=99.5)
    loss_callback.LossCallback._print_log(monitor, info)
"""


@pytest.mark.slow
@pytest.mark.mindspore
@needs_mindformers
def test_the_callbacks_of_mindspore_and_mindformers_themselves(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _CALLBACKS]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=True, timeout=120
    )
    shown, _, rest = done.stdout.partition("MindFormers\n")
    steps = read(tmp_path, shown)
    assert (steps.form.name, list(steps.number), list(steps.loss)) == (
        "mindspore",
        [1, 2, 3, 4],
        [2.25, 2.25, 2.0, 2.0],
    )
    assert len({*steps.seconds}) == 2
    static, _, dynamic = rest.partition("dynamic graph\n")
    steps = read(tmp_path, static)
    assert (steps.form.name, steps.seconds[0], steps.loss[0], steps.tflops[0]) == ("mindformers", 1.234, 2.345, 648.036)
    assert (steps.rate[0], steps.troubles["overflow"].count) == (0.5, 1)
    steps = read(tmp_path, dynamic)  # without a norm, which is printed as NaN
    assert (steps.form.name, len(steps), steps.tflops[0], steps.troubles) == ("mindformers-pynative", 2, 99.5, {})


class TestTraps:
    def test_mindspore_stops_at_a_loss_that_is_nan(self, tmp_path: Path) -> None:
        text = log_of("mindspore", 9) + "ValueError: In epoch: 1 step: 10, loss is NAN or INF, training process\n"
        assert read(tmp_path, text).troubles["nan"].lasting == 1

    def test_nanogpts_share_is_of_an_a100(self, tmp_path: Path) -> None:
        steps = read(tmp_path, log_of("nanogpt"))
        assert steps.tflops[24] == pytest.approx(0.3525 * 312)
        assert math.isnan(steps.tflops[0])

    def test_deepspeeds_skipped_steps_are_a_sum(self, tmp_path: Path) -> None:
        assert read(tmp_path, log_of("deepspeed")).troubles["skipped"].count == 3

    def test_a_nan_norm_of_mindformers_dynamic_graph_is_none(self, tmp_path: Path) -> None:
        line = "{{ step:[{:5d}/   10], loss:   2.500000, per_step_time:    100ms, grad_norm: NaN }}\n"
        assert read(tmp_path, "".join(map(line.format, range(1, 9)))).troubles == {}

    def test_a_hidden_nan_of_hugging_face(self, tmp_path: Path) -> None:
        """Its loss is 0.0 where all are NaN; the norm shows it."""
        text = log_of("hugging_face", 12)
        log = tmp_path / "x.log"
        log.write_text(text + "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 5e-06, 'epoch': 0.02}\n" * 6, "utf-8")
        (run,) = measure_runs(log).runs
        assert ([one.id for one in run.health], run.is_broken) == (["nan-norm"], True)

    def test_other_bars_are_not_the_trainers(self, tmp_path: Path) -> None:
        other = "Loading checkpoint shards: 100%|███| {}/4 [00:0{}<00:00,  1.50s/it]\n"
        text = "".join(other.format(part, part) for part in range(5))
        bars = ["\n".join(written("hugging_face", step).split("\r")) for step in range(25)]
        bars[5] = (
            "\r".join(bars[5].splitlines()[:1] * 3 + [" 50%|██  | 4/10 [00:04<00:09,  1.00s/it]"] * 2) + "\n" + bars[5]
        )
        evaluation = "".join(f" 50%|██  | {part}/10 [00:0{part}<00:09,  1.00s/it]\n" for part in range(1, 10))
        steps = read(tmp_path, text + "".join(bars[:12]) + evaluation + "".join(bars[12:]))
        assert list(steps.number) == [*range(1, 26)]

    def test_a_bar_that_is_drawn_after_each_line(self, tmp_path: Path) -> None:
        lines = [written("hugging_face", step).split("\r") for step in range(25)]
        steps = read(tmp_path, "".join(f"{line}{bar}\n" for bar, _, line in lines))
        assert (list(steps.number), median(steps.seconds[2:])) == ([*range(1, 26)], 2.0)

    def test_a_log_of_dicts_alone_has_counters_and_the_mean_of_its_last_line(self, tmp_path: Path) -> None:
        log = tmp_path / "x.log"
        text = "".join(f"{{'loss': {loss}, 'grad_norm': 1.5, 'epoch': 0.1}}\n" for loss in LOSSES)
        speed = "'train_samples_per_second': 32.0, 'train_steps_per_second': 0.25"
        log.write_text(text + f"{{'train_runtime': 100.0, {speed}, 'train_loss': 3.0, 'epoch': 1.0}}\n", "utf-8")
        (run,) = measure_runs(log).runs
        assert (run.times.median, run.mean_seconds, run.value("samples_per_second")) == (None, 4.0, 32.0)

    def test_hugging_face_and_deepspeed_in_one_log(self, tmp_path: Path) -> None:
        steps = read(
            tmp_path, "".join(written("hugging_face", step) + written("deepspeed", step) for step in range(25))
        )
        assert (steps.form.name, len(steps), steps.troubles["skipped"].count) == ("transformers", 25, 3)

    def test_epochs_of_mindspore(self, tmp_path: Path) -> None:
        epoch = "epoch: {0} step: 1, loss is 2.5\nepoch: {0} step: 2, loss is [2.25]\n"
        time = "Train epoch time: {} ms, per step time: {} ms\n"
        steps = read(tmp_path, "".join(epoch.format(one) + time.format(200.0, 100.0 * one) for one in (1, 2, 3)))
        assert (list(steps.number), list(steps.seconds)) == ([*range(1, 7)], [0.1, 0.1, 0.2, 0.2, 0.3, 0.3])
        steps = read(tmp_path, "".join(time.format(200.0, 100.0 * one) for one in (1, 2)))
        assert (list(steps.number), list(steps.seconds)) == ([1, 2], [0.1, 0.2])
        stamped = log_of("mindspore", 5) + time.format(200.0, 100.0)
        assert list(read(tmp_path, stamped).number) == [1, 2, 3, 4, 5]
        steps = read(tmp_path, "".join(time.format(200.0, 100.0 * one) + epoch.format(one) for one in (1, 2)))
        assert (list(steps.number), list(steps.seconds)) == ([1, 2, 3, 4], [0.1, 0.1, 0.2, 0.2])

    def test_a_sum_of_skipped_steps_on_the_line_of_a_bar(self, tmp_path: Path) -> None:
        text = "{'loss': 6.5, 'epoch': 0.02}\n" + "{'loss': 0.0, 'epoch': 0.04}\n" * 2
        text += (
            "  8%|██  | 1999/24128 [1:52:09<20:27:23,  3.33s/it]"
            + written("deepspeed", 1999 % 25).splitlines()[0]
            + "\n"
        )
        assert (
            read(tmp_path, text.replace("step=25, skipped=3", "step=2000, skipped=1995")).troubles["skipped"].count
            == 1995
        )

    def test_megatron_deepspeed_with_other_names_hides_nan_too(self, tmp_path: Path) -> None:
        line = (
            "iteration={:8d}/   10000 | consumed_tokens={:12d} | elapsed_time_per_iteration_ms=67212.1 | global_batch_size= 1152 |{} "
            "number_of_skipped_iterations=  0 | number_of_nan_iterations=  0 | tokens_per_gpu_per_second_tgs=2925.188 | TFLOPs=68.26 |\n"
        )
        text = "".join(line.format(n, 4096 * n, " lm loss=11.198063 |" if n < 5 else "") for n in range(1, 9))
        steps = read(tmp_path, text)
        assert (steps.seconds[1], steps.batch[1], steps.tokens[1], steps.tflops[1]) == (67.2121, 1152, 8192, 68.26)
        assert (steps.token_rate[1], steps.troubles["nan"].lasting) == (2925.188, 4)

    def test_all_ranks_of_torchtitan_without_prefixes(self, tmp_path: Path) -> None:
        lines = [written("torchtitan", step).removeprefix("[rank0]:") for step in range(5)]
        (tmp_path / "x.log").write_text("".join(line * 4 for line in lines), "utf-8")
        (run,) = read_training_log(tmp_path / "x.log").runs
        assert [list(rank.number) for rank in run.ranks] == [[1, 2, 3, 4, 5]] * 4

    def test_epochs_of_minimind_count_on(self, tmp_path: Path) -> None:
        line = "Epoch:[{}/2]({}/3), loss: {}, logits_loss: 1.0, aux_loss: 0.0, lr: 0.0002, epoch_time: 3.0min\n"
        steps = read(tmp_path, "".join(line.format(epoch, step, 5 - step) for epoch in (1, 2) for step in (1, 2, 3)))
        assert (list(steps.number), list(steps.loss)) == ([*range(1, 7)], [4, 3, 2] * 2)


class TestOwnLines:
    def test_a_pattern(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        log = tmp_path / "own.log"
        log.write_text(
            "".join(f"it {n} of 99 | L={LOSSES[n]} | {TIMES[n] * 1000:.0f} ms\n" for n in range(25)), "utf-8"
        )
        pattern = r"it (?P<step>\d+) of (?P<total>\d+) \| L=(?P<loss>\S+) \| (?P<time_ms>[\d.]+) ms"
        assert main(["metrics", str(log), "--pattern", pattern, "--json"]) == 0
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        assert (run["form"], run["steps"], run["step_seconds"]["median"]) == ("pattern", 25, median(TIMES[1:]))
        assert run["loss"] == {"first": LOSSES[0], "last": LOSSES[-1]}

    @pytest.mark.parametrize("pattern", ["(", "x", r"(?P<step>\d+)", r"(?P<step>\d+) (?P<loss>\S+) (?P<what>\S+)"])
    def test_a_pattern_that_lacks_a_group(self, tmp_path: Path, pattern: str) -> None:
        (tmp_path / "x.log").write_text("x\n", "utf-8")
        assert main(["metrics", str(tmp_path / "x.log"), "--pattern", pattern]) == 2


BAR = "{at}%|#  | {n}/50 [{clock}<01:30,  {rate}{more}]"
# Lines of trainers without an entry, with the seconds of each step after the first that they tell, if they do.
OTHERS = {
    "LitGPT": ("Epoch 1 | iter {n} step {half} | loss train: {loss:.4f}, val: n/a | iter time: {ms:.2f} ms (step)\n", 1e-5),
    "Nanotron": ("[INFO|DP=0]: iteration: {n} / 1000 | elapsed_time_per_iteration_ms: {ms:.1f} | lm_loss: {loss:.4f} | grad_norm: 1.2\n", 1e-4),
    "PaddleNLP": ("[{stamp}] [    INFO] - loss: {loss:.8f}, learning_rate: 1e-05, global_step: {n}, interval_runtime: 9.9\n", 2e-3),
    "own": ("{stamp} - INFO - Epoch: 0/3, Step: {n}/99, Loss: {loss:.4f}\nvalidation step {n} loss 9.0\n", 2e-3),
    "JSON": ('{{"iteration": {n}, "train/loss": {loss:.4f}, "iter_time (s)": {time:.3f}}}\n', 1e-3),
    "picotron": ("[rank 0] Step: {n:<5d} | Loss: {loss:6.4f} | Tokens/s: 123.45K | Memory usage: 30.12GB\n", None),
    "TorchTune": ("\r1|{n}|Loss: {loss}: " + BAR.replace("{more}", ""), 1),
    "VeOmni": ("\r" + BAR.replace("{more}", "") + "\r" + BAR.replace("{more}", ", loss: {loss}, grad_norm: 1.23") * 2, 1),
    "OpenRLHF": ("Train step of epoch 0: " + BAR.replace("{more}", ", gpt_loss={loss}, loss_mean={loss}") + "\nValidation: 20%|# | 1/5 [00:01<00:03, 1.0s/it, val_loss=2.1]\n", 1),
    "Composer": ("train          Epoch   0: " + BAR.replace("{rate}", "1.70s/ba").replace("{more}", ", loss/train/total={loss}") + "\n", 1),
}  # fmt: skip


PASTED: dict[str, dict[str, Any]] = read_data("pasted_logs.yaml")


@pytest.mark.parametrize("name", PASTED)
def test_what_people_pasted(tmp_path: Path, name: str) -> None:
    facts, log = PASTED[name], tmp_path / "train.log"
    log.write_text(facts["text"], "utf-8")
    if "refused" in facts:
        with pytest.raises(TraceError, match="no line of this log reports a step"):
            read_training_log(log)
        return
    (run,), (steps, *_) = measure_runs(log).runs, read_training_log(log).runs[0].ranks
    assert [steps.number[0], steps.number[-1]] == facts.get("numbers", [1, len(steps)])
    assert [steps.loss[0], steps.loss[-1]] == pytest.approx(
        facts.get("loss", [steps.loss[0], steps.loss[-1]]), nan_ok=True
    )
    if "seconds" in facts:
        assert run.times.median == pytest.approx(facts["seconds"], rel=facts.get("tolerance", 0.005))
    assert median(steps.token_rate) == pytest.approx(facts.get("tps", median(steps.token_rate)), nan_ok=True, rel=0.01)
    assert facts.get("health", "") in " ".join(one.id for one in run.health)
    assert run.is_broken == facts.get("broken", False)


def test_steps_of_several_lines_in_a_long_log(tmp_path: Path) -> None:
    # The blocks in which a log is read end within steps; lines keep their numbers.
    step = "2026-01-01 10:{:02d}:{:02d} a:0 INFO [step={}/90000,epoch=0]\n    optim/total_grad_norm=1.5\n{}    train/CrossEntropyLoss={}\n"
    more = "".join(f"    train/value_{part}=0.5\n" for part in range(40))
    text = "".join(step.format(n // 60 % 60, n % 60, n, more, 5 - n / 9000) for n in range(1, 3501))
    steps = read(tmp_path, "[step=\n" + text)
    assert (list(steps.number), list(steps.line)) == ([*range(1, 3501)], [*range(2, 3500 * 43, 43)])
    assert steps.loss[-1] == pytest.approx(5 - 3500 / 9000)
    assert {*steps.norm} == {1.5}


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "iter {0}: loss {1:.3f}, time {2:.2f}ms, mfu 40.00%\n",
        "step: {0}, loss: {1:.3f}, step time: {2:.2f} ms\n",
        "[rank3]: iteration {0:8d}/ 9000000 | elapsed time per iteration (ms): {2:.1f} | lm loss: {1:.6E} | number of skipped iterations:   0 |\n",
        "[INFO] Epoch 1/300, Step {0}/9000000, loss: {1:.4f}, cur_lr: 0.01\n[INFO] Epoch 1/300, Step {0}/9000000, step time: {2:.2f} ms\n",
        "  3%|3 | {0}/9000000 [00:41<20:32, 4.10s/it]\r    \r{{'loss': {1:.3f}, 'grad_norm': 1.5}}\n",
    ],
)
def test_lines_of_a_long_log_that_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    # Evenly rising counters of steps that are not kept are not read one by one: what went wrong is counted all the same.
    lines = [text.format(n, 4 - n % 7 / 8, 90 + n % 13, n % 1000) for n in range(1, 60_000)]
    for at in (35_000, 45_000):
        value = f"{4 - (at + 1) % 7 / 8:.9f}"[:5]
        lines[at] = lines[at].replace(value, "nan").replace("nan0000E+00", "nan").replace("nan0", "nan")
    lines[40_000] = lines[40_000].replace("skipped iterations:   0", "skipped iterations:   1")
    lines = [*lines[:50_000], "overflow! Skipping step\n", *lines[50_009:], "a new run\n", *lines[100:9000]]
    monkeypatch.setattr(training_log, "_MOST_STEPS", 1000)
    (tmp_path / "x.log").write_text("".join(lines), "utf-8", newline="")
    found = []
    for few in (training_log._FEW, 10**6):
        monkeypatch.setattr(training_log, "_FEW", few)
        found.append([rank for run in read_training_log(tmp_path / "x.log").runs for rank in run.ranks])
    assert [(one.seen, one.last, one.troubles, one.rise) for one in found[0]] == [
        (one.seen, one.last, one.troubles, one.rise) for one in found[1]
    ]
    assert ([one.seen for one in found[0]], found[0][0].troubles["nan"].count) == ([59_990, 8900], 2)
    for rank, start in zip(found[0], (1, 101), strict=True):
        assert 50 < len(rank) < 1500
        assert rank.number[0] == start
        losses = zip(rank.number, rank.loss, strict=True)
        assert max(abs(4 - n % 7 / 8 - loss) for n, loss in losses if math.isfinite(loss)) < 0.001


class TestOtherTrainers:
    @pytest.mark.parametrize("name", OTHERS)
    def test_lines_with_a_counter_and_a_loss(self, tmp_path: Path, name: str) -> None:
        line, doubt = OTHERS[name]
        text = ""
        for n in range(1, 25):
            clock = f"{int(CLOCK[n]) // 60:02d}:{int(CLOCK[n]) % 60:02d}"
            values = {"n": n, "half": n // 2, "loss": LOSSES[n], "time": TIMES[n], "ms": TIMES[n] * 1000}
            text += line.format(**values, stamp=stamp(CLOCK[n]), clock=clock, rate="2.00s/it", at=2 * n)
        steps = read(tmp_path, text)
        assert (list(steps.number), list(steps.loss)) == ([*range(1, 25)], LOSSES[1:])
        if doubt is None:
            assert all(map(math.isnan, steps.seconds))
        else:
            assert list(steps.seconds)[1:] == pytest.approx(TIMES[2:], abs=doubt)

    @pytest.mark.parametrize(
        "text",
        [
            "Step 1: weight loss 5 kg\nstep 2: heat loss: 3.2\n",
            "validation step 1 loss 1.5\n" * 9,
            "step 1 of 3\nloss 2\n" * 9,
        ],
    )
    def test_other_text_has_no_steps(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "x.log").write_text(text, "utf-8")
        with pytest.raises(TraceError, match="no line of this log reports a step"):
            read_training_log(tmp_path / "x.log")


class TestTables:
    def test_a_trainers_folder(self, tmp_path: Path) -> None:
        (tmp_path / "other.log").write_text("nothing\n", "utf-8")
        (tmp_path / "trainer_log.jsonl").write_text(log_of("llamafactory"), "utf-8")
        assert measure_runs(tmp_path).runs[0].steps == 25

    def test_csv(self, tmp_path: Path) -> None:
        head = '"Step","bold-river-7 - train/loss","bold-river-7 - train/loss__MIN","bold-river-7 - step_time"\n'
        steps = read(tmp_path, head + "".join(f"{n},{LOSSES[n]},0,{TIMES[n]}\n" for n in range(25)), "wandb.csv")
        assert (list(steps.loss), list(steps.seconds), list(steps.line)) == (LOSSES, TIMES, [*range(2, 27)])
        curve = "Wall time,Step,Value\n" + "".join(f"{1.7e9 + CLOCK[n]},{n * 10},{LOSSES[n]}\n" for n in range(25))
        steps = read(tmp_path, curve, "loss.csv")
        assert list(steps.seconds)[1:] == pytest.approx([time / 10 for time in TIMES[1:]], abs=1e-6)
        nan = head + "".join(f"{n},{'NaN' if n > 20 else LOSSES[n]},,{TIMES[n]}\n" for n in range(25)) + "25,,,2.0\n"
        trouble = read(tmp_path, nan, "nan.csv").troubles["nan"]
        assert (trouble.count, trouble.lasting, trouble.line) == (4, 4, 23)
        with pytest.raises(TraceError, match="no column with step counters; found: a, b"):
            read(tmp_path, "a,b\n1,2\n", "other.csv")

    def test_the_state_of_hugging_faces_trainer(self, tmp_path: Path) -> None:
        history = [{"loss": LOSSES[n], "grad_norm": 1.5, "step": n + 1, "epoch": 0.1} for n in range(25)]
        state = {"global_step": 25, "log_history": [*history, {"eval_loss": 1.0, "step": 25}]}
        steps = read(tmp_path, json.dumps(state), "trainer_state.json")
        assert (list(steps.number), list(steps.loss)) == ([*range(1, 26)], LOSSES)

    def test_event_files(self, tmp_path: Path) -> None:
        folder = tmp_path / "runs"
        folder.mkdir()
        (folder / "events.out.tfevents.1.host").write_bytes(b"")
        if find_spec("tensorboard") is None and find_spec("tbparse") is None:
            with pytest.raises(TraceError, match="tbparse or tensorboard"):
                measure_runs(folder)
            return
        summary: Any = pytest.importorskip("torch.utils.tensorboard")
        with summary.SummaryWriter(str(folder)) as writer:
            for n in range(25):
                writer.add_scalar("train/loss", LOSSES[n], n, walltime=1.7e9 + CLOCK[n])
        (run,) = measure_runs(folder).runs
        assert run.times.median == pytest.approx(median(TIMES[1:]), abs=1e-3)


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank3]: ",
        "(TaskRunner pid=11, ip=10.0.0.1) [rank3]: ",
        "3: [default7]:",
        "[pod/job-0/main] [3]:",
        "[default3]:",
    ],
)
def test_prefixes_of_ranks_in_front_of_any_line(tmp_path: Path, prefix: str) -> None:
    for trainer in ("verl", "megatron_in_seconds", "deepspeed", "swift", "hyper_parallel"):
        (tmp_path / "x.log").write_text(
            "".join(prefix + written(trainer, step).splitlines()[-1] + "\n" for step in range(9)), "utf-8"
        )
        (run,) = read_training_log(tmp_path / "x.log").runs
        assert [(rank.rank, len(rank)) for rank in run.ranks] == [(3, 9)]
