"""Test the changes that frameworks need in simulation, each on a small stand-in of the changed module."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ms_tune.dryrun.child.hook import bounds, finite_checks, frameworks, startup, support
from ms_tune.dryrun.child.hook.support import HookedProcess
from ms_tune.estimate.megatron import MegatronModel
from ms_tune.text import Message

STARTUP = str(Path(startup.__file__).parent)


@pytest.fixture
def process(tmp_path: Path) -> HookedProcess:
    return HookedProcess(tmp_path)


def differences_of(process: HookedProcess) -> list[str]:
    found = process.facts.get("support", [])
    for one in found:
        assert str(Message(one["text"], one["params"]))
    return [one["text"] for one in found]


@pytest.mark.parametrize(("answers", "variable", "count"), [(0, None, 8), (0, "4", 4), (0, "x", 8), (2, "4", 2)])
def test_the_count_of_devices(
    process: HookedProcess, monkeypatch: pytest.MonkeyPatch, answers: int, variable: str | None, count: int
) -> None:
    monkeypatch.delenv("MS_TUNE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("MS_TUNE_DEVICES", variable)
    ascend = SimpleNamespace(device_count=lambda: answers)
    frameworks.count_devices(ascend, process)
    assert ascend.device_count() == count
    assert differences_of(process) == ["support.device-count"]


@pytest.mark.parametrize(("text", "name"), [("pass", "not-applied"), ("device_count = int", "device-count")])
def test_a_release_that_lacks_what_is_changed_is_left_and_reported(
    process: HookedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str
) -> None:
    (tmp_path / "made_up_framework.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(support, "_BY_MODULE", {"made_up_framework": "count_devices"})
    monkeypatch.setattr(
        sys, "meta_path", [support.ImportWatch(support.framework_loads(lambda: process)), *sys.meta_path]
    )
    monkeypatch.delitem(sys.modules, "made_up_framework", raising=False)
    importlib.import_module("made_up_framework")
    monkeypatch.delitem(sys.modules, "made_up_framework")
    assert differences_of(process) == [f"support.{name}"]


_SIZES = "mindspeed_llm.mindspore.core.tensor_parallel.data"


def test_mindspeed_llms_own_sizes_of_a_batch_are_known_once_its_module_is_imported(
    process: HookedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *parents, name = _SIZES.split(".")
    folder = tmp_path.joinpath(*parents)
    folder.mkdir(parents=True)
    (folder / f"{name}.py").write_text(
        "def get_tensor_model_parallel_rank(): return 0\n"
        "def local_build_key_size_numel_dictionaries(keys, data): return {key: [] for key in keys}, {}, 0\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        sys, "meta_path", [support.ImportWatch(support.framework_loads(lambda: process)), *sys.meta_path]
    )
    try:
        module = importlib.import_module(_SIZES)
    finally:
        for one in [one for one in sys.modules if one.partition(".")[0] == "mindspeed_llm"]:
            del sys.modules[one]
    assert module.local_build_key_size_numel_dictionaries(["a"], {"a": _Tensor(2, 8)}) == ({"a": [2, 8]}, {"a": 16}, 16)
    assert differences_of(process) == ["support.sizes"]


def test_the_role_is_seen_by_one_module_alone(process: HookedProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MS_ROLE", raising=False)
    module: Any = ModuleType("distributed_c10d")
    exec("import os\ndef role(): return os.getenv('MS_ROLE')\ndef path(): return os.getenv('PATH')\n", module.__dict__)  # noqa: S102 - our own
    frameworks.give_role(module, process)
    assert (module.role(), module.path(), module.os.path is os.path) == ("MS_WORKER", os.environ["PATH"], True)
    assert os.getenv("MS_ROLE") is None
    assert module.os.getenv("NO_SUCH_VARIABLE", "x") == "x"
    assert differences_of(process) == ["support.role"]


def test_a_role_that_is_there_stays(process: HookedProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MS_ROLE", "MS_SCHED")
    module: Any = SimpleNamespace(os=os)
    frameworks.give_role(module, process)
    assert module.os is os
    assert differences_of(process) == []


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
    process: HookedProcess, monkeypatch: pytest.MonkeyPatch, base: type, *, changed: bool
) -> None:
    monkeypatch.setattr(frameworks, "_SOURCE", "self.GeneratorOp(self._seed")
    own = type("Generator", (base,), {"__init__": lambda self, _="cpu": setattr(self, "made", None)})
    frameworks.make_generators(SimpleNamespace(Generator=own), process)
    assert own("cpu").made == ((0, 0) if changed else None)
    assert differences_of(process) == (["support.generator"] if changed else [])


def test_megatron_trains_though_its_flags_are_zero(process: HookedProcess) -> None:
    arguments = SimpleNamespace()
    module = SimpleNamespace(
        get_args=lambda: arguments,
        build_train_valid_test_data_loaders=lambda provider: (provider, getattr(arguments, "do_train", False) or 0),
    )
    frameworks.train_always(module, process)
    assert module.build_train_valid_test_data_loaders("x") == ("x", True)
    assert module.build_train_valid_test_data_loaders("y") == ("y", True)
    assert differences_of(process) == ["support.do-train"]


@pytest.mark.parametrize("rank", [0, 4])
def test_every_rank_builds_its_index(process: HookedProcess, rank: int) -> None:
    distributed = SimpleNamespace(is_initialized=lambda: True, get_rank=lambda group=None: rank if group is None else 1)
    ask = distributed.get_rank

    class Builder:
        def build(self, *, fails: bool = False) -> tuple[int, int]:
            if fails:
                raise OSError
            return distributed.get_rank(), distributed.get_rank("a group")

    module = SimpleNamespace(BlendedMegatronDatasetBuilder=Builder, torch=SimpleNamespace(distributed=distributed))
    frameworks.build_index(module, process)
    assert Builder().build() == (0, 1)
    with pytest.raises(OSError):  # noqa: PT011 - it has no text
        Builder().build(fails=True)
    assert distributed.get_rank is ask
    assert set(differences_of(process)) == ({"support.builds-index"} if rank else set())


def test_every_rank_builds_the_index_of_a_tuning(process: HookedProcess) -> None:
    distributed = SimpleNamespace(is_initialized=lambda: True, get_rank=lambda: 4)
    module = SimpleNamespace(torch=SimpleNamespace(distributed=distributed), check_equal=lambda a, b: 1 / (a == b))
    module.build_train_valid_test_datasets = lambda prefix: (prefix, distributed.get_rank(), module.check_equal(0, 8))
    frameworks.build_packed_index(module, process)
    assert module.build_train_valid_test_datasets("data") == ("data", 0, None)
    assert differences_of(process) == ["support.builds-index"]


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., str]:
    """Run a program that imports an invented Megatron, and return its output."""
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


class _Tensor:
    """A tensor with a shape, and optionally the value of all its elements."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def sum(self, *, dim: int) -> _Tensor:
        return _Tensor(*(size for place, size in enumerate(self.shape) if place != dim))


@pytest.mark.parametrize(
    ("tokens", "pads", "share"), [(1024, False, 256), (1023, False, None), (1024, True, None)], ids=str
)
def test_tokens_are_spread_over_the_experts_evenly(
    process: HookedProcess, tokens: int, *, pads: bool, share: int | None
) -> None:
    seen: list[object] = []

    class Base:
        def __init__(self, given: object = None) -> None:
            self.given = given

    class Dispatcher(Base):
        num_experts, drop_and_pad = 8, pads
        config = SimpleNamespace(moe_router_topk=2)

        def preprocess(self, routing_map: _Tensor) -> _Tensor:
            counts = routing_map.sum(dim=0)
            seen.append((routing_map.shape, finite_checks.value_of(counts)))
            return counts

    frameworks.spread_tokens(SimpleNamespace(MoETokenDispatcher=Base), process)
    for _ in range(2):
        made = Dispatcher("config")
        assert made.preprocess(_Tensor(tokens, 8)).shape == (8,)
    assert seen == [((tokens, 8), share)] * 2

    def another(dispatcher: Dispatcher, routing_map: _Tensor) -> _Tensor:
        seen.append((dispatcher.given, finite_checks.value_of(routing_map.sum(dim=0))))
        return routing_map

    Dispatcher.preprocess = another  # type: ignore[method-assign, assignment]  # as MindSpeed puts its own in the place of Megatron's
    made.preprocess(_Tensor(tokens, 8))
    assert seen[-1] == ("config", share)
    assert differences_of(process) == (["support.even-experts"] if share else [])
    assert not hasattr(Base(), "preprocess")


def test_what_is_gathered_of_what_is_known_is_known(process: HookedProcess) -> None:
    module = SimpleNamespace(
        gather_from_sequence_parallel_region=lambda tensor, group: _Tensor(*tensor.shape, len(group))
    )
    frameworks.know_gathered(module, process)
    counts = finite_checks.with_value(_Tensor(8), 256)
    gathered = module.gather_from_sequence_parallel_region(counts, group="tp")
    assert (gathered.shape, finite_checks.value_of(gathered)) == ((8, 2), 256)
    assert finite_checks.value_of(module.gather_from_sequence_parallel_region(_Tensor(8), group="tp")) is None


def test_a_permutation_gives_as_many_tokens_as_it_is_reported(process: HookedProcess) -> None:
    module = SimpleNamespace(permute=lambda *_, **named: (bounds._BoundsState.most, named.get("num_out_tokens")))
    frameworks.permute_evenly(module, process)
    assert module.permute(1, num_out_tokens=2048) == (2048, 2048)
    assert module.permute(1) == (None, None)
    assert bounds._BoundsState.most is None


def test_operators_that_write_in_place_are_left_out(process: HookedProcess) -> None:
    class AtbOpBuilder:
        def load(self, name: str) -> str:
            return f"built {name}"

    module = SimpleNamespace(AtbOpBuilder=AtbOpBuilder)
    frameworks.skip_in_place_operators(module, process)
    builder: Any = AtbOpBuilder()
    assert builder.load("groupmatmul_add").npu_groupmatmul_add_fp32(1, 2, 3, 4) is None
    assert builder.load("groupmatmul_add").npu_groupmatmul_add_fp32(x=1) is None
    assert builder.load("rope") == "built rope"
    assert differences_of(process) == ["support.in-place"]


@pytest.mark.parametrize("name", ["_build_key_size_numel_dictionaries", "local_build_key_size_numel_dictionaries"])
@pytest.mark.parametrize(("rank", "sized"), [(0, True), (1, False)])
def test_the_sizes_of_a_batch_are_those_of_its_data(
    process: HookedProcess, rank: int, *, sized: bool, name: str
) -> None:
    module = SimpleNamespace(get_tensor_model_parallel_rank=lambda: rank, **{name: lambda *_: ({}, {}, 0)})
    frameworks.know_sizes(module, process)
    build = getattr(module, name)
    for _ in range(2):
        found = build(["a", "b"], {"a": _Tensor(2, 8), "b": _Tensor(3)})
    assert found == (({"a": [2, 8], "b": [3]}, {"a": 16, "b": 3}, 19) if sized else ({}, {}, 0))
    assert differences_of(process) == (["support.sizes"] if sized else [])


@pytest.mark.parametrize(("parallel", "length"), [(True, 512), (False, 1024)])
def test_what_another_stage_sends_has_the_greatest_length(
    process: HookedProcess,
    monkeypatch: pytest.MonkeyPatch,
    *,
    parallel: bool,
    length: int,
) -> None:
    arguments = SimpleNamespace(seq_length=2048, micro_batch_size=3)
    monkeypatch.setitem(sys.modules, "megatron.training", SimpleNamespace(get_args=lambda: arguments))
    config = SimpleNamespace(
        context_parallel_size=2, tensor_model_parallel_size=2, sequence_parallel=parallel, hidden_size=64
    )
    module = SimpleNamespace(_communicate_shapes=lambda *_: ([0, 0, 0], [0, 0, 0]))
    frameworks.know_shapes(module, process)
    assert module._communicate_shapes(None, None, 1, 0, config) == ([length, 3, 64], [0, 0, 0])
    assert module._communicate_shapes(None, None, 0, 1, config) == ([0, 0, 0], [length, 3, 64])
    assert differences_of(process) == ["support.lengths"]


def test_what_a_rank_shows_of_its_model(process: HookedProcess) -> None:
    def parameter(count: int, *, trained: bool = True, shared: bool = True) -> SimpleNamespace:
        return SimpleNamespace(shape=(count,), element_size=lambda: 2, requires_grad=trained, allreduce=shared)

    twice = parameter(10)
    chunks = [SimpleNamespace(parameters=lambda: [twice, parameter(5, shared=False)])]
    chunks += [SimpleNamespace(parameters=lambda: [twice, parameter(7, trained=False)])]
    arguments = SimpleNamespace(
        use_distributed_optimizer=True, accumulate_allreduce_grads_in_fp32=True, bf16=True, fp16=False, optimizer="adam"
    )
    groups = SimpleNamespace(get_data_parallel_world_size=lambda **_: 4, get_expert_data_parallel_world_size=lambda: 2)
    module = SimpleNamespace(
        setup_model_and_optimizer=lambda: (chunks, "optimizer"), get_args=lambda: arguments, mpu=groups
    )
    frameworks.note_model(module, process)
    assert module.setup_model_and_optimizer() == (chunks, "optimizer")
    facts = process.facts["model"]
    assert (facts["weights"], facts["trained"], facts["experts"]) == (44, 15, 5)
    assert MegatronModel.from_record(facts).theory() == {
        "weights": 44,
        "gradients": 60,
        "optimizer_state": 12 * (3 + 3),
    }


def test_the_weights_of_a_model_that_is_only_asked_count(process: HookedProcess) -> None:
    parameter = SimpleNamespace(shape=(10,), element_size=lambda: 2, requires_grad=True, allreduce=True)
    arguments = SimpleNamespace(
        use_distributed_optimizer=False,
        accumulate_allreduce_grads_in_fp32=True,
        bf16=True,
        fp16=False,
        optimizer="adam",
    )
    groups = SimpleNamespace(get_data_parallel_world_size=lambda **_: 1, get_expert_data_parallel_world_size=lambda: 1)
    module = SimpleNamespace(get_args=lambda: arguments, mpu=groups)
    module.get_model = lambda: [SimpleNamespace(parameters=lambda: [parameter])]
    module.setup_model_and_optimizer = lambda: (module.get_model(), "optimizer")
    frameworks.note_model(module, process)
    module.setup_model_and_optimizer()
    trained_alone = {"weights": 20, "gradients": 40, "optimizer_state": 120}
    assert MegatronModel.from_record(process.facts["model"]).theory() == trained_alone
    module.get_model()  # the reference of preference tuning
    assert MegatronModel.from_record(process.facts["model"]).theory() == {**trained_alone, "weights": 40}


def test_another_release_shows_nothing_of_its_model(process: HookedProcess) -> None:
    module = SimpleNamespace(setup_model_and_optimizer=lambda: ([], None), get_args=lambda: None, mpu=None)
    frameworks.note_model(module, process)
    assert module.setup_model_and_optimizer() == ([], None)
    assert "model" not in process.facts
    frameworks.note_model(SimpleNamespace(), process)


def test_the_grouped_product_gets_the_ends_of_what_is_known(process: HookedProcess) -> None:
    module: Any = SimpleNamespace(torch=SimpleNamespace(cumsum=lambda tensor, dim: (tensor, dim), float32="float32"))
    frameworks.sum_on_host(module, process)
    counts = _Tensor(4)
    assert module.torch.cumsum(counts, dim=0) == (counts, 0)
    assert module.torch.float32 == "float32"
    assert module.torch.cumsum(finite_checks.with_value(counts, 512), dim=0).tolist() == [512, 1024, 1536, 2048]
