"""MindSpeed-Core-MS configs and launch scripts: what goes over, and what is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from ms_tune.config.source import load_source
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.migrate.draft import leaves
from ms_tune.migrate.result import Fate
from ms_tune.migrate.run import migrate_script, migrate_source
from ms_tune.resources import data_folder
from tests.migrate.test_migrate import at, fates

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """\
LAYERS=8
torchrun --nproc_per_node 8 pretrain_gpt.py \\
    --num-layers $LAYERS --hidden-size 512 --ffn-hidden-size 1024 --num-attention-heads 8 --seq-length 128 \\
    --max-position-embeddings 128 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel \\
    --micro-batch-size 1 --global-batch-size 16 --train-iters 100 --lr 1e-4 --bf16 --use-distributed-optimizer \\
    --recompute-granularity full --recompute-method block --recompute-num-layers 2 --data-path "$DATA" \\
    --adam-beta2 0.95 --untie-embeddings-and-output-weights
"""


@pytest.mark.parametrize("target", ["2.0", "2.1"])
def test_a_config_of_mindspeed(target: str) -> None:
    source = load_source(data_folder("yaml_templates") / "mindspeed_ms" / "llama2_13b_vpp.yaml")
    found = migrate_source(source, target, check=False)
    assert [one.path for one in found.entries] == [path for path, _ in leaves(source.data)]
    assert at(found, "parallelism.pipeline_parallel_layers_per_stage")[0] == "0-4,20-24"
    assert at(found, "recompute.full_recompute_layer")[0] == "0-8"
    assert at(found, "model.compute_dtype") == "bfloat16"
    assert at(found, "training.max_norm") == 1.0
    assert "model_type" not in yaml.safe_load(found.text)["model"]
    assert "DECIDE: model_type" in found.text
    assert fates(found)["dataset_config.micro_batch_num"] is Fate.ASK
    assert found.exit_code == 1


def test_a_script_of_mindspeed_llm(tmp_path: Path) -> None:
    script = tmp_path / "pretrain.sh"
    script.write_text(SCRIPT, encoding="utf-8")
    found = migrate_script(script)
    assert at(found, "training.global_batch_size") == 16
    assert at(found, "optimizer.betas") == [0.9, 0.95]
    assert at(found, "parallelism.pipeline_parallel_layers_per_stage") == ["0-3", "4-7"]
    assert at(found, "recompute.full_recompute_layer") == ["0-1", "4-5"]
    rows = {one.name: one for one in found.entries}
    assert rows["--data-path"].fate is rows["--untie-embeddings-and-output-weights"].fate is Fate.ASK
    assert rows["--num-layers"].line == 3
    assert {one.fate for one in found.entries} == {Fate.TRANSLATED, Fate.ASK}
    assert found.exit_code == 1


def test_what_only_a_run_could_tell_is_asked(tmp_path: Path) -> None:
    script = tmp_path / "pretrain.sh"
    script.write_text(SCRIPT.replace("LAYERS=8\n", ""), encoding="utf-8")
    found = migrate_script(script, check=False)
    assert {one.name for one in found.questions} >= {"--num-layers", "--recompute-num-layers"}
    assert "num_hidden_layers" not in yaml.safe_load(found.text)["model"]


def test_scripts_that_are_no_single_job(tmp_path: Path) -> None:
    script = tmp_path / "pretrain.sh"
    script.write_text(SCRIPT + SCRIPT, encoding="utf-8")
    with pytest.raises(UnsupportedError):
        migrate_script(script)
    script.write_text("echo\n", encoding="utf-8")
    with pytest.raises(ConfigError):
        migrate_script(script)
