"""Lets MindSpore's own exporter write a profile: ``python -m tests.oracle.profile_child EVENTS FOLDER``; runs MindSpore.

``EVENTS`` is a JSON file: ``events`` as msprof hands them to it, ``communication`` as its analysis writes them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mindspore.profiler.analysis.parser.timeline_assembly_factory.ascend_timeline_assembler import (
    AscendTimelineAssembler,
)
from mindspore.profiler.analysis.viewer.ascend_communication_viewer import AscendCommunicationViewer
from mindspore.profiler.analysis.viewer.ascend_step_trace_time_viewer import AscendStepTraceTimeViewer
from mindspore.profiler.analysis.viewer.ascend_timeline_viewer import AscendTimelineViewer


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
        "activities": [],
    }
    assembler = AscendTimelineAssembler(**settings)
    assembler.assemble({"msprof_timeline": given["events"]})
    data = {"trace_view_container": assembler.trace_view_container}
    for viewer in (AscendTimelineViewer, AscendStepTraceTimeViewer, AscendCommunicationViewer):
        viewer(**settings).save(data)
    (folder / "profiler_info_3.json").write_text(json.dumps({"ms_profiler_info": {"rank_id": 3}}), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
