"""Test the dialect of a file: configs of every framework, files of other programs, and parts of configs."""

from __future__ import annotations

import pytest
import yaml

from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.facts.query import load
from ms_tune.job.detect import count_keys, is_fragment, recognise
from ms_tune.source.yaml import load_source
from ms_tune.text import Language, render
from tests.source.corpus import wheel_configs

FOREIGN = {
    "mindspeed-mm": """
parallel: {fully_shard_parallel_size: auto}
training: {micro_batch_size: 1, gradient_accumulation_steps: 2}
features: {recompute: true}
""",
    "mindspeed-llm-fsdp2": """
model: {model_name_or_path: qwen3}
data: {cutoff_len: 4096, template: qwen3}
parallel: {fsdp_size: 8, tp_size: 1, cp_size: 1, recompute: true}
training: {stage: sft, per_device_train_batch_size: 1}
""",
    "mindrlhf": "rl_config: {align_type: a, save_strategy_dir: b}\nactor_config: {parallel_config: {}}\n",
    "mindspeed-rl": "defaults: [{model: [qwen]}]\nmegatron_training: {tokenizer_type: x}\nrl_config: {a: 1}\n",
    "megatron-yaml": """
language_model: {num_layers: 24}
model_parallel: {tensor_model_parallel_size: 1}
adlr_autoresume: False
adlr_autoresume_interval: 1000
bert_binary_head: True
data_parallel_random_init: False
dataloader_type: single
distributed_backend: nccl
eod_mask_loss: False
timing_log_level: 0
""",
    "wandb": "_wandb: {value: {cli_version: 0.16}}\nadlr_autoresume: {value: false}\nmodel_config: {value: a}\n",
    "sapp": """
pipeline_config: {pipeline_num: 16, num_layer: 96, offset: [0]}
time_config: {head: 90, body: 90, tail: 180}
recompute_config: {recompute: false, select_recompute: [1, 0]}
memory_usage: {head_memory: [1], tail_memory: [1], body_memories: {stage_id: [0]}}
""",
    "verl": "data: {train_files: a}\nactor_rollout_ref: {x: 1}\ncritic: {y: 1}\ntrainer: {total_epochs: 30}\n",
    "nemo": "name: x\ntrainer: {devices: 8, accelerator: gpu}\nexp_manager: {exp_dir: a}\nmodel: {optim: {lr: 1}}\n",
    "lightning": "seed_everything: 1\ntrainer: {max_epochs: 3, accelerator: gpu, devices: 2}\nmodel: {class_path: a.B}\n",
    "litgpt": "model_name: x\nmodel_config: null\nout_dir: a\ntokenizer_dir: b\nlogger_name: csv\ndevices: auto\n",
    "axolotl": "base_model: x\ndatasets: []\nval_set_size: 0\nsequence_len: 4096\nmicro_batch_size: 1\nlr_scheduler: cosine\n",
    "llama-factory": "stage: sft\ntemplate: qwen\nfinetuning_type: lora\ncutoff_len: 2048\ndo_train: true\noutput_dir: a\n",
    "hugging-face": """
model_name_or_path: x
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
num_train_epochs: 1
lr_scheduler_type: cosine
bf16: true
""",
    "accelerate": "compute_environment: LOCAL\ndistributed_type: FSDP\nmachine_rank: 0\nnum_machines: 1\nmixed_precision: bf16\n",
    "gpt-neox": "pipe-parallel-size: 1\nmodel-parallel-size: 1\ntrain-iters: 320000\noptimizer: {type: Adam}\n",
    "deepspeed": "zero_optimization: {stage: 3}\ntrain_micro_batch_size_per_gpu: 1\noptimizer: {type: AdamW}\n",
    "hydra": "defaults: [base]\nhydra: {run: {dir: a}}\n",
    "mmf": "includes: [a]\nmodel_config: {x: 1}\ndataset_config: {y: 1}\ntraining: {max_updates: 3}\n",
    "github-workflow": "name: ci\non: [push]\njobs: {a: {runs-on: ubuntu-latest}}\n",
    "github-action": "name: a\nruns: {using: composite}\ninputs: {b: {}}\n",
    "kubernetes": "apiVersion: v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {}}\n",
    "compose": 'version: "3"\nservices: {a: {image: b}}\n',
    "pre-commit": "repos: [{repo: local}]\n",
    "conda": "name: a\nchannels: [b]\ndependencies: [python]\n",
}


def test_keys_that_show_a_file_are_on_its_two_upper_levels() -> None:
    programs = [name for program in load("fingerprints")["foreign"] for name in program["keys"]]
    ours = [name for dialect in YAML_DIALECTS for kind in ("alone", "also") for name in load("releases")[dialect][kind]]
    assert max(name.count(".") for name in programs + ours) == 1


@pytest.mark.parametrize("program", sorted({one["id"] for one in load("fingerprints")["foreign"]}))
def test_files_of_other_programs_are_named(program: str) -> None:
    found = recognise(yaml.safe_load(FOREIGN[program]))
    assert (found.dialect, found.foreign) == (None, program)
    assert found.why_not is not None
    assert render(found.why_not, Language.EN).startswith("this is ")
    assert render(found.why_not, Language.ZH).startswith("这是")


@pytest.mark.parametrize(
    "text",
    [
        "training: {max_steps: 3}\nmodel: {name: x}\n",  # names of sections, with none of their keys
        "trainer: {epochs: 3}\nmodel: {name: x}\ndata: {a: 1}\n",
        "lr_scheduler: cosine\noptimizer: adamw\nepochs: 3\n",
        "model_config: {bert: {a: 1}}\ndataset_config: {vqa: {b: 1}}\n",
        "dataset_config: {vqa: {b: 1}}\n",
        "parallelism: 4\nretries: 3\n",
    ],
)
def test_a_name_alone_is_not_enough(text: str) -> None:
    assert recognise(yaml.safe_load(text)).dialect is None


def test_a_file_most_of_whose_keys_are_unknown_is_of_no_dialect() -> None:
    unknown = {f"own_{number}": number for number in range(6)}
    data = {"runner_config": {"epochs": 1}, "use_parallel": True, **unknown}
    found = recognise(data)
    assert (found.dialect, found.looks_like) == (None, Dialect.MINDFORMERS)
    assert found.why_not is not None
    assert count_keys(data, Dialect.MINDFORMERS) == (3, 6)
    few = {"runner_config": {"epochs": 1}, "use_parallel": True, "own": 1, "_mine": 2}
    assert recognise(few).dialect is Dialect.MINDFORMERS
    assert count_keys(few, Dialect.MINDFORMERS) == (3, 1)
    assert count_keys({}, Dialect.MINDFORMERS) == count_keys([], Dialect.MINDFORMERS) == (0, 0)


def test_a_config_with_keys_of_another_program_stays_one() -> None:
    data = {
        "trainer": {"type": "CausalLanguageModelingTrainer", "model_name": "llama2_7b"},
        "runner_config": {"epochs": 1, "batch_size": 1},
        "parallel_config": {"data_parallel": 1, "model_parallel": 1},
        "model": {"model_config": {"type": "LlamaConfig", "num_layers": 2}},
        "use_parallel": True,
        "run_mode": "train",
        "repos": [],  # one stray key
    }
    assert recognise(data).dialect is Dialect.MINDFORMERS


def test_fragments() -> None:
    assert is_fragment({"train_dataset": {"data_loader": {}}}, Dialect.MINDFORMERS)
    assert is_fragment({"recompute_config": {}, "parallel_config": {}}, Dialect.MINDFORMERS)
    assert not is_fragment({"model": {"model_config": {}}, "parallel_config": {}}, Dialect.MINDFORMERS)
    assert is_fragment({"parallel_config": {}}, Dialect.MINDSPEED_MS)
    assert not is_fragment([], Dialect.MINDSPEED_MS)


def test_every_fingerprint_can_be_met_and_names_where_it_is_from() -> None:
    for one in load("fingerprints")["foreign"]:
        assert one["least"] <= len(one["keys"])
        assert set(one.get("needs", ())) <= set(one["keys"])
        assert one["source"]


CONFIGS = wheel_configs()


@pytest.mark.parametrize(
    ("data", "dialect", "confident"),
    [
        ({"runner_config": {}, "trainer": {}, "model": {"model_config": {}}}, Dialect.MINDFORMERS, True),
        ({"parallel_config": {"pipeline_stage": 2}}, Dialect.MINDFORMERS, True),
        ({"recompute_config": {}}, Dialect.MINDFORMERS, False),
        ({"train_dataset": {"data_loader": {}}}, Dialect.MINDFORMERS, False),  # a file of data set settings alone
        ({"train_dataset": {"dataloader": {}}}, Dialect.MINDFORMERS_PYNATIVE, True),
        ({"train_dataset": {"batch_size": 1}}, None, False),
        ({"parallelism": {}, "training": {}, "model": {}}, Dialect.MINDFORMERS_PYNATIVE, True),
        ({"training_config": {}, "parallel_config": {}}, Dialect.MINDSPEED_MS, True),
        ({"parallel_config": {"tensor_model_parallel_size": 2}}, Dialect.MINDSPEED_MS, True),
        ({"parallel_config": {"recompute_config": {}}}, Dialect.MINDSPEED_MS, False),
        ({"training_config": {}, "model_config": {}, "trainer": {}}, Dialect.MINDSPEED_MS, False),
        ({"parallel_config": 3}, None, False),
        ({"llama": {"a": 1}}, None, False),
        ([], None, False),
        ({"parallelism": {}, "trainer": {}}, None, False),
    ],
)
def test_recognise(data: object, dialect: Dialect | None, *, confident: bool) -> None:
    found = recognise(data)
    assert (found.dialect, found.confident) == (dialect, confident)


def test_evidence_names_key_paths() -> None:
    found = recognise({"parallel_config": {"pipeline_stage": 2, "data_parallel": 1}, "other": 1})
    assert found.evidence == (("parallel_config", "data_parallel"), ("parallel_config", "pipeline_stage"))
    assert recognise({"parallelism": {}, "trainer": {}}).evidence == (("trainer",), ("parallelism",))


@pytest.mark.skipif(not CONFIGS, reason="mindformers is not installed")
def test_wheel_configs() -> None:
    for path in CONFIGS:
        found = recognise(load_source(path).data)
        if path.parent.name == "convert_config":
            assert found.dialect is None, path
        elif "parallelism" in load_source(path).data:
            assert found.dialect is Dialect.MINDFORMERS_PYNATIVE, path
        else:
            assert found.dialect is Dialect.MINDFORMERS, path
            assert found.confident, path
