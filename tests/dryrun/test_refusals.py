"""Test the errors of dryrun for jobs that cannot run, or that MindFormers itself refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune.dryrun import machine
from ms_tune.dryrun.machine import check_graph_engine
from ms_tune.dryrun.reading import see_log
from ms_tune.errors import UnsupportedError
from ms_tune.source.yaml import source_of

_BY_CANN = source_of({"context": {"jit_config": {"jit_level": "O2"}}}, Path("config.yaml"))


def test_a_graph_that_cann_compiles_needs_cann(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_real_cann", lambda: None)
    with pytest.raises(UnsupportedError) as caught:
        check_graph_engine(_BY_CANN)
    assert caught.value.message.id == "dryrun.graph-engine"


@pytest.mark.parametrize(
    "config",
    [{}, {"context": None}, {"context": {"jit_config": ["O2"]}}, {"context": {"jit_config": {"jit_level": "O1"}}}],
)
def test_other_graphs_need_none(config: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_real_cann", lambda: None)
    check_graph_engine(source_of(config, Path("config.yaml")))


@pytest.mark.parametrize(
    ("kind", "phase", "text"),
    [
        ("mindformers", "build", "dryrun.run.log.build"),
        ("mindformers", "step", "dryrun.run.log"),
        ("reference", "build", "dryrun.run.log"),
        ("pynative", "build", "reference.run.log"),
    ],
)
def test_an_error_of_mindformers_as_it_builds_the_model_is_reported_from_others(
    kind: str, phase: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"kind": kind}), encoding="utf-8")
    (tmp_path / "progress").write_text(json.dumps({"phase": phase, "step": 0, "steps": 0}), encoding="utf-8")
    assert see_log(tmp_path).id == text
