"""Test the first minute: `ms-tune` without arguments in a folder, and `ms-tune demo`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.cli import start
from ms_tune.cli.main import main
from ms_tune.report.console import Console
from ms_tune.text import Language
from tests.cli.test_main import ROOT

CONFIG = (ROOT / "examples" / "out_of_memory.yaml").read_text("utf-8")
SCRIPT = "#!/bin/bash\n/usr/bin/msrun --worker_num 8 pretrain_gpt.py --num-layers 2\n"
TRIES = " Try:\n  ms-tune "


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, ""),
        ({"notes.yaml": "a: 1\n", "build.sh": "make all\n", ".hidden.yaml": CONFIG, "node_modules/a.yaml": CONFIG}, ""),
        ({"train.yaml": CONFIG}, f"This folder has 1 config.{TRIES}check train.yaml"),
        (
            {"b.yaml": CONFIG, "my a.yaml": CONFIG, "x/c.yml": CONFIG, "run.sh": SCRIPT, "worker_0.log": "step 1\n"},
            f"This folder has 3 configs, 1 launch script, 1 log.{TRIES}check b.yaml",
        ),
        ({"x/y/run.sh": "python -m torch.distributed.launch a.py"}, f"1 launch script.{TRIES}check x/y/run.sh"),
        ({"x/y/z/train.yaml": CONFIG}, ""),
        ({"worker 0.log": "step 1\n"}, f"1 log.{TRIES}metrics 'worker 0.log'"),
        ({"prof/rank0_ascend_pt/profiler_info.json": "{}"}, f"1 profile.{TRIES}profile prof/rank0_ascend_pt"),
        (
            {f"{number:04}.yaml": CONFIG for number in range(300)},
            "This folder is large; among its first files are 199 configs.",
        ),
    ],
)
def test_a_folder_is_described(tmp_path: Path, files: dict[str, str], sentence: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.yaml").symlink_to(tmp_path / "nowhere")
    said = start.describe_folder(tmp_path, Console(Language.EN))
    assert sentence in said
    assert bool(sentence) == bool(said)


@pytest.mark.slow
def test_a_huge_folder_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def read_nothing(path: Path, _most: int) -> bytes:
        read.append(path)
        return b""

    monkeypatch.setattr(start, "read_bytes", read_nothing)
    for number in range(30):
        (tmp_path / str(number)).mkdir()
        for other in range(300):
            (tmp_path / str(number) / f"{other}.yaml").touch()
    assert start.describe_folder(tmp_path, Console(Language.EN)) == ""
    assert len(read) < 200


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_demo_leads_from_a_config_that_does_not_fit_to_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], language: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / "cache"))
    assert main(["demo", "--lang", language]) == 0
    out = capsys.readouterr().out
    over, fits = {"en": ("estimated to exceed the limit", "estimated to fit"), "zh": ("估算显存不足", "估算显存充足")}[
        language
    ]
    assert 0 < out.index(over) < out.index("MST102") < out.index("lint --fix") < out.index("--set ") < out.index(fits)
    assert "min_lr: 3.e-5" in (tmp_path / "ms-tune-demo" / "train.yaml").read_text("utf-8")
    assert main(["demo", "--lang", language]) == 2
