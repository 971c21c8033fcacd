"""``dryrun --report``: both figures of a dynamic-graph config, and a config that tells nothing of its author."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ms_tune.cli.main import main
from ms_tune.dryrun import both
from ms_tune.dryrun import dynamic as reference
from ms_tune.facts.training import Framework
from tests.dryrun import fakes
from tests.dryrun.configs import MINDFORMERS
from tests.dryrun.fakes import GIB, good_child
from tests.reference.configs import CASES

if TYPE_CHECKING:
    from collections.abc import Callable

# The reference's job is of its own kind: such a child needs half as much.
CHILD = (
    "import json\nfrom pathlib import Path\n"
    "job = json.loads(Path('job.json').read_text())\n"
    "if 'config_file' in str(job):\n    exec(REAL)\nelse:\n    exec(REFERENCE)\n"
)


def child(real: str, other: str) -> str:
    return f"REAL = {real!r}\nREFERENCE = {other!r}\n{CHILD}"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    def install(real: str, other: str) -> None:
        found = Framework("mindformers.pynative", "MindFormers 2.1.0")
        for module in (reference, both):
            monkeypatch.setattr(module, "pynative_framework", lambda: found)
        (tmp_path / "fake").mkdir()
        fakes.install(monkeypatch, tmp_path / "fake", child(real, other), mindformers=True)
        monkeypatch.chdir(tmp_path)

    return install


def config(**changes: Any) -> Path:  # noqa: ANN401 - settings are of all types
    data = json.loads(json.dumps(CASES["Qwen3"].config))
    data.update(changes)
    Path("config.yaml").write_text("# of Mrs. Wang\n" + yaml.safe_dump(data), encoding="utf-8")
    return Path("config.yaml")


def test_both_figures_are_in_the_file(
    installed: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    installed(good_child(3 * GIB, 4 * GIB), good_child(GIB, 2 * GIB))
    told = {"project": "secret", "checkpoint": {"save_path": "/home/wang/out", "prefix": "wang"}}
    code = main(["dryrun", str(config(**told)), "--devices", "4", "--layers", "all", "--report", "sent.txt"])
    text = Path("sent.txt").read_text(encoding="utf-8")
    assert code == 0
    assert "MindFormers 2.1.0" in text
    assert "3,072.0" in text
    assert "1,024.0" in text
    assert "-2,048.0" in text
    assert not any(word in text for word in ("wang", "Wang", "secret", "/home"))
    assert "sent.txt" in capsys.readouterr().err


def test_a_run_that_fails_is_told_without_its_words(
    installed: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    installed("raise SystemExit('/home/wang: 1')", good_child())
    code = main(["dryrun", str(config()), "--devices", "4", "--layers", "all", "--report", "sent.txt", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 2
    assert found["real"]["stages"] == []
    assert found["real"]["failure"].startswith("RunError: ")
    assert found["reference"]["stages"][0]["peak_bytes"] == GIB
    assert "wang" not in Path("sent.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("data", "text"), [(MINDFORMERS, "not for mindformers"), (CASES["Qwen3"].config, "-m ms_tune")]
)
def test_where_there_are_not_two_figures(
    data: dict[str, Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    assert main(["dryrun", "config.yaml", "--report", "sent.txt"]) == 2
    assert text in capsys.readouterr().err
    assert not Path("sent.txt").exists()


def test_options_that_do_not_go_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dryrun", "config.yaml", "--report", "sent.txt", "--reference"]) == 2
    assert "--reference" in capsys.readouterr().err


def test_what_is_its_authors_own_is_taken_out() -> None:
    told = yaml.safe_load(
        both.without_own_words(
            {
                "model": {"model_type": "qwen3", "hidden_size": 64, "compute_dtype": "bfloat16", "my_key": "张三"},
                "recompute": {"select_module": {r"mlp\.linear_fc1": ["0-3"]}, "mode": "select"},
                "checkpoint": {"load_path": "model", "save_path": "model", "prefix": "qwen3"},
                "train_dataset": {
                    "dataloader": {"data_path": ["1", "/data/wang/a", "b c"], "column_names": ["input_ids"]}
                },
                "optimizer": {"learning_rate": "1e-5", "max_device_memory": "58GB", "name": "wang", 7: None},
            }
        )
    )
    assert told["model"] == {
        "model_type": "qwen3",
        "hidden_size": 64,
        "compute_dtype": "bfloat16",
        "key-1": "text-1",
    }
    assert told["recompute"] == {"select_module": {r"mlp\.linear_fc1": ["0-3"]}, "mode": "select"}
    assert told["checkpoint"]["load_path"] == told["checkpoint"]["save_path"] != told["checkpoint"]["prefix"]
    assert all(one.startswith("text-") for one in told["train_dataset"]["dataloader"]["data_path"])
    assert told["optimizer"]["learning_rate"] == "1e-5"
    assert told["optimizer"]["max_device_memory"] == "58GB"
    assert "wang" not in str(told)
