"""One step time from a log or a profile, or a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ms_tune import api
from ms_tune.errors import UsageError
from tests.performance.profiles import operator_bound
from tests.trace.training_logs import megatron_log, static_line

if TYPE_CHECKING:
    from pathlib import Path


def test_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text(megatron_log([100, 200]) + megatron_log([9000, *[1500] * 8]), "utf-8")
    assert api.measured_step(log) == 1.5
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker_0.log").write_text(megatron_log([9000, *[1500] * 8], tflops=9999.0), "utf-8")


def test_of_a_profile(tmp_path: Path) -> None:
    step = operator_bound()
    step.write(tmp_path)
    assert api.measured_step(tmp_path) == pytest.approx(step.now / 1e6)


def test_what_is_not_to_be_believed(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text(megatron_log([9000]), "utf-8")
    with pytest.raises(UsageError, match="only one step"):
        api.measured_step(log)
    log.write_text(static_line(1, 900, norm=1.0) + static_line(1, 800, norm=2.0) + static_line(2, 100), "utf-8")
    with pytest.raises(UsageError, match="are mixed"):
        api.measured_step(log)
    (operator_bound().write(tmp_path / "p") / "trace_view.json").write_text("[{", "utf-8")
    with pytest.raises(UsageError, match="cut off"):
        api.measured_step(tmp_path / "p")
