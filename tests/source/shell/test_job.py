"""Jobs of MindFormers in launch scripts: the config, what the command line says over it, the processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ms_tune.job.script import ScriptJob, TrainingJob
from ms_tune.source.shell.read import find_above, has_folder_above, is_to_be_filled_in

if TYPE_CHECKING:
    from pathlib import Path


def job(folder: Path, text: str) -> TrainingJob:
    """The one job of a script beside which ``job.yaml`` stands."""
    (folder / "job.yaml").write_text("use_parallel: False\nrunner_config: {batch_size: 4}\n", encoding="utf-8")
    (one,) = ScriptJob(folder / "scripts" / "run.sh", text).config_jobs
    return one


@pytest.mark.parametrize(
    ("text", "processes"),
    [
        ("msrun --worker_num 16 --local_worker_num 8 run_mindformer.py --config job.yaml\n", 16),
        ("python run_mindformer.py --config job.yaml\n", 1),
        ('bash scripts/msrun_launcher.sh "run_mindformer.py --config job.yaml"\n', 8),
        ('bash scripts/msrun_launcher.sh "run_mindformer.py --config job.yaml" 32 8\n', 32),
        ("msrun --worker_num $1 run_mindformer.py --config job.yaml\n", None),
    ],
)
def test_processes(tmp_path: Path, text: str, processes: int | None) -> None:
    one = job(tmp_path, text)
    assert (one.processes, one.path, bool(one.unknown)) == (processes, tmp_path / "job.yaml", processes is None)


def test_what_the_command_line_says_over_the_config(tmp_path: Path) -> None:
    arguments = "--config job.yaml --use_parallel True --batch_size=2 --options a.b=1.5 trainer.type=x"
    one = job(tmp_path, f"export A=1\npython run_mindformer.py {arguments}\n")
    said = {".".join(path): value for path, (value, _) in one.overrides.items()}
    assert said == {"use_parallel": True, "runner_config.batch_size": 2, "a.b": 1.5, "trainer.type": "x"}
    source = one.source()
    assert source is not None
    assert one.value(source, "use_parallel") is True
    assert one.value(source, "runner_config.sink_mode", 7) == 7
    assert (one.variable("A"), one.variable("B")) == ("1", None)


def test_files_that_a_script_names(tmp_path: Path) -> None:
    script = tmp_path / "a" / "b" / "run.sh"
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "x.yaml").touch()
    assert find_above(script, "configs/x.yaml") == tmp_path / "configs" / "x.yaml"
    assert find_above(script, "configs/y.yaml") is None
    assert has_folder_above(script, "configs/y.yaml")
    assert not has_folder_above(script, "elsewhere/y.yaml")
    assert [is_to_be_filled_in(one) for one in ("path/to/x.yaml", "your.yaml", "x.yaml")] == [True, True, False]
