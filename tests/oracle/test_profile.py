"""Check that profiles of MindSpore's own exporter are read like those in torch_npu's format of the same events."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_tune import analyse_profiles
from ms_tune.readers.scopes import ScopePass
from tests.metrics import profiles
from tests.metrics.profiles import CANN, DEVICE, HCCL, OVERLAP

if TYPE_CHECKING:
    from ms_tune.profile.result import ProfileReport

pytestmark = pytest.mark.mindspore


def exported(step: profiles.Step, folder: Path, operators: Sequence[str] = ()) -> Path:
    """Export the events with MindSpore's exporter; with the operators that launched the kernels, in order."""
    names = {
        DEVICE: "Ascend Hardware",
        HCCL: "HCCL",
        CANN: "CANN",
        profiles.PYTHON: "python",
        OVERLAP: "Overlap Analysis",
    }
    heads = [
        {"name": "process_name", "pid": pid, "tid": 0, "ph": "M", "args": {"name": name}} for pid, name in names.items()
    ]
    # The rows of the timeline name the device's activities, too.
    kinds = ("Computing", "Communication(Not Overlapped)", "Communication", "Free")
    heads += [
        {"name": "thread_name", "pid": OVERLAP, "tid": tid, "ph": "M", "args": {"name": kind}}
        for tid, kind in enumerate(kinds)
    ]
    communication = {
        name: {
            "Communication Time Info": {
                "Start Timestamp(us)": float(profiles.BASE),
                **expected["Communication Time Info"],
            },
            "Communication Bandwidth Info": {},
        }
        for kind in step.communication.values()
        for name, expected in kind.items()
    }
    events = [
        {"tid": 2, **event}
        | ({"dur": str(event["dur"])} if "dur" in event else {})
        | ({"tid": kinds.index(event["name"])} if event["pid"] == OVERLAP else {})
        for event in step.events
    ]
    given: dict[str, object] = {"events": [*heads, *events], "communication": communication}
    if operators:
        starts = [event for event in step.events if event.get("ph") == "s"]
        since = [float(event["ts"]) - profiles.BASE for event in starts]
        launches = [(name, at - 0.1, at + 0.1) for name, at in zip(operators, since, strict=True)]
        # Step id, stream, name, type, core, start, duration.
        rows = [[one.strip() for one in row.split(",")[2:]] for row in step.kernels]
        given |= {"base": profiles.BASE, "launches": launches, "kernels": rows}
    source = folder / "msprof.json"
    source.write_text(json.dumps(given), "utf-8")
    made = folder / "host_1_20260101_ascend_ms"
    command = [sys.executable, "-m", "tests.oracle.profile_child", str(source), str(made)]
    subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[2], timeout=300)
    return made


def shares(report: ProfileReport) -> dict[str, float]:
    return {cause.value: share for cause, share in report.shares.items()}


@pytest.mark.parametrize(
    "name",
    [
        "host_bound",
        *(pytest.param(one, marks=pytest.mark.more) for one in ("operator_bound", "network_bound", "waiting")),
        "pipeline",
    ],
)
def test_the_same_events_from_both_exporters(tmp_path: Path, name: str) -> None:
    step: profiles.Step = getattr(profiles, name)()
    made = exported(step, tmp_path)
    found, other = analyse_profiles(made), analyse_profiles(step.write(tmp_path / "torch"))
    assert shares(found) == pytest.approx(shares(other))
    assert found.verdict.bound is other.verdict.bound
    assert found.ranks[0].rank == 3
    assert found.identity_error_us is not None
    assert found.identity_error_us < 0.001
    assert "identity" not in {problem.id for problem in found.problems}
    assert [(gap.timestamp_us, gap.cause, gap.before, gap.after) for gap in found.gaps] == [
        (gap.timestamp_us, gap.cause, gap.before, gap.after) for gap in other.gaps
    ]
    with (made / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert float(row["Computing"]) == pytest.approx(step.compute)
    if name != "pipeline":  # its Stage is the time of the collectives alone, and no step
        assert float(row["Stage"]) == pytest.approx(step.exposed)


def test_the_layers_of_kernels_that_the_host_is_known_of(tmp_path: Path) -> None:
    scope = "Default/network-Net/model-GPTModel/decoder-Block/layers-CellList/{}-Layer/linear-Linear/MatMul-op{}"
    step, operators = profiles.Step(), []
    for number in range(8):
        layer, way = number % 2, ("", "Gradients/")[number // 4]
        step.kernel(10.0 * (number + 1), "aclnnMatmul_MatMulV3", host=10.0 * number)
        operators.append(way + scope.format(layer, number))
    made = exported(step, tmp_path, operators)
    with (made / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").open(encoding="utf-8") as file:
        names = [row["Name"] for row in csv.DictReader(file)]
    assert names[5] == f"Kernel::KernelLaunch::{operators[5]}/aclnnMatmul_MatMulV3"
    (rank,) = analyse_profiles(made).ranks
    assert rank.kernels is not None
    assert [(one.name, dict(one.microseconds)) for one in rank.kernels.layers] == [
        ("layers.0", {ScopePass.FORWARD: 10.0 + 30.0, ScopePass.BACKWARD: 50.0 + 70.0}),
        ("layers.1", {ScopePass.FORWARD: 20.0 + 40.0, ScopePass.BACKWARD: 60.0 + 80.0}),
    ]
