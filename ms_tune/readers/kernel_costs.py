"""Find the kernels that take longer than they must, while a profile's table of kernels is read.

Judged are their core, the share of the cores and pipelines that they use (roofline), their sequence, and the same kernel
with and without communication at the same time. The thresholds and their sources are in ``facts/data/profile_causes.json``.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import median

from ms_tune.facts.profile_causes import kernel_kind, limit, sequences

KERNEL_COLUMNS = (
    *("Block Dim", "aic_mac_ratio", "aic_mac_fp16_ratio", "aic_mte2_ratio", "cube_utilization(%)"),
    *("aiv_vec_ratio", "aiv_mte2_ratio", "aiv_mte3_ratio"),
)
_MOST = 1_000_000  # kernels whose order is kept
_EXAMPLES = 1000  # of a cause, that are distinguished
_VARIANT = re.compile(r"(?<=[a-z])(?:V\d+|D|s)$")  # of a kernel's type: ReduceMeanD, BatchMatMulV2, Adds
_MOST_CORES = 1.25  # times the least number
_HIDDEN, _ALONE = 0.9, 0.1  # of a kernel, that runs at the same time as communication
_FULL = 0.8  # of the cube's peak, which large products reach


@dataclass(frozen=True, slots=True)
class KernelLoss:
    """The kernels with one cause of being slow."""

    microseconds: float  # their time
    saves_us: float  # the most of it that could be saved
    count: int
    example: str  # the one that could save most: type and shapes, or the name of a sequence
    detail: str = ""  # cores, unit, or ratio of the example


class KernelCosts:
    """The losses of the kernels read so far."""

    def __init__(self) -> None:
        self._losses: dict[str, dict[str, KernelLoss]] = {}
        self._cores = {"cube": limit("cube_cores"), "vector": limit("vector_cores")}
        self.rated = False  # whether the table has ratios of pipelines
        self._types: list[str] = []
        self._lengths, self._starts = array("d"), array("d")
        self._keys: list[str] = []
        self._converted = 0.0  # microseconds of conversions in sequences that could be fused

    @property
    def median_us(self) -> float:
        """Return the median time of a kernel; 0 without kernels."""
        return median(self._lengths) if self._lengths else 0.0

    def add(self, row: Mapping[str, str], name: str, core: str, length: float, start: float | None) -> None:
        """Judge a kernel: its type, core, length and start in microseconds."""
        inputs = (row.get("Input Shapes") or "").strip('" \t')
        if len(self._types) < _MOST:
            self._types.append(_VARIANT.sub("", name).replace(" ", "_"))
            self._lengths.append(length)
            self._starts.append(-1.0 if start is None else start)
            self._keys.append(f"{name} {inputs}" if inputs not in ("", "N/A") else "")
        kind = kernel_kind(name)
        example = f"{name} {inputs}".strip()
        if kind in ("input", "conversion") or core == "AI_CPU":
            self._lose("aicpu" if kind != "input" and core == "AI_CPU" else kind, length, length, name)
        elif length >= limit("shortest_us"):
            if kind == "cube" and core in ("AI_CORE", "MIX_AIC"):
                self._judge_cube(row, length, example)
            elif core in ("AI_VECTOR_CORE", "MIX_AIV"):
                self._judge_vector(row, length, example)

    def _judge_cube(self, row: Mapping[str, str], length: float, example: str) -> None:
        filled = _ratio(row, "cube_utilization(%)") / 100 or self._filled(row, "cube")
        mac = max(_ratio(row, "aic_mac_ratio"), _ratio(row, "aic_mac_fp16_ratio"))
        self.rated = self.rated or mac > 0
        if 0 < filled < limit("fill"):
            self._lose("cube", length, length * (1 - filled), example, f"{filled:.0%}")
        elif 0 < mac < limit("mac"):
            self._lose("cube", length, length * (1 - mac / _FULL), example, f"{mac:.0%}")

    def _judge_vector(self, row: Mapping[str, str], length: float, example: str) -> None:
        filled = self._filled(row, "vector")
        bound = max(_ratio(row, name) for name in ("aiv_vec_ratio", "aiv_mte2_ratio", "aiv_mte3_ratio"))
        self.rated = self.rated or bound > 0
        if 0 < filled <= 1 / 2:
            self._lose("vector", length, length * (1 - filled), example, f"{filled:.0%}")
        elif 0 < bound < limit("bound"):
            self._lose("vector", length, length * (1 - bound / limit("fill")), example, f"{bound:.0%}")

    def _filled(self, row: Mapping[str, str], unit: str) -> float:
        # A kernel may have more blocks than there are cores.
        blocks = _ratio(row, "Block Dim")
        if blocks <= _MOST_CORES * limit(f"{unit}_cores"):
            self._cores[unit] = max(self._cores[unit], blocks)
        return min(blocks / self._cores[unit], 1.0)

    def _lose(self, cause: str, length: float, saves: float, example: str, detail: str = "") -> None:
        some = self._losses.setdefault(cause, {})
        example = example if example in some or len(some) < _EXAMPLES else next(iter(some))
        one = some.get(example, KernelLoss(0.0, 0.0, 0, example, detail))
        some[example] = KernelLoss(one.microseconds + length, one.saves_us + saves, one.count + 1, example, one.detail)

    def losses(self, communication: list[tuple[float, float]]) -> dict[str, KernelLoss]:
        """Return the losses by cause; ``communication``: starts and lengths of collectives, ordered by start."""
        found = {cause: _sum_up(some.values()) for cause, some in self._losses.items()}
        if fused := list(self._sequences()):
            found["fusion"] = _sum_up(fused)
            if "conversion" in found:  # those inside of a sequence disappear with it
                found["conversion"] = _take_away(found["conversion"], self._converted)
        if contended := self._contention(communication):
            found["contention"] = contended
        return found

    def _sequences(self) -> Iterator[KernelLoss]:
        text = "".join(f"{name} " for name in self._types)
        places = array("q", accumulate((len(name) + 1 for name in self._types), initial=0))
        taken = bytearray(len(self._types) + 1)
        for name, pattern, least_us in sequences():
            count, time, saves = 0, 0.0, 0.0
            for match in pattern.finditer(text):
                first, last = bisect_right(places, match.start()) - 1, bisect_right(places, match.end()) - 1
                lengths = self._lengths[first:last]
                if any(taken[first:last]) or sum(lengths) < least_us * len(lengths):
                    continue
                taken[first:last] = b"\1" * (last - first)
                for place in range(first, last):
                    self._converted += self._lengths[place] * (kernel_kind(self._types[place]) == "conversion")
                count, time, saves = count + 1, time + sum(lengths), saves + sum(lengths) - max(lengths)
            if count:
                yield KernelLoss(time, saves, count, name)

    def _contention(self, communication: list[tuple[float, float]]) -> KernelLoss | None:
        """Compare kernels of one shape that run alone with those that run at the same time as communication."""
        starts = [start for start, _ in communication]
        ends = list(accumulate((start + length for start, length in communication), max))
        alone: dict[str, list[float]] = defaultdict(list)
        hidden: dict[str, list[float]] = defaultdict(list)
        for key, start, length in zip(self._keys, self._starts, self._lengths, strict=True):
            if not key or start < 0 or length < limit("shortest_us"):
                continue
            place = bisect_right(starts, start + length / 2) - 1
            common = min(start + length, ends[place]) - max(start, starts[place]) if place >= 0 else 0.0
            if common >= _HIDDEN * length:
                hidden[key].append(length)
            elif common <= _ALONE * length:
                alone[key].append(length)
        found = []
        for key in alone.keys() & hidden.keys():
            usual, long = sum(alone[key]) / len(alone[key]), sum(hidden[key])
            if long > limit("slower") * usual * len(hidden[key]):
                excess = long - usual * len(hidden[key])
                found.append(KernelLoss(long, excess, len(hidden[key]), key, f"{long / len(hidden[key]) / usual:.2f}"))
        return _sum_up(found) if found else None


def _sum_up(losses: Iterable[KernelLoss]) -> KernelLoss:
    ordered = sorted(losses, key=lambda one: -one.saves_us)
    time, saves, count = (sum(getattr(one, name) for one in ordered) for name in ("microseconds", "saves_us", "count"))
    return KernelLoss(time, saves, int(count), ordered[0].example, ordered[0].detail)


def _take_away(loss: KernelLoss, microseconds: float) -> KernelLoss:
    return replace(loss, microseconds=loss.microseconds - microseconds, saves_us=loss.saves_us - microseconds)


def _ratio(row: Mapping[str, str], name: str) -> float:
    try:
        value = float(row.get(name) or 0)
    except ValueError:
        return 0.0
    return value if 0 < value < 1e6 else 0.0  # noqa: PLR2004 - no ratio, percentage or number of cores is this large
