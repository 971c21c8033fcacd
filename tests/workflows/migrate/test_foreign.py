"""Test migration of MindSpeed-Core-MS configs and launch scripts: translated keys, and questions."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.facts.keys import key_at
from ms_tune.facts.megatron import definitions
from ms_tune.facts.migration import unset_rows
from ms_tune.facts.query import data_folder, served
from ms_tune.source.yaml import load_source, source_of
from ms_tune.workflows.migrate.draft import list_leaves
from ms_tune.workflows.migrate.result import Fate, Migration
from ms_tune.workflows.migrate.run import migrate_script
from tests.jobs import migrate_source
from tests.workflows.migrate.test_migrate import at, fates, untold

SCRIPT = """\
LAYERS=8
torchrun --nproc_per_node 8 pretrain_gpt.py \\
    --num-layers $LAYERS --hidden-size 512 --ffn-hidden-size 1024 --num-attention-heads 8 --seq-length 128 \\
    --max-position-embeddings 128 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel \\
    --micro-batch-size 1 --global-batch-size 16 --train-iters 100 --lr 1e-4 --bf16 --use-distributed-optimizer \\
    --recompute-granularity full --recompute-method block --recompute-num-layers 2 --data-path "$DATA" \\
    --adam-beta2 0.95 --untie-embeddings-and-output-weights
"""


def migrated_script(folder: Path, text: str = SCRIPT, target: str | None = None, *, check: bool = True) -> Migration:
    script = folder / "pretrain.sh"
    script.write_text(text, encoding="utf-8")
    return migrate_script(script, target, check=check)


@pytest.mark.parametrize("target", ["2.0", "2.1"])
def test_a_config_of_mindspeed(target: str) -> None:
    source = load_source(data_folder("yaml_templates") / "mindspeed_ms" / "llama2_13b_vpp.yaml")
    found = migrate_source(source, target, check=False)
    assert [one.path for one in found.entries] == [path for path, _ in list_leaves(source.data)]
    assert at(found, "parallelism.pipeline_parallel_layers_per_stage")[0] == "0-4,20-24"
    assert at(found, "recompute.full_recompute_layer")[0] == "0-8"
    assert at(found, "model.compute_dtype") == "bfloat16"
    assert at(found, "training.max_norm") == 1.0
    assert "model_type" not in yaml.safe_load(found.text)["model"]
    assert "DECIDE: model_type" in found.text
    assert fates(found)["dataset_config.micro_batch_num"] is Fate.ASK
    assert found.exit_code == 1


def test_a_script_of_mindspeed_llm(tmp_path: Path) -> None:
    found = migrated_script(tmp_path, SCRIPT)
    assert at(found, "training.global_batch_size") == 16
    assert at(found, "optimizer.betas") == [0.9, 0.95]
    assert at(found, "parallelism.pipeline_parallel_layers_per_stage") == ["0-3", "4-7"]
    assert at(found, "recompute.full_recompute_layer") == ["0-1", "4-5"]
    rows = {one.name: one for one in found.entries}
    assert rows["--data-path"].fate is Fate.ASK
    assert at(found, "model.tie_word_embeddings") is False
    assert at(found, "model.num_key_value_heads") == 8  # as many as heads of queries
    assert rows["--num-layers"].line == 3
    assert {one.fate for one in found.entries} == {Fate.TRANSLATED, Fate.ASK}
    assert found.exit_code == 1


def test_what_nobody_wrote_is_what_it_was() -> None:
    """Defaults of the two sides differ; the old ones are written, and a question is written where neither side has one."""
    source = load_source(data_folder("yaml_templates") / "mindspeed_ms" / "llama2_7b.yaml")
    data = {**source.data, "optimizer_config": {"optimizer_type": "mint.AdamW", "betas": [0.9, 0.95]}}
    data["training_config"] = {"use_distributed_optimizer": True, "wrap_with_ddp": False}
    found = migrate_source(source_of(data, source.path), check=False)
    assert at(found, "training.max_norm") == 1e9
    assert at(found, "optimizer.weight_decay") == 0.0
    assert at(found, "lr_scheduler") == {"learning_rate": 0.001, "type": "ConstantWarmUpLR", "warmup_steps": 0}
    assert at(found, "parallelism.data_parallel_shard") == 1  # forced off without `wrap_with_ddp`
    assert at(found, "checkpoint.enable_save") is False
    assert "steps" not in yaml.safe_load(found.text)["training"]
    assert "how many steps" in found.text


def test_heads_and_experts_of_a_script(tmp_path: Path) -> None:
    experts = "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 256 --moe-grouped-gemm"
    text = SCRIPT.replace("--bf16", f"--bf16 --num-query-groups 2 {experts}")
    found = migrated_script(tmp_path, text, check=False)
    sizes = ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "num_key_value_heads")
    assert [at(found, f"model.{name}") for name in sizes] == [8, 2, 256, 8]  # groups count with their switch only
    found = migrated_script(tmp_path, text.replace("--bf16", "--bf16 --group-query-attention"), check=False)
    assert at(found, "model.num_key_value_heads") == 2
    assert untold(found) == []
    assert not {"--group-query-attention", "--num-query-groups", "--num-experts"} & {
        one.name for one in found.questions
    }


def test_without_clipping_nothing_is_clipped(tmp_path: Path) -> None:
    """A clip_grad of 0 is off in Megatron; with a max_norm of 0 the dynamic graph learns nothing."""
    assert at(migrated_script(tmp_path, f"{SCRIPT.rstrip()} --clip-grad 0.0\n"), "training.max_norm") == 1e9
    source = load_source(data_folder("yaml_templates") / "mindspeed_ms" / "llama2_7b.yaml")
    off = {**source.data, "optimizer_config": {**source.data["optimizer_config"], "clip_grad": 0.0}}
    assert at(migrate_source(source_of(off, source.path), check=False), "training.max_norm") == 1e9


def test_a_script_without_its_optional_arguments(tmp_path: Path) -> None:
    short = SCRIPT
    for words in ("sequence-parallel", "use-distributed-optimizer", "bf16", "train-iters 100", "global-batch-size 16"):
        short = short.replace(f" --{words}", "")
    found = migrated_script(tmp_path, short)
    assert at(found, "parallelism.sequence_parallel") is True  # 2.1 refuses it otherwise
    assert at(found, "parallelism.data_parallel_shard") == 1
    assert at(found, "model.compute_dtype") == "float32"
    assert at(found, "model.hidden_dropout") == 0.1
    assert "how many steps" in found.text
    assert "how many samples" in found.text
    assert at(migrated_script(tmp_path, short, "2.0", check=False), "parallelism").get("sequence_parallel") is None


@pytest.mark.parametrize("target", ["2.0", "2.1"])
@pytest.mark.parametrize("dialect", [Dialect.MINDSPEED_MS, Dialect.MEGATRON])
def test_defaults_that_are_written_are_those_of_the_framework(target: str, dialect: Dialect) -> None:
    for row in unset_rows(target, dialect):
        if dialect is Dialect.MINDSPEED_MS:
            usual = {key_at(dialect, *row.path).default}
        else:
            usual = {one.default for release in served(dialect) for one in definitions(row.path[0], release)}
        words = {
            **dict(row.values),
            False: {"data_parallel_shard": 1, "compute_dtype": "float32", "tie_word_embeddings": True}.get(
                row.to[-1], False
            ),
        }
        given = {row.turned(one) if isinstance(one, float) else one for one in usual}
        assert {words.get(one, one) if isinstance(one, (str, bool)) else one for one in given} == {row.unset}, row.path


CHANGES = (
    "--recompute-method block --recompute-num-layers 2",
    "--recompute-method uniform --recompute-num-layers 1",
    "--recompute-method block --recompute-num-layers 1 --num-layers-per-virtual-pipeline-stage 2",
    "--recompute-method block --recompute-num-layers 3 --noop-layers 7",
    "--recompute-method block --recompute-num-layers 1 --num-layer-list 3,5",
)


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_every_layer_of_a_script_does_what_it_did(change: str, tmp_path: Path) -> None:
    found = migrated_script(tmp_path, SCRIPT.replace(CHANGES[0], change))
    assert {one.name: one.holds for one in found.proof}["layers"] is True, found.proof
    assert untold(found) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama2_7b", "llama2_13b_vpp"])
def test_every_layer_of_a_config_does_what_it_did(name: str) -> None:
    found = migrate_source(load_source(data_folder("yaml_templates") / "mindspeed_ms" / f"{name}.yaml"))
    assert {one.name: one.holds for one in found.proof}["layers"] is True, found.proof
    assert untold(found) == []


def test_what_only_a_run_could_show_is_asked(tmp_path: Path) -> None:
    found = migrated_script(tmp_path, SCRIPT.replace("LAYERS=8\n", ""), check=False)
    assert {one.name for one in found.questions} >= {"--num-layers", "--recompute-num-layers"}
    assert "num_hidden_layers" not in yaml.safe_load(found.text)["model"]


@pytest.mark.parametrize(("text", "error"), [(SCRIPT + SCRIPT, UnsupportedError), ("echo\n", ConfigError)])
def test_scripts_that_are_no_single_job(tmp_path: Path, text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        migrated_script(tmp_path, text)


def test_comments_of_a_script_stay(tmp_path: Path) -> None:
    text = "#!/bin/bash\n# 训练脚本 # one\n" + SCRIPT.replace("LAYERS=8", "LAYERS=8  # layers, not 'chunks'")
    text += 'echo "# in a text" $# ${#LAYERS} a#b\nwait # for all'
    kept = migrated_script(tmp_path, text, check=False).text.partition("pretrain.sh, by line number there:\n")[2]
    assert kept.splitlines() == ["#   2: # 训练脚本 # one", "#   3: # layers, not 'chunks'", "#   11: # for all"]


def test_layers_of_the_users_own_are_asked(tmp_path: Path) -> None:
    found = migrated_script(
        tmp_path, SCRIPT.replace("--bf16", "--bf16 --spec my.module layer_spec --bf16 --train-iters 30")
    )
    given = fates(found)
    assert given["--spec"] is given["--num-layers"] is given["--recompute-num-layers"] is Fate.ASK
    # Given twice: the last one counts, and it has one line.
    assert at(found, "training.steps") == 30
    assert [one.line for one in found.entries if one.name == "--train-iters"] == [5]
    assert {one.name: one.holds for one in found.proof}["layers"] is False
    assert "--spec my.module layer_spec" in found.text
    assert found.exit_code == 1
