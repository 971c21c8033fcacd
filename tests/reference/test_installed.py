"""Test where the reference transformer follows the installed framework."""

from __future__ import annotations

import pytest

from ms_tune.dialects.job_parts import DType
from ms_tune.facts.training import Framework
from ms_tune.job import Job
from ms_tune.reference import mindspeed as reference_mindspeed
from tests.dryrun.configs import MINDSPEED, edited, source_of

MINDFORMERS = "mindformers.experimental.parallel_core.pynative"


@pytest.mark.parametrize(
    ("package", "normalization", "dtype"),
    [
        (None, "RMSNorm", None),
        ("mindspeed_ms", "RMSNorm", None),
        (MINDFORMERS, "RMSNorm", DType.FLOAT32),
        (MINDFORMERS, "LayerNorm", DType.FLOAT32),
        (MINDFORMERS, "FusedRMSNorm", DType.BFLOAT16),
    ],
)
def test_normalisations_have_the_number_format_of_the_installed_framework(
    package: str | None, normalization: str, dtype: DType | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = None if package is None else Framework(package, "a framework")
    monkeypatch.setattr(reference_mindspeed, "mindspeed_framework", lambda: found)
    config = edited(MINDSPEED, "model_config", {**MINDSPEED["model_config"], "normalization": normalization})
    job = reference_mindspeed.read_mindspeed(Job(source_of(config)), devices=8)
    assert job.config.precision.norm is dtype
