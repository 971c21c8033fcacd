"""Test the tables of facts: settings of training, variables, launchers, names, and the arguments of MindSpeed-LLM and -MM."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ms_tune.dialects.megatron.placement import MegatronInputs
from ms_tune.dialects.megatron.recompute import normalize_megatron
from ms_tune.dialects.megatron.write import DENSE_PARTS, EXPERT_PARTS
from ms_tune.dialects.mindspeed_mm.detect import is_config, is_tools
from ms_tune.dialects.mindspeed_ms.placement import MindSpeedInputs
from ms_tune.dialects.mindspeed_ms.recompute import normalize_mindspeed_ms
from ms_tune.dialects.operators import Tree, dynamic_model, layer_model
from ms_tune.facts.launchers import Variable, find_launcher, launcher_of_module, variables
from ms_tune.facts.megatron import (
    Definition,
    definitions,
    names,
    parts_of,
    programs,
    releases_of,
    releases_on,
    tag,
)
from ms_tune.facts.mindspeed_mm import MultimodalSetting, ever, settings
from ms_tune.facts.models import cells_of, models
from ms_tune.facts.query import VERSIONS, installed_version, load
from ms_tune.facts.training import Framework, mindspeed_framework, pynative_framework
from ms_tune.text import Message

READS = "def init_configs_from_yaml(path): ...\n"
TRAINS = "from hyper_parallel import enable_mindspore_backward_compat\n"
PACKAGES = ("mindformers", "mindspeed_ms", "hyper_parallel")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of packages that precedes all others and contains none of the three."""
    places = [place for place in sys.path if "site-packages" not in place]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *places])
    for name in PACKAGES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    installed_version.cache_clear()
    yield tmp_path
    installed_version.cache_clear()


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


def test_every_variable_of_the_file_is_there_and_none_can_be_added() -> None:
    assert list(variables()) == list(load("variables")["variables"])
    with pytest.raises(TypeError):
        variables()["MADE_UP"] = Variable(None, (), mindspore=False, instead=None)  # type: ignore[index]


def test_bounds_are_in_order_and_what_is_in_place_of_a_variable_is_one_itself() -> None:
    assert all(one.whole[0] <= one.whole[1] for one in variables().values() if one.whole is not None)
    named = [one.instead.partition("=")[0].partition(" ")[0] for one in variables().values() if one.instead]
    assert named
    assert [name for name in named if name.isupper() and name not in variables()] == []


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("msrun", "msrun"),
        ("/opt/conda/bin/torchrun", "torchrun"),
        ("python", "python"),
        ("/usr/bin/python3.11", "python"),
        ("python2", "python"),
        ("deepspeed", "deepspeed"),
        ("pythonw", None),
        ("python4", None),
        ("msrun.py", None),
    ],
)
def test_by_command(command: str, name: str | None) -> None:
    found = find_launcher(command)
    assert (found and found.name) == name


def test_by_module() -> None:
    modules = ("torch.distributed.run", "torch.distributed.launch", "deepspeed.launcher.runner", "pytest")
    found = [launcher_of_module(module) for module in modules]
    assert [one and one.name for one in found] == ["torchrun", "torch.distributed.launch", "deepspeed", None]


RELEASES = ("2.0", "2.1", "2.2", "2.3", "26.0", "26.1")


def test_releases_and_what_they_run_with() -> None:
    assert "pretrain_gpt.py" in programs()
    assert (releases_on("core_r0.8.0"), releases_on("core_v0.12.1")) == (("2.0", "2.1"), ("2.2", "2.3", "26.0", "26.1"))
    assert releases_on("core_r0.1") == ()
    assert tag("MindSpeed-LLM", "2.3") == "v2.3.0"
    assert tag("Megatron-LM", "2.0") == "core_r0.8.0"


def test_an_argument_is_what_its_parser_defines() -> None:
    plain = Definition("Megatron-LM", "num_layers", None, "int", None, None, None, required=False)
    switch = Definition("Megatron-LM", "bf16", "store_true", "str", None, None, False, required=False)  # noqa: FBT003
    chosen = Definition(
        "Megatron-LM", "recompute_granularity", None, "str", None, ("full", "selective"), None, required=False
    )
    for release in RELEASES:
        assert definitions("--num-layers", release) == (plain,)
        assert definitions("--bf16", release) == (switch,)
        assert definitions("--recompute-granularity", release) == (chosen,)
    assert definitions("--num-layers", "1.0") == definitions("--no-such-argument", "2.3") == ()
    off = [one for name in names("2.3") for one in definitions(name, "2.3") if one.action == "store_false"]
    assert {one.default for one in off if one.part == "Megatron-LM"} == {True}
    assert [one.dest for one in off if one.default is not True] == ["use_rts"]  # MindSpeed's own, off in any case


def test_who_defines_an_argument_and_since_when() -> None:
    assert parts_of("--swap-attention") == {"MindSpeed", "MindSpeed-LLM"}
    assert parts_of("--no-such-argument") == frozenset()
    assert [len(definitions("--swap-attention", release)) for release in RELEASES] == [2, 2, 2, 2, 1, 1]
    assert releases_of("--swap-attention") == RELEASES
    assert releases_of("--no-such-argument") == ()
    for name in ("--num-layers", "--swap-attention", "--recompute-modules"):
        assert [release for release in RELEASES if name in names(release)] == list(releases_of(name))


SHARDED = {"fully_shard_parallel_size": 8}


def test_settings_are_of_a_release() -> None:
    assert "features.chunkloss_plan" not in settings("26.0")
    assert settings("26.1")["features.chunkloss_plan"] == MultimodalSetting(("dict",), (), None)
    assert set(settings("26.0")) | set(settings("26.1")) <= ever()
    assert all(all(one.types) for one in settings("26.1").values())
    assert any(one.choices for one in settings("26.1").values())
    assert any(one.default is not None for one in settings("26.1").values())


@pytest.mark.parametrize(
    ("data", "known"),
    [
        ({"parallel": SHARDED, "training": {}}, True),
        ({"parallel": {"fsdp_plan": {}}, "features": {}}, True),
        ({"parallel": {"ring_attention_size": 1}, "features": {}}, True),
        ({"parallel": SHARDED, "training": 1}, False),
        ({"parallel": SHARDED}, False),
        ({"parallel": ["fsdp_plan"], "training": {}}, False),
        ({"training": {}}, False),
        (None, False),
    ],
    ids=str,
)
def test_a_yaml(data: object, known: bool) -> None:  # noqa: FBT001 - a column
    assert is_config(data) is known


@pytest.mark.parametrize(
    ("data", "known"),
    [
        ({"profile": {"profile_type": "static"}}, True),
        ({"profile": {}, "memory_profile": {}}, True),
        ({"profile": {}}, False),
        ({"profile": {}, "memory_profile": 1}, False),
        ({"memory_profile": {}}, False),
        ({"profile": {"profile_type": "static"}, "parallel": {}}, False),
        ({"profile": ["profile_type"]}, False),
        ([], False),
    ],
    ids=str,
)
def test_a_tools_json(data: object, known: bool) -> None:  # noqa: FBT001 - a column
    assert is_tools(data) is known


FAMILIES = ("legacy", "glm", "core", "dynamic")
ROWS: list[dict[str, list[str]]] = load("names")["rows"]


def trees(family: str) -> list[Tree]:
    """Yield every kind of layer of every model of a family, in every release that has it."""
    found: list[Tree] = []
    for name in models(family):
        for release in VERSIONS:
            model = dynamic_model(name, release) if family == "dynamic" else layer_model(name, release)
            found += model.every if model else ()
    return found


PATHS = {family: [frozenset(tree.paths()) for tree in trees(family)] for family in FAMILIES}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: next(iter(row.values()))[0])
def test_every_name_is_there(row: dict[str, list[str]]) -> None:
    assert len(row) > 1
    for family in row.keys() & set(FAMILIES):
        for name in row[family]:
            assert any(name in paths for paths in PATHS[family]), (family, name)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: next(iter(row.values()))[0])
def test_a_target_can_have_all_the_names_of_a_row(row: dict[str, list[str]]) -> None:
    for family in row.keys() & {"core", "dynamic"}:
        assert any(paths.issuperset(row[family]) for paths in PATHS[family]), (family, row[family])


def test_mindspeeds_names_are_those_that_it_logs() -> None:
    named = {name for row in ROWS for name in row.get("mindspeed", ())}
    met: set[str] = set()
    for flash in (True, False):
        lists = {"recompute": [0], "select_recompute": [1], "select_comm_recompute": [1]}
        plan = normalize_mindspeed_ms(MindSpeedInputs(layers=1, recompute_config=lists, flash_attention=flash))
        met |= {name for layer in plan.layers for name in (*layer.select_patterns, *layer.comm_patterns)}
    assert named == met


def test_megatrons_names_are_those_of_parts_that_its_layers_recompute() -> None:
    named = {name for row in ROWS for name in row.get("megatron", ())}
    met: set[str] = set()
    for experts in (None, 4):
        inputs = MegatronInputs("2.3", layers=1, experts=experts, grouped=bool(experts), latent=True, activation=True)
        every = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe")
        plan = normalize_megatron(replace(inputs, granularity="selective", modules=every))
        met |= {name for layer in plan.layers for name in layer.select_patterns}
    assert named == met == DENSE_PARTS | EXPERT_PARTS


@pytest.mark.parametrize("family", ["legacy", "glm", "core"])
def test_cells_of_a_family_are_in_every_layer_of_its_first_model(family: str) -> None:
    model = layer_model(models(family)[0], VERSIONS[-1])
    assert model is not None
    for layer in model.every:
        assert set(cells_of(family)) <= {name for name, _ in layer.cells}
