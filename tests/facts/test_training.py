"""Test the detection of the library for dynamic-graph configs: by files that distinguish releases, never by importing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ms_tune.facts.training import Framework, mindspeed_framework, pynative_framework
from ms_tune.text import Message

READS = "def init_configs_from_yaml(path): ...\n"
TRAINS = "from hyper_parallel import enable_mindspore_backward_compat\n"
PACKAGES = ("mindformers", "mindspeed_ms", "hyper_parallel")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of packages that precedes all others and contains none of the three."""
    places = [place for place in sys.path if "site-packages" not in place]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *places])
    for name in PACKAGES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def write(site: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        (site / name.split("/", maxsplit=1)[0] / "__init__.py").write_text("raise RuntimeError('imported')\n")


def test_mindspeed_comes_before_the_mindformers_that_still_holds_it(site: Path) -> None:
    assert mindspeed_framework() is None
    write(site, {"mindformers/experimental/parallel_core/pynative/config.py": "nothing"})
    assert mindspeed_framework() is None
    write(site, {"mindformers/experimental/parallel_core/pynative/config.py": READS})
    found = mindspeed_framework()
    assert found is not None
    assert found.package == "mindformers.experimental.parallel_core.pynative"
    write(site, {"mindspeed_ms/core/config.py": READS})
    assert mindspeed_framework() == Framework("mindspeed_ms", "MindSpeed-Core-MS")


def test_what_a_dynamic_trainer_lacks_is_named(site: Path) -> None:
    def lacking() -> tuple[str, object]:
        found = pynative_framework()
        assert isinstance(found, Message)
        return found.id, found.params.get("module")

    assert lacking() == ("pynative.no-mindformers", None)
    write(site, {"mindformers/pynative/trainer/trainer.py": "an earlier form"})
    assert lacking() == ("pynative.no-trainer", None)
    write(site, {"mindformers/pynative/trainer/trainer.py": TRAINS})
    assert lacking() == ("pynative.no-hyper-parallel", None)
    write(site, {"hyper_parallel/core/dtensor/dtensor.py": ""})
    assert lacking() == ("pynative.other-hyper-parallel", "hyper_parallel/platform/mindspore/autograd_compat.py")
    write(site, {"hyper_parallel/platform/mindspore/autograd_compat.py": ""})
    assert pynative_framework() == Framework("mindformers.pynative", "MindFormers")  # without metadata: no number


def test_the_release_is_reported_where_it_is_known(site: Path) -> None:
    write(site, {"mindformers/pynative/trainer/trainer.py": TRAINS, "hyper_parallel/core/dtensor/dtensor.py": ""})
    write(site, {"hyper_parallel/platform/mindspore/autograd_compat.py": ""})
    metadata = site / "mindformers-2.1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: mindformers\nVersion: 2.1.0\n")
    assert pynative_framework() == Framework("mindformers.pynative", "MindFormers 2.1.0")
