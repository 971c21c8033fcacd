"""Profiles that MindSpore's own exporter wrote are read as those of torch_npu's form, of the same events."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_tune import api
from tests.performance import profiles
from tests.performance.profiles import CANN, DEVICE, HCCL, OVERLAP

if TYPE_CHECKING:
    from ms_tune.performance.profile_result import ProfileReport

pytestmark = pytest.mark.mindspore


def exported(step: profiles.Step, folder: Path) -> Path:
    """The events through MindSpore's exporter."""
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
    # The time line tells what the device does by its rows' names, too.
    kinds = ("Computing", "Communication(Not Overlapped)", "Communication", "Free")
    heads += [
        {"name": "thread_name", "pid": OVERLAP, "tid": tid, "ph": "M", "args": {"name": kind}}
        for tid, kind in enumerate(kinds)
    ]
    communication = {
        name: {
            "Communication Time Info": {"Start Timestamp(us)": float(profiles.BASE), **told["Communication Time Info"]},
            "Communication Bandwidth Info": {},
        }
        for kind in step.communication.values()
        for name, told in kind.items()
    }
    events = [
        {"tid": 2, **event}
        | ({"dur": str(event["dur"])} if "dur" in event else {})
        | ({"tid": kinds.index(event["name"])} if event["pid"] == OVERLAP else {})
        for event in step.events
    ]
    source = folder / "msprof.json"
    source.write_text(json.dumps({"events": [*heads, *events], "communication": communication}), "utf-8")
    made = folder / "host_1_20260101_ascend_ms"
    command = [sys.executable, "-m", "tests.oracle.profile_child", str(source), str(made)]
    subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[2], timeout=300)
    return made


def shares(report: ProfileReport) -> dict[str, float]:
    return {cause.value: share for cause, share in report.shares.items()}


@pytest.mark.parametrize("name", ["host_bound", "operator_bound", "network_bound", "waiting", "pipeline"])
def test_the_same_events_from_both_exporters(tmp_path: Path, name: str) -> None:
    step: profiles.Step = getattr(profiles, name)()
    made = exported(step, tmp_path)
    found, other = api.profile(made), api.profile(step.write(tmp_path / "torch"))
    assert shares(found) == pytest.approx(shares(other))
    assert found.verdict.bound is other.verdict.bound
    assert found.ranks[0].rank == 3
    assert found.identity_error_us is not None
    assert found.identity_error_us < 0.001
    assert "identity" not in {problem.id for problem in found.problems}
    assert [(gap.start, gap.cause, gap.before, gap.after) for gap in found.gaps] == [
        (gap.start, gap.cause, gap.before, gap.after) for gap in other.gaps
    ]
    with (made / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert float(row["Computing"]) == pytest.approx(step.compute)
    if name != "pipeline":  # its Stage is the time of the collectives alone, and no step
        assert float(row["Stage"]) == pytest.approx(step.exposed)
