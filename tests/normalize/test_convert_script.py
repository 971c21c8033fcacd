"""Convert programs of launch scripts to the other dialects and back: every layer has the same place and behaviour, or is reported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from ms_tune.cli.main import main
from ms_tune.diagnostics import Severity
from ms_tune.dialects.megatron.read import inputs_of
from ms_tune.dialects.megatron.recompute import normalize_megatron
from ms_tune.dialects.megatron.write import without_idle
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.errors import UsageError
from ms_tune.job.script import ScriptJob
from ms_tune.normalize.convert import convert_script, target_of
from ms_tune.report.normalize_text import conversion_yaml, converted_text
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, render
from tests.jobs import convert_source, normalize_source
from tests.normalize.conversion_cases import random_case
from tests.oracle.megatron_cases import random_arguments
from tests.oracle.megatron_layers import command_with

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan
    from ms_tune.dialects.convert_layers import Converted

RUN = "torchrun --nproc_per_node 8 pretrain_gpt.py"
OTHERS = ("mindformers", "mindformers-pynative", "mindspeed-ms")


def converted(arguments: str, to: str) -> Converted:
    (one,) = convert_script(ScriptJob(Path("pretrain.sh"), f"{RUN} {arguments}\n"), target_of(to))
    assert one.settings is not None
    for problem in one.settings.problems:
        assert all(render(problem.message, language) for language in Language)
    return one.settings


def places(plan: LayerPlan) -> list[tuple[int, int, bool]]:
    layers = (layer for layer in plan.layers if layer.kind is not LayerKind.PREDICTION)
    return [(layer.stage, layer.chunk, layer.recompute is RecomputeMode.FULL) for layer in layers]


def errors(found: Converted) -> list[str]:
    return [problem.id for problem in found.problems if problem.severity is Severity.ERROR]


@pytest.mark.slow
def test_random_arguments_are_the_same_layers_elsewhere() -> None:
    random = Random(20261122)  # noqa: S311 - cases, no secrets
    same = 0
    for _ in range(120):
        arguments = random_arguments(random)
        plan = normalize_megatron(inputs_of(command_with(arguments, "2.3")))
        found = converted(" ".join(f"'{word}'" for word in arguments), to := random.choice(OTHERS))
        if plan.failure is not None or "convert-no-plan" in errors(found):  # the frameworks refuse, or their parser
            assert found.values == {}
            continue
        if {*errors(found)} & {"convert-order", "convert-empty", "convert-refused", "layers-built", "convert-holes"}:
            continue
        again = normalize_source(parse_source(conversion_yaml(found.values), Path("x.yaml")), target_of(to).release)
        merged = any(problem.id == "convert-chunks-merged" for problem in found.problems)
        reported = places(without_idle(plan))
        ahead = sum(layer.kind is LayerKind.PREDICTION for layer in plan.layers)
        layers = places(again)[: len(places(again)) - ahead * (to == "mindformers-pynative")]
        assert [full for *_, full in layers] == [full for *_, full in reported], (arguments, to)
        assert merged or layers == reported, (arguments, to)
        same += 1
    assert same > 30


@pytest.mark.slow
def test_random_configs_are_the_same_layers_as_arguments() -> None:
    random = Random(7)  # noqa: S311 - cases, no secrets
    same = 0
    for number in range(60):
        case = random_case(random, OTHERS[number % 3])
        found = convert_source(case.source, "megatron", version=case.release)
        if not found.values or {*errors(found)} & {"convert-refused", "convert-order"}:
            continue
        text = " ".join(converted_text("megatron", found).replace("\\\n", " ").split())
        stages = found.values["--pipeline-model-parallel-size"]
        (program,) = api_script(f"torchrun --nproc_per_node {stages} pretrain_gpt.py {text}\n")
        here, there = places(normalize_source(case.source, version=case.release)), places(without_idle(program))
        assert len(there) == len(here) - int(str(found.values.get("--mtp-num-layers", 0))) or len(there) == len(here)
        assert [one[0] for one in there] == [one[0] for one in here[: len(there)]]
        unlike = {number for number, (one, other) in enumerate(zip(here, there, strict=False)) if one[2] != other[2]}
        assert not unlike or "convert-differs" in errors(found)
        same += not errors(found)
    assert same > 5


def api_script(text: str) -> list[LayerPlan]:
    from ms_tune.normalize.script import normalize_script  # noqa: PLC0415 - one test needs it

    return [one.plan for one in normalize_script(ScriptJob(Path("x.sh"), text, version="2.3")) if one.plan]


@pytest.mark.parametrize(
    ("arguments", "to", "expected"),
    [
        ("--num-layers 8", "mindspeed-ms", {"parallel_config.recompute_config.recompute": [0, 0]}),
        ("--num-layers 8 --num-layer-list 3,5", "mindformers", {"model.model_config.offset": [-1, 1]}),
        (
            "--num-layers 8 --noop-layers 0,7 --recompute-granularity full --recompute-method block --recompute-num-layers 2",
            "mindformers-pynative",
            {"recompute.full_recompute_layer": ["0", "3-4"], "model.num_hidden_layers": 6},
        ),
        (
            "--num-layers 8 --recompute-activations",
            "mindformers-pynative",
            {"recompute.select_module": {"self_attention.core_attention": ["0-7"]}},
        ),
        (
            "--num-layers 8 --noop-layers 0,7 --recompute-granularity full --recompute-method block --recompute-num-layers 2",
            "megatron@26.1",
            {"--noop-layers": "0,7", "--recompute-num-layers": 2},
        ),
    ],
)
def test_settings(arguments: str, to: str, expected: dict[str, object]) -> None:
    found = converted(f"{arguments} --pipeline-model-parallel-size 2", to)
    assert {key: found.values.get(key) for key in expected} == expected
    assert errors(found) == []


def test_what_arguments_cannot_say_is_named_with_its_layers() -> None:
    text = """
parallel_config: {pipeline_stage: 2}
model: {arch: {type: LlamaForCausalLM}, model_config: {type: LlamaConfig, num_layers: 8}}
recompute_config:
  recompute: [3, 1]
  select_recompute: {'attention_norm': [3, 4], 'feed_forward\\.w2': [4, 4]}
  select_comm_recompute: ['attention_norm\\.norm']
"""
    found = convert_source(parse_source(text, Path("x.yaml")), "megatron")
    assert (found.values["--num-layers"], found.values["--recompute-num-layers"]) == (12, 3)
    assert {"convert-lost", "convert-differs"} <= {*errors(found)}
    messages = [render(problem.message, Language.EN) for problem in found.problems]
    assert any("mlp.linear_fc2" in one or "feed_forward.w2" in one for one in messages), messages
    assert any(re.search(r"Layer .* would behave differently", one) for one in messages)


@pytest.mark.parametrize("to", [*OTHERS, "megatron"])
def test_layers_that_all_do_nothing_have_no_settings(to: str) -> None:
    found = converted("--num-layers 2 --noop-layers 0,1 --mtp-num-layers 1", to)
    assert found.values == {}
    assert "convert-no-plan" in errors(found)


def test_refused_arguments_have_no_settings() -> None:
    assert errors(converted("--num-layers 9 --pipeline-model-parallel-size 2", "mindformers"))[-1] == "convert-no-plan"


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.sh"
    path.write_text(f"{RUN} --num-layers 4 --pipeline-model-parallel-size 2\n{RUN} --num-layers $1\n", "utf-8")
    assert main(["normalize-recompute", "--to", "mindspeed-ms", str(path)]) == 2
    shown = capsys.readouterr()
    assert shown.out.startswith("# line 1: pretrain_gpt.py\nmodel_config:\n  num_layers: 4\n")
    assert "line 2 is not converted: 1 cannot be evaluated" in " ".join(shown.err.split())
    path.write_text(f"{RUN} --num-layers 4 --pipeline-model-parallel-size 2 --recompute-norm\n", "utf-8")
    assert main(["normalize-recompute", "--to", "megatron@26.1", str(path)]) == 0
    assert capsys.readouterr().out == "--num-layers 4 \\\n--pipeline-model-parallel-size 2 \\\n--recompute-norm\n"
    assert main(["normalize-recompute", "--json", "--to", "mindformers@1.9", str(path)]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["program"], job["line"], job["dialect"], job["framework_version"]) == (
        "pretrain_gpt.py",
        1,
        "mindformers",
        "1.9",
    )
    with pytest.raises(UsageError):
        target_of("megatrons")
