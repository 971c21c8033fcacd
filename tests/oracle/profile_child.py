"""Write a profile with MindSpore's own exporter: ``python -m tests.oracle.profile_child EVENTS FOLDER``; runs MindSpore.

``EVENTS`` is a JSON file: ``events`` in the format of msprof, ``communication`` in the format of its analysis, and, for
its host activity, ``base`` in microseconds, ``launches`` of the framework (operator, start and end since then) and
``kernels`` (rows of the kernels' table: name, type, core, start, duration).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mindspore.profiler.analysis.parser.timeline_assembly_factory.ascend_timeline_assembler import (
    AscendTimelineAssembler,
)
from mindspore.profiler.analysis.parser.timeline_event.fwk_event import (
    OpRangeStructField,
    ProfilerEvent,
    ProfilerModule,
)
from mindspore.profiler.analysis.time_converter import TimeConverter
from mindspore.profiler.analysis.viewer.ascend_communication_viewer import AscendCommunicationViewer
from mindspore.profiler.analysis.viewer.ascend_kernel_details_viewer import AscendKernelDetailsViewer
from mindspore.profiler.analysis.viewer.ascend_step_trace_time_viewer import AscendStepTraceTimeViewer
from mindspore.profiler.analysis.viewer.ascend_timeline_viewer import AscendTimelineViewer
from mindspore.profiler.common.constant import FileConstant, OpSummaryHeaders, ProfilerActivity


def main(source: Path, folder: Path) -> None:
    """Write ``ASCEND_PROFILER_OUTPUT`` below a folder ``*_ascend_ms``."""
    given: dict[str, Any] = json.loads(source.read_text("utf-8"))
    output, analysed = folder / "ASCEND_PROFILER_OUTPUT", folder / "analyze"
    for one in (output, analysed, folder / "logs"):
        one.mkdir(parents=True)
    (analysed / "communication.json").write_text(json.dumps(given["communication"]), "utf-8")
    settings = {
        "profiler_level": "Level1",
        "jit_level": "O0",
        "ascend_ms_dir": str(folder),
        "ascend_profiler_output_path": str(output),
        "msprof_analyze_output_path": str(analysed),
        "is_set_schedule": False,
        "activities": [ProfilerActivity.CPU.value] if "launches" in given else [],
    }
    assembler = AscendTimelineAssembler(**settings)
    TimeConverter.init_parameters(1000, 0, given.get("base", 0) * 1000)
    launches = [launch(*one) for one in given.get("launches", ())]
    assembler.assemble({"msprof_timeline": given["events"], "mindspore_op_list": launches})
    data = {"trace_view_container": assembler.trace_view_container}
    if "kernels" in given:
        AscendKernelDetailsViewer(**settings).save({**data, **kernels(given["kernels"])})
    for viewer in (AscendTimelineViewer, AscendStepTraceTimeViewer, AscendCommunicationViewer):
        viewer(**settings).save(data)
    (folder / "profiler_info_3.json").write_text(json.dumps({"ms_profiler_info": {"rank_id": 3}}), "utf-8")


def launch(name: str, start: float, end: float) -> dict[str, Any]:
    """Return a kernel's launch as the framework records it, in nanoseconds."""
    fixed: dict[int, int | bool] = {field.value: 0 for field in OpRangeStructField}
    fixed |= {
        OpRangeStructField.THREAD_ID.value: 2,
        OpRangeStructField.FLOW_ID.value: 2**64 - 1,
        OpRangeStructField.START_TIME_NS.value: round(start * 1000),
        OpRangeStructField.END_TIME_NS.value: round(end * 1000),
        OpRangeStructField.MODULE_INDEX.value: [*ProfilerModule].index(ProfilerModule.KERNEL),
        OpRangeStructField.EVENT_INDEX.value: [*ProfilerEvent].index(ProfilerEvent.KERNEL_LAUNCH),
    }
    names = {OpRangeStructField.NAME.value: name, OpRangeStructField.FULL_NAME.value: name}
    return {FileConstant.FIX_SIZE_DATA: fixed, **names}


def kernels(rows: list[list[str]]) -> dict[str, Any]:
    """Return the kernels in the format of msprof."""
    heads = (
        OpSummaryHeaders.OP_NAME,
        OpSummaryHeaders.OP_TYPE,
        OpSummaryHeaders.TASK_TYPE,
        OpSummaryHeaders.TASK_START_TIME,
        OpSummaryHeaders.TASK_DURATION,
        OpSummaryHeaders.STEP_ID,
    )
    names = [head.value for head in heads]
    table = np.array([(*row, "") for row in rows], dtype=[(name, object) for name in names])
    return {"op_summary": table, "op_summary_headers": names}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
