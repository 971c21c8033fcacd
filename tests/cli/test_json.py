"""Check that JSON output is valid JSON for any config or log."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from ms_tune.cli.main import main
from ms_tune.encode import json_text
from ms_tune.planning.table_file import table_json
from tests.memory.reports import QWEN_TINY
from tests.memory.test_torch_report import saved
from tests.metrics.profiles import host_bound
from tests.planning.tables import CASE_E
from tests.pools.test_torch_replay import NPU
from tests.pools.torch_recordings import Program
from tests.readers.samples import folder as sample
from tests.readers.training_logs import megatron_line

GOLDEN = Path(__file__).parents[1] / "data" / "json_keys"
STATIC = """\
use_legacy: False
use_parallel: True
run_mode: train
seed: .nan
trainer: {type: CausalLanguageModelingTrainer}
runner_config: {epochs: 1, batch_size: 1, sink_size: .inf}
optimizer: {type: AdamW, betas: [.nan, -.inf], eps: .inf, weight_decay: 1.0e+999}
lr_schedule: {type: CosineWithWarmUpLR, learning_rate: .inf, warmup_ratio: .nan, total_steps: .inf}
parallel_config: {data_parallel: 1, model_parallel: 1, pipeline_stage: 1, micro_batch_num: 1}
context: {max_device_memory: .inf}
model: {model_config: {model_type: qwen3, architectures: [Qwen3ForCausalLM], num_hidden_layers: 2, hidden_size: 64,
  num_attention_heads: 4, initializer_range: .nan, rope_theta: .inf, rms_norm_eps: -.inf}}
recompute_config: {recompute: [1]}
"""
DYNAMIC = """\
parallelism: {data_parallel_shard: 8, pipeline_parallel: .inf}
training: {steps: .inf, local_batch_size: .nan}
optimizer: {type: AdamW, eps: .nan}
lr_scheduler: {type: ConstantWarmUpLR, learning_rate: .inf}
train_dataset: {dataloader: {type: HFDataLoader}}
model: {model_type: deepseek_v3, num_hidden_layers: 6, rope_theta: .inf}
recompute: {mode: select, select_module: {mlp.linear_fc1: ['0-2']}}
"""


def strictly(text: str) -> Any:  # noqa: ANN401 - JSON
    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    text.encode("utf-8")
    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "static.yaml").write_text(STATIC)
    (tmp_path / "dynamic.yaml").write_text(DYNAMIC)
    lines = "".join(
        megatron_line(step, 500.0, norm=norm, tflops=norm).replace("loss: 9.9", f"loss: {loss}9.9")
        for step, (norm, loss) in enumerate([(math.nan, "nan "), (math.inf, "inf "), (1.0, "")] * 3, start=1)
    )
    (tmp_path / "train.log").write_text(lines)
    saved(Program(NPU, seed=5).run(), tmp_path / "s.pickle")
    (tmp_path / "table.json").write_text(json.dumps(table_json(CASE_E)))
    host_bound().write(tmp_path / "profile")
    return tmp_path


def keys_of(value: object, place: str = "") -> set[str]:
    """Return the paths of all values, such as ``findings[].id``; list items share one path."""
    if isinstance(value, dict):
        return {one for key, item in value.items() for one in keys_of(item, f"{place}.{key}" if place else key)}
    if isinstance(value, list) and value:
        return {one for item in value for one in keys_of(item, f"{place}[]")}
    return {place}


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        *(
            f"{command} {config}.yaml"
            for command in ("lint", "check", "normalize-recompute")
            for config in ("static", "dynamic")
        ),
        "migrate --no-check static.yaml",
        "lint --format sarif static.yaml",
        "metrics train.log",
        "metrics --baseline train.log train.log",
        "memory s.pickle",
        "memory what-if s.pickle",
        "memory diff s.pickle s.pickle",
        "memory RUN",
        "memory what-if RUN",
        "memory diff RUN RUN",
        "memory plan RUN",
        "memory plan s.pickle",
        "profile profile",
        "fit --table table.json --effort quick",
        "normalize-recompute --to mindformers-pynative static.yaml",
        "init --list",
        "rule MST102",
    ],
)
def test_a_command_prints_json(
    command: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    words = [str(sample(QWEN_TINY)) if word == "RUN" else word for word in command.split()]
    main([*words, *([] if "sarif" in words else ["--json"])])
    out = capsys.readouterr().out
    assert out
    keys = sorted(keys_of(strictly(out)))
    # Programs depend on the names of fields: to change one, remove the file, run this test, and report it in CHANGELOG.
    golden = GOLDEN / f"{re.sub(r'[^a-z0-9]+', '_', command.lower())}.txt"
    if not golden.exists():
        golden.write_text("\n".join([*keys, ""]), encoding="utf-8")
        pytest.fail(f"{golden} is new")
    assert keys == golden.read_text(encoding="utf-8").splitlines()


def test_what_json_has_not_becomes_null_or_is_escaped() -> None:
    value = {
        "a": [math.inf, -math.inf, math.nan, 1.5, (2, math.nan)],
        "b": {"c": 10**400},
        "d": "x\udc80中",
        3: math.nan,
    }
    for indent in (None, 2):
        text = json_text(value, indent)
        found = strictly(text)
        assert found == {"a": [None, None, None, 1.5, [2, None]], "b": {"c": 10**400}, "d": "x\udc80中", "3": None}
        assert "中" in text
    assert json_text({"a": [1, "中"]}) == '{"a":[1,"中"]}'
    with pytest.raises(TypeError):
        json_text({"a": object()})
    assert strictly(json_text({"a": [math.nan, object]}, default=str))["a"] == [None, str(object)]
