"""What frameworks need in simulation, each on a small stand-in of the module that it changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.dryrun.child.hook import startup
from ms_tune.dryrun.child.hook.process import Process
from ms_tune.dryrun.child.hook.support import megatron, mindspore, msadapter
from ms_tune.texts import Message

if TYPE_CHECKING:
    from collections.abc import Callable

STARTUP = str(Path(startup.__file__).parent)


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


def told(process: Process) -> list[str]:
    found = process.facts.get("support", [])
    for one in found:
        assert str(Message(one["text"], one["params"]))
    return [one["text"] for one in found]


@pytest.mark.parametrize(("answers", "variable", "count"), [(0, None, 8), (0, "4", 4), (0, "x", 8), (2, "4", 2)])
def test_the_count_of_devices(
    process: Process, monkeypatch: pytest.MonkeyPatch, answers: int, variable: str | None, count: int
) -> None:
    monkeypatch.delenv("MS_TUNE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("MS_TUNE_DEVICES", variable)
    ascend = SimpleNamespace(device_count=lambda: answers)
    mindspore.device_count(ascend, process)
    assert ascend.device_count() == count
    assert told(process) == ["support.device-count"]


def test_the_role_is_seen_by_one_module_alone(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MS_ROLE", raising=False)
    module: Any = ModuleType("distributed_c10d")
    exec("import os\ndef role(): return os.getenv('MS_ROLE')\ndef path(): return os.getenv('PATH')\n", module.__dict__)  # noqa: S102 - our own
    msadapter.role(module, process)
    assert (module.role(), module.path(), module.os.path is os.path) == ("MS_WORKER", os.environ["PATH"], True)
    assert os.getenv("MS_ROLE") is None
    assert module.os.getenv("NO_SUCH_VARIABLE", "x") == "x"
    assert told(process) == ["support.role"]


def test_a_role_that_is_there_stays(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MS_ROLE", "MS_SCHED")
    module: Any = SimpleNamespace(os=os)
    msadapter.role(module, process)
    assert module.os is os
    assert told(process) == []


class _NewGenerator:
    def __init__(self) -> None:
        self._seed, self._offset = 0, 0
        self.made = self.GeneratorOp(self._seed, self._offset)

    @staticmethod
    def GeneratorOp(*given: int) -> tuple[int, ...]:  # noqa: N802 - MindSpore's name
        return given


class _OldGenerator:
    def __init__(self) -> None:
        self.made = ()


@pytest.mark.parametrize(("base", "changed"), [(_NewGenerator, True), (_OldGenerator, False)])
def test_a_generator_is_made_as_mindspore_makes_its_own(
    process: Process, monkeypatch: pytest.MonkeyPatch, base: type, *, changed: bool
) -> None:
    monkeypatch.setattr(msadapter, "_SOURCE", "self.GeneratorOp(self._seed")
    own = type("Generator", (base,), {"__init__": lambda self, _="cpu": setattr(self, "made", None)})
    msadapter.generator(SimpleNamespace(Generator=own), process)
    assert own("cpu").made == ((0, 0) if changed else None)
    assert told(process) == (["support.generator"] if changed else [])


def test_megatron_trains_though_its_flags_are_zero(process: Process) -> None:
    arguments = SimpleNamespace()
    module = SimpleNamespace(
        get_args=lambda: arguments,
        build_train_valid_test_data_loaders=lambda provider: (provider, getattr(arguments, "do_train", False) or 0),
    )
    megatron.training(module, process)
    assert module.build_train_valid_test_data_loaders("x") == ("x", True)
    assert module.build_train_valid_test_data_loaders("y") == ("y", True)
    assert told(process) == ["support.do-train"]


@pytest.mark.parametrize("rank", [0, 4])
def test_every_rank_builds_its_index(process: Process, rank: int) -> None:
    distributed = SimpleNamespace(is_initialized=lambda: True, get_rank=lambda group=None: rank if group is None else 1)
    ask = distributed.get_rank

    class Builder:
        def build(self, *, fails: bool = False) -> tuple[int, int]:
            if fails:
                raise OSError
            return distributed.get_rank(), distributed.get_rank("a group")

    module = SimpleNamespace(BlendedMegatronDatasetBuilder=Builder, torch=SimpleNamespace(distributed=distributed))
    megatron.datasets(module, process)
    assert Builder().build() == (0, 1)
    with pytest.raises(OSError):  # noqa: PT011 - it has no text
        Builder().build(fails=True)
    assert distributed.get_rank is ask
    assert set(told(process)) == ({"support.builds-index"} if rank else set())


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., str]:
    """What a program says that imports a made-up Megatron."""
    package = tmp_path / "megatron" / "training"
    package.mkdir(parents=True)
    (package / "training.py").write_text(
        "class Args: pass\nARGS = Args()\ndef get_args(): return ARGS\n"
        "def build_train_valid_test_data_loaders(): return getattr(ARGS, 'do_train', 'no')\n",
        encoding="utf-8",
    )
    code = "from megatron.training.training import build_train_valid_test_data_loaders as b; print(b())"

    def run(**variables: str) -> str:
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{STARTUP}:{tmp_path}", **variables}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    return run


def test_it_is_done_in_simulation_only(imported: Callable[..., str], tmp_path: Path) -> None:
    assert imported(MS_TUNE_TRACES=str(tmp_path), MS_SIMULATION_LEVEL="1") == "True"
    assert imported(MS_TUNE_TRACES=str(tmp_path)) == "no"
    assert imported(MS_SIMULATION_LEVEL="1") == "no"
