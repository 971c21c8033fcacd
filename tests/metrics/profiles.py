"""Make Ascend profiles for tests: one step of a few kernels, collectives, launches and idle times, in the exporters' format."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BASE = 1736408883700000
# Columns of kernel_details.csv (torch_npu 2.1 with CANN 8, level 1, PipeUtilization) behind the duration.
COLUMNS = (
    *("Block Dim", "Input Shapes", "aic_mac_ratio", "aic_mte2_ratio", "cube_utilization(%)"),
    *("aiv_vec_ratio", "aiv_mte2_ratio", "aiv_mte3_ratio"),
)
DEVICE, HCCL, CANN, PYTHON, OVERLAP = 10, 11, 12, 13, 14


@dataclass
class Step:
    """A step that is built from left to right; all times in microseconds."""

    now: float = 0.0
    compute: float = 0.0
    exposed: float = 0.0
    free: float = 0.0
    events: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    links: dict[str, Any] = field(default_factory=dict)  # of communication_matrix.json
    pipeline: dict[str, Any] | None = None  # of MindSpore's data
    communication: dict[str, dict[str, Any]] = field(default_factory=lambda: {"p2p": {}, "collective": {}})
    flows: int = 0

    def stamp(self, at: float) -> str:
        return f"{BASE + int(at)}.{round(at % 1 * 1000):03d}"

    def event(self, pid: int, name: str, start: float, length: float, **arguments: object) -> None:
        self.events.append(
            {"name": name, "pid": pid, "tid": 2, "ts": self.stamp(start), "dur": length, "ph": "X"}
            | ({"args": arguments} if arguments else {})
        )

    def launched(self, at: float, host: float) -> None:
        """Add a flow from the host to the event that starts at a moment."""
        self.flows += 1
        for phase, when, pid in (("s", host, CANN), ("f", at, DEVICE)):
            self.events.append(
                {
                    "name": "HostToDevice",
                    "ph": phase,
                    "cat": "HostToDevice",
                    "id": str(self.flows),
                    "pid": pid,
                    "ts": self.stamp(when),
                }
            )

    def kernel(
        self,
        length: float,
        name: str = "MatMul_1",
        *,
        core: str = "AI_CORE",
        host: float | None = None,
        columns: tuple[object, ...] = (),
    ) -> Step:
        """Add a kernel; by default its launch was long before. ``columns``: the rest of its row, from COLUMNS."""
        self.event(DEVICE, name, self.now, length, **{"Task Type": "AI_CORE", "Physic Stream Id": 2})
        self.event(OVERLAP, "Computing", self.now, length)
        self.launched(self.now, max(self.now - 500, -50) if host is None else host)
        rest = "".join(f',"{value}"' for value in columns)
        self.kernels.append(f"1,2,{name},{name.partition('_')[0]},{core},{self.stamp(self.now)}\t,{length}{rest}")
        self.now += length
        self.compute += length
        return self

    def idle(self, length: float, *, late: float, doing: str = "") -> Step:
        """Add idle time; the next kernel is launched after this time."""
        self.event(OVERLAP, "Free", self.now, length)
        if doing:
            self.event(PYTHON, doing, self.now, length)
        begin = self.now
        self.now += length
        self.free += length
        return self.kernel(20.0, "Add_2", host=begin + late)

    def collective(
        self,
        length: float,
        transit: float,
        *,
        point_to_point: bool = False,
        packets: tuple[str, float, int, float] | None = None,
    ) -> Step:
        """Add communication that nothing overlaps. ``packets``: transport, megabytes of one, number, GB/s."""
        kind = "hcom_receive" if point_to_point else "hcom_allReduce"
        name = f"{kind}__586_{len(self.communication['p2p']) + len(self.communication['collective'])}_1"
        self.event(HCCL, name, self.now, length, data_type="FP32")
        self.kernels.append(f"1,9,{name},{kind}_,COMMUNICATION,{self.stamp(self.now)}\t,{length}")
        self.event(OVERLAP, "Communication(Not Overlapped)", self.now, length)
        self.launched(self.now, self.now - 100)
        times = {"Elapse Time(ms)": length / 1000, "Transit Time(ms)": transit / 1000, "Wait Time(ms)": 0.01}
        entry: dict[str, Any] = {"Communication Time Info": times}
        if packets:
            transport, size, count, speed = packets
            sizes = {f"{size}": [count, size * count / speed]}
            entry["Communication Bandwidth Info"] = {transport: {"Size Distribution": sizes}, "SDMA": {}}
        self.communication["p2p" if point_to_point else "collective"][f"{name}@17"] = entry
        self.now += length
        self.exposed += length
        return self

    def write(
        self, folder: Path, rank: int = 0, *, level: int = 1, stacks: bool = False, framework: str = "pt"
    ) -> Path:
        """Write the export."""
        above = folder / f"rank{rank}_ascend_{framework}"
        output = above / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        info = {
            "config": {
                "experimental_config": {"_profiler_level": f"Level{level}"},
                "common_config": {"with_stack": stacks},
            }
        }
        (above / f"profiler_info_{rank}.json").write_text(json.dumps(info), "utf-8")
        names = {DEVICE: "Ascend Hardware", HCCL: "HCCL", CANN: "CANN", PYTHON: "Python", OVERLAP: "Overlap Analysis"}
        heads = [{"name": "process_name", "pid": pid, "ph": "M", "args": {"name": name}} for pid, name in names.items()]
        (output / "trace_view.json").write_text(json.dumps([*heads, *self.events]), "utf-8")
        stage = self.compute + self.exposed + self.free
        (output / "step_trace_time.csv").write_text(
            "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
            "Communication(Not Overlapped and Exclude Receive),Preparing\n"
            f"50,{self.compute},{self.exposed},0,{self.exposed},{self.free},{stage},0,{self.exposed},100.5\n",
            "utf-8",
        )
        head = ",".join(["Step Id,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us)", *COLUMNS])
        if self.links:
            matrix = {"step50": {"p2p": {}, "collective": {"allreduce-total@17": self.links}}}
            (output / "communication_matrix.json").write_text(json.dumps(matrix), "utf-8")
        if self.pipeline:
            (output / "minddata_pipeline_summary_0.json").write_text(json.dumps(self.pipeline), "utf-8")
        (output / "kernel_details.csv").write_text("\n".join([head, *self.kernels, ""]), "utf-8")
        (output / "communication.json").write_text(json.dumps({"step50": self.communication}), "utf-8")
        return output


def host_bound() -> Step:
    """Return a step of few, late-launched kernels; the collective waits for equally late ranks."""
    step = Step()
    for _ in range(10):
        step.kernel(5.0).idle(200.0, late=190.0, doing="torch/nn/modules/module.py: forward")
    return step.collective(8000.0, 200.0).kernel(50.0)


def operator_bound() -> Step:
    """Return a step of kernels only."""
    step = Step()
    for _ in range(20):
        step.kernel(500.0).kernel(100.0, "Softmax_1", core="AI_CPU")
    return step.idle(300.0, late=0.0)


def network_bound() -> Step:
    """Return a step of collectives that transfer data all the time."""
    return Step().kernel(2000.0).collective(9000.0, 8500.0).kernel(500.0)


def waiting() -> Step:
    """Return a step whose collectives wait, although the host is early and the device has work."""
    return Step().kernel(3500.0).collective(6000.0, 300.0).kernel(500.0)


def pipeline() -> Step:
    """Return a step of a stage that waits for another stage."""
    return Step().kernel(2500.0).collective(5000.0, 100.0, point_to_point=True).kernel(500.0)
