"""Make training logs in the frameworks' formats."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_FOLDERS = (folder / "shared" / "fixtures" / "torch_npu" for folder in Path(__file__).parents)
PUBLIC = next(
    (folder for folder in _FOLDERS if folder.is_dir()), Path("absent")
)  # real logs and profiles, outside the checkout
BAR = "█" * 3


def static_line(
    step: int, milliseconds: int, *, total: int = 100, epoch: int = 1, loss: float = 1.5, **more: float
) -> str:
    """Return both lines of MindFormers' static graph."""
    norm, tflops = more.get("norm", float(step)), more.get("tflops", 100_000 / milliseconds)
    rate = more.get("rate", 1000 / milliseconds)
    place = "- mindformers/home/x/callback.py[core/callback/callback.py:748] - INFO - "
    return (
        f"2026-01-01 10:00:00,000 {place}{{ Epoch:[{epoch:3d}/  2], step:[{step:5d}/{total:5d}], loss:[{loss:5.3f}/{loss:5.3f}], "
        f"per_step_time: {milliseconds}ms, lr: 1e-05, overflow cond: False, loss_scale: 1.0, global_norm: [{norm}], "
        f"train_throughput_per_npu: {tflops:.3f}T\n"
        f"2026-01-01 10:00:00,000 {place}   1.0% |{BAR:<50}| {rate:.5f} samples/s/p  0:10:00 }}\n"
    )


def dynamic_line(step: int, milliseconds: int, *, last: bool = True) -> str:
    """Return a line of MindFormers' dynamic graph."""
    loss = f"{2.5:10.6f}" if last else "N/A (non-last PP stage, refer to last stage for real loss)"
    return (
        f"2026-01-01 10:00:00 - [INFO] {{ step:[{step:5d}/{10:5d}], consumed_samples: {step * 8}, global_batch_size: 8, "
        f"loss: {loss}, per_step_time: {milliseconds:6d}ms, lr: {1e-5:10.6e}, grad_norm: {float(step):10.6f}, "
        f"throughput: {50_000 / milliseconds:6.2f}T }}\n"
    )


def megatron_line(step: int, milliseconds: float, *, total: int = 100, batch: int = 8, **more: float) -> str:
    """Return a line of Megatron."""
    tflops = f" throughput per GPU (TFLOP/s/GPU): {more['tflops']:.1f} |" if "tflops" in more else ""
    tokens = f" consumed tokens: {int(more['tokens']):10d} |" if "tokens" in more else ""
    norm = more.get("norm", float(step))
    return (
        f" [2026-01-01 10:00:00] iteration {step:8d}/{total:8d} | consumed samples: {step * batch:12d} |{tokens} "
        f"elapsed time per iteration (ms): {milliseconds:.1f} |{tflops} learning rate: 1.000000E-05 | "
        f"global batch size: {batch:5d} | lm loss: {10 - step / 100:.6E} | loss scale: 1.0 | grad norm: {norm:.3f} | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def megatron_log(milliseconds: Iterable[float], **more: float) -> str:
    """Return a run with one step per time."""
    return "".join(megatron_line(step, one, **more) for step, one in enumerate(milliseconds, start=1))  # type: ignore[arg-type]
