"""What one line of a training log says about a step, in the five forms that the frameworks print.

* MindFormers' static graph, ``MFLossMonitor`` (mindformers/core/callback/callback.py, 1.6 to 2.1): ``{ Epoch:[..], step:[..],
  loss: .., per_step_time: Nms, .., train_throughput_per_npu: xT``, and ``.. samples/s/p ..`` in the line behind.
* Its dynamic graph (mindformers/pynative/callback/loss_callback.py, 1.9 to 2.1): ``{ step:[..], .., throughput: xT }``.
* MindSpeed-Core-MS r0.1.0 (mindformers/experimental/.../training.py): ``Epoch: e, Step: s, Loss: .., Time: x ms``.
* Megatron (megatron/training/training.py, core 0.6 to 0.12; MindSpeed's tflops_calculate): ``iteration n/ N | key: value | ..``,
  as MindSpeed-Core-MS since r0.2, MindSpeed-LLM and MindSpeed-MM print it.

``torchrun``, ``srun``, ``mpirun``, ``tail`` and some loggers put the rank before a line. Where a value has an average behind it
(``123.4/125.0``, ``496.3 (avg 496.1)``, as Primus' Megatron prints them), the value counts.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_SECONDS = 1e7
_MOST_STEPS = 10**12
_MOST_BATCH = 10**9
_MOST_TOKENS = 10**17

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIX = re.compile(
    r"\s*(?:\[(?:rank|default)?(\d{1,6})\]:|(\d{1,6}): |\[\d{1,6},(\d{1,6})\]<\w{1,8}>:|(?:\S{1,400}/)?worker_(\d{1,6})\.log[:|]"
    r"|(?:\[\d{8} [\d:]{8}\])?\[rank-(\d{1,6})/\d{1,6}\]|\[Rank (\d{1,6}) \| Local Rank \d{1,6}\])"
)
_N = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,4})?"
_BRACE = re.compile(r"\{\s{0,4}(?=Epoch:|step:)")
_EPOCH = re.compile(r"Epoch:\s{0,4}\[\s{0,20}(\d{1,12})\s{0,20}/\s{0,20}\d{1,12}\]")
_STEP = re.compile(r"step:\s{0,4}\[\s{0,20}(\d{1,15})\s{0,20}/\s{0,20}(\d{1,15})\]")
_TIME = re.compile(rf"per_step_time:\s{{0,20}}({_N})\s{{0,4}}ms")
_LOSS = re.compile(rf"(?<![\w-])loss:\s{{0,4}}\[?\s{{0,20}}({_N}|nan|-?inf)(?=[,/\] }}])", re.IGNORECASE)
_NORM = re.compile(rf"(?:global|grad)_norm:\s{{0,4}}\[?\s{{0,20}}({_N})(?=[,\] }}])")
_TFLOPS = re.compile(rf"(?:train_throughput_per_npu|(?<![\w-])throughput):\s{{0,20}}({_N})T")
_BATCH = re.compile(r"global_batch_size:\s{0,20}(\d{1,15})")
_OLD = re.compile(
    rf"Epoch: (\d{{1,12}}), Step: (\d{{1,15}}), Loss: (\S{{1,60}}), .{{0,400}}\bTime: ({_N}) ms", re.IGNORECASE
)
_ITERATION = re.compile(r"iteration\s{1,20}(\d{1,15})\s{0,20}/\s{0,20}(\d{1,15})\s{0,4}\|")
_WITH_AVERAGE = re.compile(rf"({_N})(?=/| \()")
_SAMPLES = re.compile(rf"({_N}) samples/s/p")
# Key in a line of Megatron's form to what it is; the first that is there counts.
_KEYS = {
    "elapsed time per iteration (ms)": "time",
    "throughput per GPU (TFLOP/s/GPU)": "tflops",
    "compute per GPU (TFLOP/s/GPU)": "tflops",
    "theoretical throughput per NPU (TFLOP/s/NPU)": "tflops",
    "TFLOPs": "tflops",  # Megatron-DeepSpeed
    "actual throughput per NPU (TFLOP/s/NPU)": "counted",
    "actual throughput per NPU with recompute (TFLOP/s/NPU)": "hardware",
    "global batch size": "batch",
    "gloabl batch size": "batch",  # as old releases spell it
    "consumed tokens": "tokens",
    "lm loss": "loss",
    "loss": "loss",
    "total loss": "loss",
    "grad norm": "norm",
    "max_memory_allocated(GB)": "allocated",
    "max_memory_reserved(GB)": "reserved",
}


class Form(str, Enum):
    """Who prints such lines."""

    STATIC = "mindformers"
    DYNAMIC = "mindformers-pynative"
    MINDSPEED = "mindspeed-ms"
    MEGATRON = "megatron"
    BASELINE = "baseline"  # a JSON file of lists


NOT_LOGGED = math.nan
_FLOATS = ("norm", "tflops", "counted", "hardware", "allocated", "reserved")


class StepLine(NamedTuple):
    """A step as a line tells it; what it does not tell is NaN, or 0 for counts.

    Attributes:
        form: Who printed it.
        number: The step's counter.
        total: Steps of an epoch (static graph) or of the job; 0 where the line does not say.
        epoch: From 1 (from 0 in MindSpeed's form); 0 where the line does not say.
        seconds: How long it took, or the average of the steps since the last line.
        loss: As printed.
        norm: Norm of the gradients.
        tflops: 10^12 floating-point operations a second and card, by the framework's formula.
        counted: The same by counting what ran, without and (``hardware``) with what was recomputed.
        hardware: See above.
        batch: Samples of a step, of all cards.
        tokens: Tokens consumed so far.
        allocated: Most bytes allocated so far, in units of 10^9 or 2^30 (frameworks differ).
        reserved: The same of what the pool has taken.
    """

    form: Form
    number: int
    total: int
    epoch: int
    seconds: float
    loss: float = NOT_LOGGED
    norm: float = NOT_LOGGED
    tflops: float = NOT_LOGGED
    counted: float = NOT_LOGGED
    hardware: float = NOT_LOGGED
    batch: int = 0
    tokens: int = 0
    allocated: float = NOT_LOGGED
    reserved: float = NOT_LOGGED


def rank_before(line: str) -> tuple[int | None, str]:
    """The rank that stands before a line, if one does, and the line without colours."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    found = _PREFIX.match(line)
    if found is None:
        return None, line
    return int(next(part for part in found.groups() if part)), line[found.end() :]


def steps_in(line: str) -> Iterator[StepLine | None]:
    """The steps that a line tells about; several where lines ran into each other, None for one that is damaged."""
    if "per_step_time" in line:
        starts = [match.start() for match in _BRACE.finditer(line)]
        yield from map(_mindformers, _pieces(line, starts))
    elif "elapsed time per iteration" in line:
        starts = [match.start() for match in _ITERATION.finditer(line)]
        yield from map(_megatron, _pieces(line, starts))
    elif found := _OLD.search(line):
        yield _step(Form.MINDSPEED, (int(found[2]), 0, int(found[1])), found[4], {"loss": found[3].strip("[],()")})


def samples_per_second(line: str) -> float:
    """What MindFormers' second line says: samples a second and card; NaN if it says nothing."""
    found = _SAMPLES.search(line)
    return _positive(found[1]) if found else NOT_LOGGED


def _pieces(line: str, starts: list[int]) -> list[str]:
    """The line at each start; as a whole where there is none, so that it counts as damaged."""
    if len(starts) < 2:  # noqa: PLR2004 - nearly all
        return [line[starts[0] :]] if starts else [line]
    ends = [*starts[1:], len(line)]
    return [line[start:end] for start, end in zip(starts, ends, strict=True)]


def _mindformers(text: str) -> StepLine | None:
    step, time = _STEP.search(text), _TIME.search(text)
    if step is None or time is None:
        return None
    epoch = _EPOCH.search(text)
    values: dict[str, str] = {}
    patterns = {"loss": _LOSS, "norm": _NORM, "tflops": _TFLOPS, "batch": _BATCH}
    for name, pattern in patterns.items():
        if found := pattern.search(text):
            values[name] = found[1]
    form = Form.STATIC if epoch else Form.DYNAMIC
    return _step(form, (int(step[1]), int(step[2]), int(epoch[1]) if epoch else 0), time[1], values)


def _megatron(text: str) -> StepLine | None:
    head = _ITERATION.match(text)
    if head is None:
        return None
    values: dict[str, str] = {}
    # What stands behind the last bar may be cut off.
    for part in text[head.end() :].split("|")[:-1]:
        key, _, value = part.partition(":")
        name = _named(key)
        if name is not None and name not in values:
            values[name] = value.strip()
    if "time" not in values:
        return None
    return _step(Form.MEGATRON, (int(head[1]), int(head[2]), 0), values.pop("time"), values)


@lru_cache(maxsize=256)  # the lines of a log have the same few, with the same blanks
def _named(key: str) -> str | None:
    return _KEYS.get(key.strip())


def _step(form: Form, counters: tuple[int, int, int], time: str, values: dict[str, str]) -> StepLine | None:
    number, total, epoch = counters
    seconds = _positive(time) / 1000
    if not 0 < seconds < _MOST_SECONDS or max(number, total, epoch * max(total, 1)) > _MOST_STEPS:
        return None
    told = values.get
    norm, tflops, counted, hardware, allocated, reserved = [
        _positive(values[name]) if name in values else NOT_LOGGED for name in _FLOATS
    ]
    return StepLine(
        form,
        number,
        total,
        epoch,
        seconds,
        _number(told("loss", "")),
        norm,
        tflops,
        counted,
        hardware,
        _count(told("batch", ""), _MOST_BATCH),
        _count(told("tokens", ""), _MOST_TOKENS),
        allocated,
        reserved,
    )


def _number(text: str) -> float:
    if not text:
        return NOT_LOGGED
    try:
        return float(text)
    except ValueError:
        found = _WITH_AVERAGE.match(text)
        return float(found[1]) if found else NOT_LOGGED


def _positive(text: str) -> float:
    number = _number(text)
    return number if 0 <= number < math.inf else NOT_LOGGED


def _count(text: str, most: int) -> int:
    number = int(text) if text.isdecimal() and len(text) < 20 else 0  # noqa: PLR2004 - digits
    return number if number <= most else 0
