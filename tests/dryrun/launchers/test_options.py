"""Test the options of launchers: their own tables, and their refusals."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from ms_tune.dryrun.child.hook.process import launcher_of
from ms_tune.dryrun.launchers.arguments import MSRUN, TORCHRUN, LauncherCall, parse_launcher
from ms_tune.errors import UsageError
from ms_tune.facts.query import load

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
