"""Test the step time from a log or a profile, or its refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.errors import UsageError
from ms_tune.text import Language, render
from ms_tune.workflows.step_clock import measure_clock
from tests.metrics.profiles import Step, operator_bound
from tests.readers.training_logs import megatron_log, static_line


def test_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text(megatron_log([100, 200]) + megatron_log([9000, *[1500] * 8]), "utf-8")
    assert measure_clock(log).step_seconds == 1.5
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker_0.log").write_text(megatron_log([9000, *[1500] * 8], tflops=9999.0), "utf-8")


def test_what_is_not_to_be_believed(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text(megatron_log([9000]), "utf-8")
    with pytest.raises(UsageError, match="only one step"):
        measure_clock(log)
    log.write_text(static_line(1, 900, norm=1.0) + static_line(1, 800, norm=2.0) + static_line(2, 100), "utf-8")
    with pytest.raises(UsageError, match="are mixed"):
        measure_clock(log)
    (operator_bound().write(tmp_path / "p") / "trace_view.json").write_text("[{", "utf-8")
    with pytest.raises(UsageError, match="is truncated"):
        measure_clock(tmp_path / "p")


SCOPE = "Kernel::KernelLaunch::{}Default/network-Net/model-GPTModel/{}/MatMul-op1/aclnnMatmul"


def scoped(step: Step, layer: int, forward: float, backward: float, mark: str = "") -> Step:
    """Return the two passes of a layer, in microseconds."""
    where = f"decoder-Block/layers-CellList/{layer}-Layer"
    for _ in range(2 if mark else 1):
        step.kernel(forward, SCOPE.format(mark, where))
    return step.kernel(backward, SCOPE.format(f"Gradients/{mark}", where))


def test_the_layers_of_a_profile(tmp_path: Path) -> None:
    # Two ranks of the first stage and one of the second; layer 3 is incomplete, and a prediction layer has its own
    # list.
    scoped(scoped(Step(), 0, 100.0, 200.0), 1, 110.0, 200.0, "recompute_").write(tmp_path, 0)
    scoped(scoped(Step(), 0, 140.0, 220.0), 1, 130.0, 220.0, "recompute_").write(tmp_path, 1)
    last = scoped(Step(), 2, 120.0, 260.0).kernel(50.0, SCOPE.format("", "decoder-Block/layers-CellList/3-Layer"))
    last.kernel(9.0, SCOPE.format("", "mtp-Mtp/layers-CellList/0-MtpLayer")).write(tmp_path, 2)
    clock = measure_clock(tmp_path)
    assert clock.layers is not None
    found = [figure for one in clock.layers for figure in (one.number, one.forward, one.backward, one.twice)]
    assert found == pytest.approx([0, 0.12, 0.21, 0.0, 1, 0.0, 0.21, 0.24, 2, 0.12, 0.26, 0.0])
    messages = [render(note, Language.EN) for note in clock.notes]
    assert messages == [
        "The profile lacks the forward or backward pass of layers 3; they are skipped.",
        "The layers of decoder.layers in the profile are used, those of mtp.layers are not.",
    ]


def test_a_profile_that_shows_no_layers(tmp_path: Path) -> None:
    output = operator_bound().write(tmp_path)
    clock = measure_clock(tmp_path)
    assert clock.layers == ()
    assert ["have no layer scopes" in render(note, Language.EN) for note in clock.notes] == [True]
    (output / "kernel_details.csv").unlink()
    assert "kernel_details.csv is missing" in render(measure_clock(tmp_path).notes[0], Language.EN)
    table = output / "step_trace_time.csv"
    table.write_text(table.read_text("utf-8").replace("\n50,", "\n,"), "utf-8")
    assert "counts as one" in render(measure_clock(tmp_path).notes[0], Language.EN)
    table.unlink()
    assert "counts as one step" in render(measure_clock(tmp_path).notes[0], Language.EN)


def test_a_layer_whose_kernels_take_less_than_no_time_is_left_out(tmp_path: Path) -> None:
    scoped(scoped(Step(), 0, 100.0, 200.0), 1, -1.0, 200.0).write(tmp_path)
    clock = measure_clock(tmp_path)
    assert [one.number for one in clock.layers or ()] == [0]
    assert "layers 1" in render(clock.notes[0], Language.EN)
