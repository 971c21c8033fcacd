"""Test ``ms-tune dryrun -- COMMAND``: the user's own program, its exit code, and its trace."""

from __future__ import annotations

import json
import pickle
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_tune.cli.main import main
from ms_tune.dryrun import command as room
from ms_tune.dryrun import ray_engine
from ms_tune.dryrun.cann_sim.environment import Backend, Cann, MindSpore
from ms_tune.dryrun.rundir import report_folder_if_interrupted
from ms_tune.dryrun.task import Observer, Task, TaskState
from ms_tune.errors import ExitCode, MsTuneError
from tests.dryrun.fakes import GIB, good_child

if TYPE_CHECKING:
    from ms_tune.dryrun.launcher import ProcessEnd
    from ms_tune.text import Message

    Command = Callable[..., tuple[int, str, str]]

# The tracker writes to the folder in MS_ALLOC_CONF.
TO_TRACKER = (
    "import os, sys\nfrom pathlib import Path\n"
    "place = Path(os.environ['MS_ALLOC_CONF'].split('memory_tracker_path:')[1])\n"
    "Path('memory_block.csv').replace(place / 'memory_block.csv')\n"
    # the record that every process writes when it imports MindSpore
    '(place / \'process.json\').write_text(\'{"pid": 1, "arguments": [], "ended": true}\')\n'
)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG", "COLUMNS", "RANK_ID", "RANK_SIZE", "MS_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(room, "find_mindspore", lambda *_: MindSpore("2.9.0", tmp_path))
    monkeypatch.setattr(room, "prepare_cann", lambda *_: Cann(Backend.STAND_IN, tmp_path / "cann"))


@pytest.fixture
def ms_tune(capsys: pytest.CaptureFixture[str]) -> Command:
    def call(code: str, *options: str, arguments: tuple[str, ...] = ()) -> tuple[int, str, str]:
        Path("train.py").write_text(code, encoding="utf-8")
        done = main(["dryrun", *options, "--", sys.executable, "train.py", *arguments])
        output = capsys.readouterr()
        return done, output.out, output.err

    return call


def run_folder() -> Path:
    (folder,) = Path("ms-tune-runs").iterdir()
    return folder


def test_the_program_runs_in_the_users_folder_with_its_arguments(ms_tune: Command) -> None:
    code = "import os, sys; print(os.getcwd(), sys.argv[1:], os.environ['MS_SIMULATION_LEVEL'])"
    ms_tune(code, arguments=("--layers", "--", "x y"))
    log = (run_folder() / "rank_0" / "log.txt").read_text("utf-8")
    assert log == f"{Path.cwd()} ['--layers', '--', 'x y'] 1\n"


@pytest.mark.slow
@pytest.mark.parametrize(("code", "form"), [(0, ()), (0, ("--json",)), (7, ("--json",)), (255, ())])
def test_its_exit_code_is_kept(ms_tune: Command, code: int, form: tuple[str, ...]) -> None:
    # A successful run without a trace has no verdict, and exit code 0 means that it fits.
    assert ms_tune(f"raise SystemExit({code})", *form)[0] == (code or ExitCode.USAGE)


def test_a_signal_is_reported_as_shells_show_it(ms_tune: Command) -> None:
    assert ms_tune("import os; os.kill(os.getpid(), 9)")[0] == 137


@pytest.mark.slow
def test_the_time_limit_is_reported_as_timeout_shows_it(ms_tune: Command) -> None:
    assert ms_tune("import time; time.sleep(600)", "--timeout", "1")[0] == 124


def test_the_report_follows_the_run(ms_tune: Command) -> None:
    code, out, err = ms_tune(good_child(3 * GIB, 4 * GIB) + TO_TRACKER)
    assert (code, "warning" in err) == (0, False)
    assert re.search(r" 3\.00 +4\.00 +56\.80 +fits$", out, re.MULTILINE)  # its row
    # 4 GiB with fragmentation, 454 MiB for workspaces
    assert "memory: fits. Needs 4.4 GiB including fragmentation and reserve, usable 56.8 GiB (52.4 GiB headroom)" in out
    assert f"next: ms-tune memory {run_folder()}" in out


def test_when_it_is_interrupted_it_says_where_the_run_lies(tmp_path: Path) -> None:
    folder = tmp_path / "partial"
    folder.mkdir()
    expected: list[str] = []

    class RecordingObserver(Observer):
        def say(self, message: Message) -> None:
            expected.append(str(message))

    with pytest.raises(KeyboardInterrupt), report_folder_if_interrupted(folder, RecordingObserver()):
        raise KeyboardInterrupt
    assert expected == [f"the results so far are in {folder}"]


def test_what_mindspore_leaves_in_the_working_folder_goes_to_the_run_folder(ms_tune: Command) -> None:
    Path("execute_order").mkdir()  # of the user, and so not touched
    code = (
        "import os\n"
        "for name in ('offload', 'rank_0/execute_order', 'rank_1/checkpoints'): os.makedirs(name)\n"
        "open('rank_0/execute_order/comm_execute_order.csv', 'w').close()\n" + good_child() + TO_TRACKER
    )
    assert ms_tune(code)[0] == 0
    assert sorted(path.name for path in Path().iterdir()) == ["execute_order", "ms-tune-runs", "rank_1", "train.py"]
    assert (run_folder() / "rank_0" / "execute_order" / "comm_execute_order.csv").is_file()


@pytest.mark.slow
def test_other_commands_judge_a_failed_command_no_more_than_dryrun_does(
    ms_tune: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trace equals that of the successful run, so that only the run's record shows the difference."""
    for end, outcome, code in (("", "fits", 0), ("raise RuntimeError('out of data')", None, 2)):
        ms_tune(good_child() + TO_TRACKER + end, "--json")
        newest = max(Path("ms-tune-runs").iterdir(), key=lambda folder: folder.stat().st_mtime_ns)
        for asked in (newest, newest / "rank_0" / "memory_block.csv"):
            assert main(["memory", "--json", str(asked)]) == code
            shown = json.loads(capsys.readouterr().out)["ranks"][0]
            assert shown["verdict"] == outcome
            if outcome is None:
                assert "RuntimeError: out of data" in shown["no_verdict_because"]


def test_while_it_runs_nobody_judges_it(ms_tune: Command) -> None:
    """The record without a verdict stays if ms-tune is killed meanwhile."""
    code = (
        "import os, shutil\nfrom pathlib import Path\n"
        "shutil.copy(Path(os.environ['MS_TUNE_TRACES']).parent / 'judged.json', 'meanwhile.json')\n"
    )
    ms_tune(code + good_child() + TO_TRACKER)
    found = [json.loads(file.read_text("utf-8")) for file in (Path("meanwhile.json"), run_folder() / "judged.json")]
    assert [list(kept["no_verdict"]) for kept in found] == [["."], []]


def test_what_processes_show_is_shown_and_not_trusted(ms_tune: Command) -> None:
    record = {
        "pid": 1,
        "arguments": ["python"],
        "ended": True,
        "reads": [{"file": "train.py", "line": 7, "how": "item()"}],
        "bounds": [{"file": "train.py", "line": 8, "how": "nonzero"}],
    }
    code = (
        good_child()
        + TO_TRACKER
        + f"(place / 'process.json').write_text({json.dumps(record)!r})\n"
        + "for number, text in enumerate(('no JSON', '[]', '{\"pid\": {}}', ' ' * 2_000_000), 2):\n"
        "    (place / f'process_{number}').mkdir()\n"
        "    (place / f'process_{number}' / 'process.json').write_text(text)\n"
    )
    done, out, err = ms_tune(code, "--json")
    result = json.loads(out)
    assert done == 0, err
    assert (result["reads"], result["bounds"]) == (record["reads"], record["bounds"])
    assert [process["pid"] for process in result["processes"]] == [1]


def test_the_device_memory_of_the_command_line_counts(ms_tune: Command) -> None:
    assert ms_tune(good_child(70 * GIB, 70 * GIB) + TO_TRACKER, "--device-memory", "128GB")[0] == 0


def test_a_block_larger_than_the_device_is_no_verdict(ms_tune: Command) -> None:
    code, out, _ = ms_tune(good_child(65 * GIB, 65 * GIB) + TO_TRACKER, "--json")
    result = json.loads(out)
    assert (code, result["verdict"]) == (ExitCode.USAGE, None)
    assert "more than the whole device" in result["no_verdict_because"]


def test_each_rank_is_a_process_of_its_own(ms_tune: Command) -> None:
    code = (
        "import os\nos.makedirs(os.environ['RANK_ID'])\nos.chdir(os.environ['RANK_ID'])\n"
        + good_child()
        + "print('RANK', os.environ['RANK_ID'], os.environ['RANK_SIZE'])\n"
        + TO_TRACKER
    )
    done, out, _ = ms_tune(code, "--ranks", "0,12", "--devices", "16", "--json")
    result = json.loads(out)
    assert done == 0
    assert [(rank["rank"], rank["peak_bytes"], rank["verdict"]) for rank in result["ranks"]] == [
        (0, GIB, "fits"),
        (12, GIB, "fits"),
    ]
    assert result["exit_code"] == 0
    for rank in (0, 12):
        assert f"RANK {rank} 16" in (run_folder() / f"rank_{rank}" / "log.txt").read_text("utf-8")


def test_job_and_rank_may_come_from_the_environment(ms_tune: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK_SIZE", "16")
    monkeypatch.setenv("RANK_ID", "5")
    ms_tune("import os; print(os.environ['RANK_ID'], os.environ['RANK_SIZE'])")
    assert (run_folder() / "rank_5" / "log.txt").read_text("utf-8") == "5 16\n"


@pytest.mark.slow
def test_the_page_for_the_browser_has_every_rank(ms_tune: Command) -> None:
    children = {"0": good_child(GIB), "1": good_child(2 * GIB)}
    # Both run at once in one folder, as two ranks of a user's program: each writes to its own folder.
    code = (
        "import os\nos.makedirs(os.environ['RANK_ID'])\nos.chdir(os.environ['RANK_ID'])\n"
        f"exec({children!r}[os.environ['RANK_ID']])\n" + TO_TRACKER
    )
    done, _, err = ms_tune(code, "--ranks", "0,1", "--devices", "2", "--html", "report.html")
    assert (done, "warning" in err) == (0, False), err
    page = Path("report.html").read_text("utf-8")
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert [rank["rank"] for rank in json.loads(data)["ranks"]] == [1, 0]
    assert "<section lang=" not in page


class RunsHere:
    """An engine that runs tasks in this process, in the way of a Ray worker."""

    def __init__(self, jobs: int | None) -> None:
        self.jobs = jobs

    def run(
        self,
        tasks: Sequence[Task],
        folder: Path,
        _: Callable[[Task, TaskState], None],
        on_end: Callable[[Task, ProcessEnd], None],
    ) -> None:
        for task in tasks:
            brought = ray_engine.run_task(pickle.loads(pickle.dumps(task)))  # noqa: S301 - our own
            on_end(task, ray_engine.unpack_result(brought, task, folder / task.folder))


class TestRay:
    @pytest.fixture(autouse=True)
    def engine(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(ray_engine, "connect_ray", lambda: None)
        monkeypatch.setattr(ray_engine, "RayEngine", RunsHere)
        monkeypatch.setattr(ray_engine, "find_mindspore", lambda *_: MindSpore("2.9.0", tmp_path))
        monkeypatch.setattr(ray_engine, "prepare_cann", lambda *_: Cann(Backend.STAND_IN, tmp_path / "cann"))

    def test_it_runs_in_the_users_folder_and_its_trace_comes_back(self, ms_tune: Command) -> None:
        code = "import os; print(os.getcwd())\n" + good_child(3 * GIB, 4 * GIB) + TO_TRACKER
        done, out, err = ms_tune(code, "--engine", "ray", "--json")
        assert done == 0, err
        assert "connecting to Ray" in err
        assert json.loads(out)["peak_bytes"] == 3 * GIB
        assert (run_folder() / "rank_0" / "log.txt").read_text("utf-8").startswith(f"{Path.cwd()}\n")

    def test_a_machine_without_the_folder_is_reported(self, tmp_path: Path) -> None:
        gone = str(tmp_path / "gone")
        task = Task("rank_0", {}, (), 0, 1, 1, 60, 0, 0, 0, command=("true",), working_folder=gone)
        brought = ray_engine.run_task(task)
        assert isinstance(brought.ended, MsTuneError)
        assert brought.ended.message.params["folder"] == gone


class TestRefused:
    @pytest.mark.parametrize(
        "options", [("config.yaml",), ("--layers", "4"), ("--stages", "all"), ("--sweep", "a=1,2"), ("--set", "a=1")]
    )
    def test_what_is_about_configs_makes_no_sense(self, ms_tune: Command, options: tuple[str, ...]) -> None:
        code, out, err = ms_tune("pass", *options)
        assert (code, out) == (2, "")
        assert "config" in err
        assert not Path("ms-tune-runs").exists()

    def test_nothing_to_run_is_reported(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["dryrun", "--"]) == 2
        assert "COMMAND" in capsys.readouterr().err

    def test_a_rank_outside_of_the_job_is_reported(self, ms_tune: Command) -> None:
        code, _, err = ms_tune("pass", "--ranks", "8", "--devices", "8")
        assert code == 2
        assert "rank 8 does not exist" in err
