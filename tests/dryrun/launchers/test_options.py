"""Test the options of launchers and of dryrun with scripts: tables, refusals, ``--python`` and ``--check``."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ms_tune.cli.main import main
from ms_tune.dryrun import command as room
from ms_tune.dryrun import machine as check
from ms_tune.dryrun.cann_sim.environment import Backend, Cann, MindSpore, find_mindspore
from ms_tune.dryrun.child.hook.process import launcher_of
from ms_tune.dryrun.launchers.arguments import MSRUN, TORCHRUN, LauncherCall, parse_launcher
from ms_tune.errors import UsageError
from ms_tune.facts.query import load
from tests.dryrun.test_stack import PARTS, llm, package

MODULES = {**load("launchers")["modules"], **load("launchers")["other_modules"]}


def read(launcher: str, line: str, devices: int | None = None) -> LauncherCall:
    return parse_launcher(launcher, line.split(), {}, devices)


def test_every_option_of_the_installed_msrun_is_known() -> None:
    """MindSpore's own table is parsed, not executed."""
    spec = importlib.util.find_spec("mindspore")
    if spec is None or spec.origin is None:
        pytest.skip("MindSpore is not installed")
    tree = ast.parse((Path(spec.origin).parent / "parallel" / "cluster" / "run.py").read_text("utf-8"))
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
    ]
    theirs = {
        argument.value: next((ast.literal_eval(one.value) for one in call.keywords if one.arg == "default"), None)
        for call in calls
        for argument in call.args
        if isinstance(argument, ast.Constant) and str(argument.value).startswith("-")
    }
    options = load("launchers")["launchers"][MSRUN]["options"]
    ours = {name: option.get("default") for option in options for name in option["names"]}
    assert len(theirs) > 10
    assert {name: ours.get(str(name)) for name in theirs} == {name: str(value) for name, value in theirs.items()}
    assert not [call for call in calls if any(one.arg == "action" for one in call.keywords)]


@pytest.mark.parametrize(
    ("line", "world", "local", "waits", "prefix", "program", "arguments"),
    [
        ("train.py", 8, 8, False, ("python",), "train.py", ()),
        ("--worker_num 4 train.py --x 1", 4, 4, False, ("python",), "train.py", ("--x", "1")),
        ("--worker_num=16 --local_worker_num=8 --node_rank=1 --join=True t.py", 16, 8, True, ("python",), "t.py", ()),
        (
            "--worker_num 2 --bind_core True --log_dir logs python -m x --y",
            2,
            2,
            False,
            (),
            "python",
            ("-m", "x", "--y"),
        ),
        ("--worker_n 2 t.py", 2, 2, False, ("python",), "t.py", ()),  # argparse accepts an unambiguous prefix
        ("--worker_num 2 t.py --worker_num 4", 2, 2, False, ("python",), "t.py", ("--worker_num", "4")),
    ],
)
def test_msrun(  # noqa: PLR0913 - one case
    line: str, world: int, local: int, *, waits: bool, prefix: tuple[str, ...], program: str, arguments: tuple[str, ...]
) -> None:
    found = read(MSRUN, line)
    assert (found.world, found.local, found.waits) == (world, local, waits)
    assert (found.prefix, found.program, found.arguments) == (prefix, program, arguments)


@pytest.mark.parametrize(
    ("line", "world", "local", "prefix"),
    [
        ("train.py", 1, 1, ("python", "-u")),
        ("--nproc_per_node 8 --nnodes 4 --node_rank 2 train.py", 32, 8, ("python", "-u")),
        ("--nproc-per-node=8 --nnodes=1:4 --rdzv-backend=c10d train.py", 32, 8, ("python", "-u")),
        ("--standalone --nproc-per-node 2 -m train", 2, 2, ("python", "-u", "-m")),
        ("--nproc-per-node 2 -r 3 -t 3 --no-python train", 2, 2, ()),
    ],
)
def test_torchrun(line: str, world: int, local: int, prefix: tuple[str, ...]) -> None:
    found = read(TORCHRUN, line)
    assert (found.world, found.local, found.prefix, found.waits) == (world, local, prefix, True)
    assert not found.names_local_rank


def test_pytorchs_launchers_take_options_from_the_environment() -> None:
    environment = {"PET_NPROC_PER_NODE": "4", "PET_NNODES": "2", "PET_MODULE": "1"}
    found = parse_launcher(TORCHRUN, ["train"], environment)
    assert (found.world, found.prefix[-1]) == (8, "-m")
    assert parse_launcher(MSRUN, ["t.py"], {"PET_WORKER_NUM": "3"}).world == 8


@pytest.mark.parametrize(
    ("launcher", "line", "says"),
    [
        (MSRUN, "--worker_num 4", "the following arguments are required: program"),
        (MSRUN, "--workers 4 t.py", "unrecognized arguments: --workers"),
        (MSRUN, "--worker_num four t.py", "invalid --worker_num four"),
        (MSRUN, "--worker_num 0 t.py", "--worker_num 0"),
        (MSRUN, "--worker_num 99999999 t.py", "--worker_num 99999999"),
        (MSRUN, "--join yes t.py", "invalid --join yes .expected True, False"),
        (TORCHRUN, "--nproc-per-node auto t.py", "--nproc-per-node auto depends on the training machine"),
        (TORCHRUN, "--no-python -m t.py", "cannot be used together"),
        (TORCHRUN, "--nnodes x t.py", "--nnodes x"),
    ],
)
def test_what_a_launcher_would_refuse_is_refused(launcher: str, line: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read(launcher, line)


@pytest.mark.parametrize(
    ("line", "launcher", "rest"),
    [
        ("-m torch.distributed.launch --x", "torch.distributed.launch", "--x"),
        ("-u -m torch.distributed.run --x", "torchrun", "--x"),
        ("-um torch.distributed.run --x", "torchrun", "--x"),
        ("-mtorch.distributed.run --x", "torchrun", "--x"),
        ("-W ignore -X dev -m mindspore.parallel.cluster.run 1", "msrun", "1"),
        ("-Wignore /opt/conda/bin/torchrun a b", "torchrun", "a b"),
        ("/usr/bin/msrun", "msrun", ""),
        ("--check-hash-based-pycs never /usr/bin/msrun a", "msrun", "a"),
        ("-m accelerate.commands.launch t.py", "accelerate", "t.py"),
        ("train.py msrun", None, ""),
        ("-c msrun", None, ""),
        ("-m pip install msrun", None, ""),
        ("- msrun", None, ""),
        ("-u", None, ""),
        ("-m", None, ""),
        ("", None, ""),
    ],
)
def test_a_python_process_that_is_a_launcher(line: str, launcher: str | None, rest: str) -> None:
    words = line.split()
    found = launcher_of(words, MODULES, ["msrun", "torchrun"])
    assert (found and found[0]) == launcher
    if found is not None:
        assert words[found[1] :] == rest.split()


def test_sentences_that_are_to_be_replaced_are_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = "--worker_num 8 --master_addr your master node ip --node_rank your node id --join=False train.py --a b c"
    launch = parse_launcher("msrun", line.split(), {})
    assert (launch.program, launch.arguments, launch.world, launch.waits) == ("train.py", ("--a", "b", "c"), 8, False)
    assert [(one.key, one.before, one.after) for one in launch.changes] == [
        ("--master_addr", "your master node ip", "your"),
        ("--node_rank", "your node id", "your"),
    ]
    (tmp_path / "master").touch()
    assert parse_launcher("msrun", line.split(), {}).program == "master"
    assert parse_launcher("msrun", ["--worker_num", "8", "run", "--x", "y.py"], {}).program == "run"


def interpreter(folder: Path, prints: str) -> str:
    """Write a program that replaces an interpreter: it records its use and prints a fixed answer."""
    path = folder / "python-of-mine"
    path.write_text(f"#!/bin/sh\n{prints}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_another_interpreter_is_asked_for_its_mindspore(tmp_path: Path) -> None:
    python = interpreter(tmp_path, 'echo noise; echo \'["2.7.1", "/env/mindspore"]\'')
    assert find_mindspore(python) == MindSpore("2.7.1", Path("/env/mindspore"))


@pytest.mark.parametrize(
    ("prints", "says"),
    [
        (
            "echo \"ModuleNotFoundError: No module named 'x'\" >&2; exit 1",
            "MindSpore is not installed in --python .*: ModuleNotFoundError",
        ),
        ("echo hello", "MindSpore is not installed in"),
    ],
)
def test_one_without_mindspore_is_refused(tmp_path: Path, prints: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        find_mindspore(interpreter(tmp_path, prints))


def test_one_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be run"):
        find_mindspore(str(tmp_path / "absent"))


@pytest.mark.slow
def test_python_in_a_script_means_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[str | None] = []

    def find(python: str | None) -> MindSpore:
        asked.append(python)
        return MindSpore("2.9.0", tmp_path)

    found: Callable[[str | None], MindSpore] = find
    monkeypatch.setattr(room, "find_mindspore", found)
    monkeypatch.setattr(room, "prepare_cann", lambda *_: Cann(Backend.STAND_IN, tmp_path / "cann"))
    python = interpreter(tmp_path, f'echo "mine: $*"\nexec {sys.executable} "$@"')
    Path("train.py").write_text("print('trains')\n", encoding="utf-8")
    Path("pretrain.sh").write_text("python train.py\nmsrun --worker_num 2 --join=True train.py\n", encoding="utf-8")
    main(["dryrun", "--python", python, "--run-dir", "kept", "pretrain.sh"])
    capsys.readouterr()
    log = Path("kept/script/log.txt").read_text("utf-8")
    assert log.count("mine: ") == 2
    assert log.count("trains") == 2
    assert asked == [python]


def test_one_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dryrun", "--python", "no-such-python", "--", "true"]) == 2
    assert "program not found: no-such-python" in capsys.readouterr().err


ARGUMENTS = "--pipeline-model-parallel-size 2 --num-layers 4 --micro-batch-size 1 --padded-vocab-size 100"
PROGRAM = (
    "import megatron, sys\nopen('imported', 'w').write(sys.argv[1])\nif __name__ == '__main__': open('trained', 'w')\n"
)
Checked = tuple[int, dict[str, Any], str]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG", "COLUMNS", "RANK_ID", "RANK_SIZE", "MS_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for module in (room, check):
        monkeypatch.setattr(module, "find_mindspore", lambda *_: MindSpore("2.9.0", tmp_path))
    monkeypatch.setattr(room, "prepare_cann", lambda *_: Cann(Backend.STAND_IN, tmp_path / "cann"))
    monkeypatch.setattr(check, "find_real_cann", lambda: None)
    monkeypatch.setattr(check, "check_supported", lambda _: None)
    Path("pretrain_gpt.py").write_text(PROGRAM, encoding="utf-8")
    for name in PARTS:
        if name == "mindspeed_llm":
            llm(tmp_path / "stack", "2.3")
        else:
            package(tmp_path / "stack", name, "2.9.0" if name == "mindspore" else None)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "stack"), *sys.path[:1]]))


@pytest.fixture
def checked(capsys: pytest.CaptureFixture[str]) -> Callable[..., Checked]:
    def run(text: str, *options: str) -> Checked:
        Path("pretrain.sh").write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        code = main(["dryrun", "--check", "--json", *options, "pretrain.sh"])
        output = capsys.readouterr()
        return code, json.loads(output.out).get("script", {}) if output.out else {}, output.err

    return run


LINE = f"msrun --worker_num 4 pretrain_gpt.py {ARGUMENTS} --tokenizer-name-or-path my own"


@pytest.mark.slow
def test_what_a_script_would_find_is_reported_and_nothing_is_trained_or_kept(
    checked: Callable[..., Checked], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, script, err = checked(LINE)
    assert (code, script["ready"], script["problems"]) == (0, True, []), err
    (job,) = script["jobs"]
    assert (job["launcher"], job["devices"], job["missing"]) == ("msrun", 4, [])
    found = {part["name"]: (part["folder"], part["release"]) for part in job["parts"]}
    assert found["MindSpeed-LLM"] == (str(tmp_path / "stack" / "mindspeed_llm"), "v2.3.0")
    assert found["MindSpore"] == (str(tmp_path / "stack" / "mindspore"), "2.9.0")
    assert job["documented"]["release"] == "r0.5.0"
    assert job["made_up"] == {"--tokenizer-name-or-path": "my own"}
    assert Path("imported").read_text("utf-8").startswith("--pipeline-model-parallel-size")
    assert sorted(path.name for path in Path().iterdir()) == ["imported", "pretrain.sh", "pretrain_gpt.py"]
    assert main(["dryrun", "--check", "pretrain.sh"]) == 0
    out = capsys.readouterr().out
    assert "MindSpeed-LLM: v2.3.0 (by the arguments that it defines), " in out
    assert "--tokenizer-name-or-path my own: replaced by generated content" in out
    assert "everything the programs import is available; nothing was trained" in out


@pytest.mark.slow
def test_what_is_missing_comes_with_what_the_documentation_says(
    checked: Callable[..., Checked], tmp_path: Path
) -> None:
    (tmp_path / "stack" / "msadapter").rename(tmp_path / "elsewhere")
    (tmp_path / "stack" / "megatron").rename(tmp_path / "elsewhere too")
    code, script, _ = checked(LINE)
    assert code == 2
    reported = [one["problem"] for one in script["problems"]]
    assert reported[0] == "not found: MSAdapter, Megatron-LM"
    assert script["problems"][0]["hint"].startswith("MindSpeed-Core-MS r0.5.0 is documented with MindSpeed-LLM 2.3.0")
    assert "ModuleNotFoundError: No module named 'megatron'" in reported[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher", ["torchrun --nproc_per_node 4 -m pretrain_gpt", "msrun --worker_num 4 python pretrain_gpt.py"]
)
def test_programs_that_are_modules_or_after_a_python(checked: Callable[..., Checked], launcher: str) -> None:
    code, _, err = checked(f"{launcher} {ARGUMENTS}")
    assert (code, Path("imported").is_file(), Path("trained").exists()) == (0, True, False), err


@pytest.mark.slow
def test_a_mindspore_that_the_adapter_refuses_is_reported_before_a_run(
    checked: Callable[..., Checked], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = tmp_path / "stack" / "msadapter-0.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Requires-Dist: mindspore>=2.10\n", encoding="utf-8")
    code, script, _ = checked(LINE)
    problem = "MSAdapter 0.9 requires MindSpore >=2.10, found 2.9.0"
    assert (code, [one["problem"] for one in script["problems"]]) == (2, [problem])
    assert main(["dryrun", "pretrain.sh"]) == 2
    assert problem in capsys.readouterr().err
    assert not Path("trained").exists()


def test_a_script_without_a_launcher(checked: Callable[..., Checked]) -> None:
    assert [one["problem"] for one in checked("true")[1]["problems"]] == [
        "the script ended without calling a launcher, and none of its programs imported MindSpore"
    ]
    Path("train.py").write_text("import mindspore\nopen('trained', 'w')\n", encoding="utf-8")
    (reported,) = checked("python train.py")[1]["problems"]
    assert reported["problem"].startswith("the script calls no launcher; its program reached the import of MindSpore")
    assert not Path("trained").exists()


def test_a_script_that_fails_before_its_launcher(checked: Callable[..., Checked]) -> None:
    code, script, _ = checked("set -e\nsource /no/such/file\n" + LINE)
    assert code == 2
    assert "no such file" in script["problems"][0]["problem"].lower()
