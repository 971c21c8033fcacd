"""Run each of many calls in a separate process group: ``python operators_program.py DEVICE CALLS OUT``.

MindSpore is imported once; each call runs in a process that is forked from there before the device is used, and its result
is one entry: ``outputs`` (shape and number format of each), ``gradients`` (shapes), or why there are none (``forward``,
``backward``, ``ended``).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops

_SECONDS = 60.0  # per call
_AT_ONCE = 2
_LONGEST = 300  # characters of an error
_SIZES = {
    "x": (4, 6),
    "y": (4, 6),
    "v": (6,),
    "w": (4,),
    "m": (6, 5),
    "b": (2, 4, 6),
    "c": (2, 6, 3),
    "q": (2, 4, 10),
    "g": (2, 4, 8, 8),
    "d": (2, 4, 6, 6, 6),
}


def _tensors() -> dict[str, Any]:
    """Return the tensors that the calls use (``operator_calls.py``)."""
    some = np.random.default_rng(1)
    floats = {name: some.uniform(0.1, 0.9, size).astype(np.float32) for name, size in _SIZES.items()}
    floats["s"] = np.eye(4, dtype=np.float32) * 4 + 0.5
    tensors = {name: Tensor(array) for name, array in floats.items()}
    return tensors | {
        "a": Tensor(some.uniform(0.1, 0.9, (2, 16, 32)), ms.bfloat16),
        "i": Tensor(some.integers(0, 4, (4, 6)), ms.int64),
        "n": Tensor(some.integers(0, 6, 4), ms.int64),
        "j": Tensor(some.integers(0, 4, 6), ms.int64),
        "k": Tensor(floats["x"] > 0.5),
        "z": Tensor((floats["x"] + 1j * floats["y"]).astype(np.complex64)),
    }


def _flat(result: Any) -> list[Tensor]:  # noqa: ANN401 - what an operator gives
    if isinstance(result, list | tuple):
        return [one for part in result for one in _flat(part)]
    return [result] if isinstance(result, Tensor) else []


def _run_call(call: str, device: str) -> dict[str, Any]:
    """Run a call forward and backward, and describe the results."""
    ms.set_device(device)
    names = {"ms": ms, "mint": mint, "nn": nn, "ops": ops, "F": mint.nn.functional, "Tensor": Tensor}
    tensors = _tensors()
    code = compile(call, "call", "eval")

    def forward(*given: Tensor) -> Any:  # noqa: ANN401 - as above
        return eval(code, names | tensors | dict(zip(wanted, given, strict=True)))  # noqa: S307 - our own calls

    wanted: tuple[str, ...] = ()
    try:
        outputs = _flat(forward())
        ms.runtime.synchronize()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return {"forward": _words(error)}
    found: dict[str, Any] = {"outputs": [[list(one.shape), str(one.dtype)] for one in outputs]}
    floats = (ms.float32, ms.bfloat16)
    wanted = tuple(name for name in code.co_names if name in tensors and tensors[name].dtype in floats)
    if not wanted or not any(one.dtype in floats for one in outputs):
        return found

    def loss(*given: Tensor) -> Tensor:
        return sum(one.astype(ms.float32).sum() for one in _flat(forward(*given)) if one.dtype in floats)

    try:
        _, gradients = ms.value_and_grad(loss, tuple(range(len(wanted))))(*(tensors[name] for name in wanted))
        ms.runtime.synchronize()
    except Exception as error:  # noqa: BLE001 - as above
        return found | {"backward": _words(error)}
    shapes = {name: list(one.shape) for name, one in zip(wanted, _flat(gradients), strict=True)}
    return found | {"gradients": shapes, "inputs": {name: list(tensors[name].shape) for name in wanted}}


def _words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:_LONGEST]


def _begin(call: str, device: str) -> tuple[int, int]:
    """Start a process for a call; return it with the reading end of a pipe."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.setsid()
        os.close(read)
        os.write(write, json.dumps(_run_call(call, device)).encode())
        os.kill(os.getpid(), signal.SIGKILL)  # skip MindSpore's own cleanup, which is no part of the call
    os.close(write)
    return pid, read


def _end(read: int, status: int) -> dict[str, Any]:
    with os.fdopen(read, "rb") as pipe:
        output = pipe.read()
    if output:
        found: dict[str, Any] = json.loads(output)
        return found
    ended = os.waitstatus_to_exitcode(status)
    return {"ended": signal.Signals(-ended).name if ended < 0 else f"exit code {ended}"}


def main(device: str, calls: Path, out: Path) -> None:
    """Make all calls, two at a time."""
    waiting: list[str] = json.loads(calls.read_text(encoding="utf-8"))
    running: dict[str, tuple[int, int, float]] = {}
    found: dict[str, dict[str, Any]] = {}
    while waiting or running:
        while waiting and len(running) < _AT_ONCE:
            call = waiting.pop()
            running[call] = (*_begin(call, device), time.monotonic())
        time.sleep(0.01)
        for call, (pid, read, begin) in list(running.items()):
            late = time.monotonic() - begin > _SECONDS
            if late:
                os.killpg(pid, signal.SIGKILL)
            ended, status = os.waitpid(pid, 0 if late else os.WNOHANG)
            if ended:
                found[call] = _end(read, status)
                if late:
                    found[call] = {"ended": "not in time"}
                del running[call]
    out.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
