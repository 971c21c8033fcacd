"""``ms-tune normalize-recompute`` from its arguments to its output."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from ms_tune.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = r"""
parallel:
  pipeline_config: {pipeline_interleave: True, pipeline_scheduler: 1f1b}
parallel_config:
  pipeline_stage: 5
model:
  model_config:
    num_layers: 48
    pp_interleave_num: 2
    offset: [[0,1,1,1,1],[1,1,1,1,0]]
recompute_config:
  recompute: [[2,1,0,0,0],[1,0,0,0,0]]
  select_recompute:
    'feed_forward\.w1\.activation\.silu': True
    'feed_forward\.mul': True
    'feed_forward\.w1\.matmul': [[1,0,0,0,0],[2,1,0,0,0]]
    'feed_forward\.w3\.matmul': [2,1,0,0,0]
  select_comm_recompute: ['ffn_norm\.norm','attention_norm\.norm']
"""
FLAT = """
use_legacy: {legacy}
parallel_config: {{pipeline_stage: {stages}}}
model: {{model_config: {{num_hidden_layers: {layers}, offset: {offset}}}}}
recompute_config: {{recompute: {recompute}}}
"""

_ROWS = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
_PATTERNS = {"type": "object", "additionalProperties": _ROWS}
_NAMES = {"type": "array", "items": {"type": "string"}}


def _object(**properties: object) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMA = _object(
    version={"const": 1},
    dialect={"const": "mindformers"},
    framework_version={"type": "string"},
    placement={"anyOf": [_ROWS, {"type": "null"}]},
    formative={
        "anyOf": [
            {"type": "null"},
            _object(
                layer_recompute=_ROWS,
                select_recompute=_PATTERNS,
                select_comm_recompute=_PATTERNS,
                select_recompute_exclude=_PATTERNS,
                select_comm_recompute_exclude=_PATTERNS,
            ),
        ]
    },
    layers={
        "type": "array",
        "items": _object(
            layer={"type": "integer"},
            stage={"type": "integer"},
            chunk={"type": "integer"},
            recompute={"enum": ["full", "select", "comm", "none"]},
            select_patterns=_NAMES,
            comm_patterns=_NAMES,
            select_exclude_patterns=_NAMES,
            comm_exclude_patterns=_NAMES,
        ),
    },
    problems={
        "type": "array",
        "items": _object(
            id={"type": "string"},
            severity={"enum": ["error", "warning", "info"]},
            message={"type": "string"},
        ),
    },
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def flat(
    *, stages: object = 4, layers: object = 8, offset: object = 0, recompute: object = False, legacy: object = True
) -> str:
    return FLAT.format(stages=stages, layers=layers, offset=offset, recompute=recompute, legacy=legacy)


def as_json(config: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    config.write_text(text)
    code = main(["normalize-recompute", "--json", str(config)])
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(shown, SCHEMA)
    return code, shown


def refusal(config: Path, text: str, capsys: pytest.CaptureFixture[str]) -> str:
    config.write_text(text)
    assert main(["normalize-recompute", "--lang", "en", str(config)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_the_guides_example(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = as_json(config, GUIDE, capsys)
    assert code == 0
    assert shown["placement"] == [[4, 5, 5, 5, 5], [5, 5, 5, 5, 4]]
    assert shown["formative"]["layer_recompute"] == [[2, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert shown["formative"]["select_recompute"][r"feed_forward\.w3\.matmul"] == [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert shown["layers"][25] == {
        "layer": 25,
        "stage": 0,
        "chunk": 1,
        "recompute": "select",
        "select_patterns": [r"feed_forward\.w1\.activation\.silu", r"feed_forward\.mul", r"feed_forward\.w1\.matmul"],
        "comm_patterns": [r"ffn_norm\.norm", r"attention_norm\.norm"],
        "select_exclude_patterns": [],
        "comm_exclude_patterns": [],
    }


def test_as_log(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(GUIDE)
    assert main(["normalize-recompute", "--as-log", str(config)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "INFO - Formative layer_recompute: [[2, 1, 0, 0, 0], [1, 0, 0, 0, 0]]\n" in captured.out
    assert all(line.startswith("INFO - ") for line in captured.out.splitlines())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_report_fits_80_columns(
    language: str, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    offset = [0] * 3 + [1] * 13
    config.write_text(flat(stages=16, layers=61, offset=offset, recompute=[3, 4] + [2] * 14))
    assert main(["normalize-recompute", "--lang", language, str(config)]) == 1
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if "Formative" not in line and "[" not in line]
    assert len(lines) < 60
    assert max(sum(2 if ord(letter) > 0x2E7F else 1 for letter in line) for line in table) <= 80
    assert any(line.split()[:5] == ["1", "0", "3-5", "3", {"en": "full", "zh": "完全"}[language]] for line in lines)


def test_excludes_get_a_column(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(flat().replace("recompute: False", "recompute: True, select_recompute_exclude: {'a': [1, 0]}"))
    assert main(["normalize-recompute", "--lang", "en", str(config)]) == 1
    assert "exclude" in capsys.readouterr().out


def test_what_the_framework_refuses_has_no_plan(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = as_json(config, flat(layers=9), capsys)
    assert code == 1
    assert shown["placement"] is None
    assert shown["formative"] is None
    assert shown["layers"] == []
    assert [problem["id"] for problem in shown["problems"]] == ["offset-rejected"]
    assert "ValueError: The sum of `offset` (0)" in shown["problems"][0]["message"]

    assert main(["normalize-recompute", "--lang", "zh", str(config)]) == 1
    assert "无法给出方案" in capsys.readouterr().out


def test_the_endless_loop(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = as_json(config, flat(recompute=[-1, 0, 0, 0]), capsys)
    assert code == 1
    assert shown["placement"] == [[2, 2, 2, 2]]
    assert shown["formative"] is None
    assert shown["problems"][0]["id"] == "endless-loop"


def test_as_log_warns_beside_the_result(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(flat(recompute=[1]))
    assert main(["normalize-recompute", "--as-log", "--lang", "en", str(config)]) == 1
    captured = capsys.readouterr()
    assert "Formative layer_recompute: [[1, 0, 0, 0]]" in captured.out
    assert captured.err.startswith("warning: recompute has 1 number")


def test_swap_that_never_reaches_the_model(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = as_json(config, flat(legacy=False) + "swap_config: {swap: True}\n", capsys)
    assert code == 1
    assert [problem["id"] for problem in shown["problems"]] == ["swap-dropped"]


def test_prediction_layers_of_legacy_models_count(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = flat(layers="7, mtp_depth: 1")
    assert as_json(config, text, capsys)[1]["placement"] == [[2, 2, 2, 2]]
    assert as_json(config, text.replace("use_legacy: True", "use_legacy: False"), capsys)[0] == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("parallel_config: {pipeline_stage: 4}\nmodel: {model_config: {a: 1}}\n", ":2:9: error: the config does not say how many"),
        (flat(layers="x"), "num_hidden_layers must be a whole number from 1 to 10000, not 'x'"),
        (flat(layers="8, num_layers: 9"), "num_layers and num_hidden_layers are two names"),
        (flat(stages=-1), "pipeline_stage must be"),
        (flat(layers=10**9), "num_hidden_layers must be"),
        (flat(layers="8, pp_interleave_num: 1000000"), "pp_interleave_num must be"),
        (flat(legacy=1), "use_legacy must be True or False"),
        (flat(recompute="1, recompute_layers: 2"), "recompute_config has no key 'recompute_layers'"),
        (flat(recompute="1, recompute_slice_activation: 2"), "recompute_slice_activation must be True or False"),
        (flat() + "swap_config: {swap: True}\n", "swap is on"),
        (flat() + "swap_config: {swapp: True}\n", "swap_config has no key 'swapp'"),
        (flat() + "swap_config: {layer_swap: [{layers: [1]}]}\n", "every entry needs backward_prefetch"),
        (flat() + "swap_config: {op_swap: [{layers: [1], backward_prefetch: 1}]}\n", "op_swap also op_name"),
        (flat() + "swap_config: {op_swap: 1}\n", "swap_config.op_swap"),
        (flat() + "base_config: other.yaml\n", "base_config is not followed"),
        (flat() + "parallel: {pipeline_config: {pipeline_interleave: True}}\n", "takes nothing else; found: pipeline_interleave"),
        (flat() + "parallel: {pipeline_config: {pipeline_interleave: 1, pipeline_scheduler: 1f1b}}\n", "pipeline_interleave must be"),
        (flat() + "parallel: {pipeline_config: {pipeline_interleave: True, pipeline_scheduler: x}}\n", "'x' is not one of 1f1b"),
        (flat() + "parallel: 1\n", "parallel must be a mapping"),
        ("parallelism: {}\ntraining: {}\n", "dialect mindformers-pynative are not served"),
        ("a: 1\n", "does not look like a training config"),
    ],
)  # fmt: skip
def test_configs_that_cannot_be_read(text: str, words: str, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refusal(config, text, capsys)


def test_sound_swap_entries_are_no_matter_while_swap_is_off(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = (
        "swap_config:\n"
        "  layer_swap: {layers: True, backward_prefetch: 1}\n"
        "  op_swap:\n"
        "  - {op_name: a, layers: [[0, 1], [2]], backward_prefetch: 1}\n"
        "  - {op_name: [a, b], layers: [0], backward_prefetch: 2}\n"
    )
    assert as_json(config, flat() + entries, capsys)[0] == 0


def test_two_forms_at_once(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["normalize-recompute", "--json", "--as-log", "--lang", "en", str(config)]) == 2
    assert "cannot be used together" in capsys.readouterr().err


def test_help_in_both_languages(capsys: pytest.CaptureFixture[str]) -> None:
    for language, word in (("en", "Exit code"), ("zh", "退出码")):
        with pytest.raises(SystemExit):
            main(["normalize-recompute", "--lang", language, "--help"])
        assert word in capsys.readouterr().out
