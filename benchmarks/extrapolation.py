"""Compare what ``ms-tune dryrun --layers N`` extrapolates with full runs of the same stages, for each kind of job.

Run it where the dryrun extra is installed: ``python benchmarks/extrapolation.py [NAME ...]``, with names or parts of
names of the jobs to run; without names it runs all, in about an hour on two cores. It prints the table that
docs/accuracy-dryrun.md summarises: each job's rows as soon as they are known, or why the job fails. ``--first-stage``
leaves out other stages and takes half the time. The jobs are published configs with the settings below: smaller models
with enough layers of each kind that most of them are extrapolated. The question is not their memory, but whether
extrapolation is correct.

Jobs whose names begin with "Megatron" are launch scripts of MindSpeed-LLM, for the table of docs/megatron.md. They run
where ``MS_TUNE_TEST_MEGATRON`` names a Python with MindSpore, and Megatron-LM, MindSpeed, MindSpeed-LLM and MSAdapter
are on PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from ms_tune.facts.query import data_folder

QWEN3 = "qwen3/pretrain_qwen3_32b_4k.yaml"
QWEN3_MOE = "qwen3_moe/pretrain_qwen3_30b_a3b_4k.yaml"
DEEPSEEK = "deepseek3/pretrain_deepseek3_671b.yaml"
DYNAMIC = "mindformers_pynative/deepseek3_1b_moe.yaml"
MINDSPEED = "mindspeed_ms/llama2_7b.yaml"
MODEL = "model.model_config."
PARALLEL = "parallel_config."
PIPELINE = "parallel.pipeline_config."
SMALL = {
    MODEL + "hidden_size": 1024,
    MODEL + "intermediate_size": 3072,
    MODEL + "num_attention_heads": 8,
    MODEL + "seq_length": 1024,
    MODEL + "vocab_size": 16000,
    MODEL + "offset": 0,
    PARALLEL + "data_parallel": 2,
    PARALLEL + "model_parallel": 2,
    PARALLEL + "pipeline_stage": 2,
    PARALLEL + "micro_batch_num": 2,
    PARALLEL + "expert_parallel": 1,
    "parallel.dataset_strategy": [[2, 1], [2, 1], [2, 1], [2, 1]],
    "parallel.parallel_optimizer_config": {},
}
GROUPED = {MODEL + "num_key_value_heads": 4, MODEL + "head_dim": 128}
EXPERTS = {
    MODEL + "num_experts": 8,
    MODEL + "num_experts_per_tok": 2,
    MODEL + "moe_intermediate_size": 512,
    PARALLEL + "expert_parallel": 2,
}
LATENT = {
    MODEL + "n_routed_experts": 8,
    MODEL + "num_experts_per_tok": 2,
    MODEL + "moe_intermediate_size": 512,
    MODEL + "n_group": 2,
    MODEL + "topk_group": 1,
    MODEL + "q_lora_rank": 384,
    MODEL + "kv_lora_rank": 256,
    MODEL + "qk_nope_head_dim": 128,
    MODEL + "qk_rope_head_dim": 64,
    MODEL + "v_head_dim": 128,
    MODEL + "use_attn_mask_compression": False,
    MODEL + "pp_interleave_num": 1,
    "optimizer.swap": False,
    PIPELINE + "pipeline_interleave": False,
    PIPELINE + "pipeline_scheduler": "1f1b",
    MODEL + "num_nextn_predict_layers": 0,
    PARALLEL + "expert_parallel": 2,
}
STAGES = ["--stages", "0" if "--first-stage" in sys.argv else "all"]
NOTHING = {"recompute_config.recompute": False, "recompute_config.select_recompute": False}
INTERLEAVED = {PIPELINE + "pipeline_interleave": True, PIPELINE + "pipeline_scheduler": "1f1b"}


@dataclass(frozen=True)
class Job:
    """A job to derive and to run in full.

    Attributes:
        config: A config of MindFormers' wheel or of ms-tune.
        layers: The number of layers of the whole model.
        settings: Settings that replace those of the config.
        few: The value of ``--layers`` for the runs that the job is derived from.
        count: The key of the number of layers.
    """

    config: str
    layers: int
    settings: dict[str, Any]
    few: int = 2
    count: str = MODEL + "num_hidden_layers"


JOBS = {
    "dense layers": Job(QWEN3, 8, {**SMALL, **GROUPED, **NOTHING}),
    "uneven offset": Job(QWEN3, 8, {**SMALL, **GROUPED, **NOTHING, MODEL + "offset": [1, -1]}),
    "recompute list": Job(
        QWEN3, 10, {**SMALL, **GROUPED, "recompute_config.recompute": [4, 2], "recompute_config.select_recompute": False}
    ),
    "all layers recomputed": Job(
        QWEN3, 8, {**SMALL, **GROUPED, "recompute_config.recompute": True, "recompute_config.select_recompute": False}
    ),
    "selective recompute": Job(
        QWEN3,
        10,
        {
            **SMALL, **GROUPED, "recompute_config.recompute": False,
            "recompute_config.select_recompute": {r"mlp\.linear_fc1\.matmul": [5, 3], r"mlp\.linear_fc2\.matmul": True},
        },
    ),
    "swap": Job(
        QWEN3,
        8,
        {
            **SMALL, **GROUPED, **NOTHING, "swap_config.swap": True, "swap_config.default_prefetch": 10,
            "swap_config.layer_swap": [{"backward_prefetch": 10, "layers": [0, 1, 2, 3]}],
        },
    ),
    "tied embeddings": Job(QWEN3, 6, {**SMALL, **GROUPED, **NOTHING, MODEL + "tie_word_embeddings": True, PARALLEL + "pipeline_stage": 1}),
    "context parallel 2": Job(
        QWEN3, 8, {**SMALL, **GROUPED, **NOTHING, PARALLEL + "context_parallel": 2, PARALLEL + "data_parallel": 1,
                    "parallel.dataset_strategy": [[1, 1], [1, 1], [1, 1], [1, 1]]}
    ),
    "virtual pipeline 2": Job(
        QWEN3, 12, {**SMALL, **GROUPED, **NOTHING, **INTERLEAVED, MODEL + "pp_interleave_num": 2}
    ),
    "virtual pipeline 4": Job(
        QWEN3, 24, {**SMALL, **GROUPED, **NOTHING, **INTERLEAVED, MODEL + "pp_interleave_num": 4}, few=4
    ),
    "virtual pipeline 2, recompute by chunk": Job(
        QWEN3,
        12,
        {
            **SMALL, **GROUPED, **INTERLEAVED, MODEL + "pp_interleave_num": 2,
            "recompute_config.recompute": [[3, 2], [1, 2]],
            "recompute_config.select_recompute": False,
        },
    ),
    "experts": Job(QWEN3_MOE, 8, {**SMALL, **GROUPED, **EXPERTS, **NOTHING}),
    "experts behind dense layers": Job(
        DEEPSEEK, 12, {**SMALL, **LATENT, **NOTHING, MODEL + "first_k_dense_replace": 3}
    ),
    "multi-token prediction": Job(
        DEEPSEEK, 12, {**SMALL, **LATENT, **NOTHING, MODEL + "first_k_dense_replace": 1, MODEL + "num_nextn_predict_layers": 1}
    ),
    "dynamic graph, experts recomputed (reference)": Job(DYNAMIC, 16, {}, count="model.num_hidden_layers"),
    "dynamic graph, nothing recomputed (reference)": Job(
        DYNAMIC, 16, {"recompute.mode": "None"}, count="model.num_hidden_layers"
    ),
    "MindSpeed-Core-MS, recompute list (reference)": Job(
        MINDSPEED,
        32,
        {"parallel_config.recompute_config.recompute": [12]},
        count="model_config.num_layers",
    ),
}  # fmt: skip


PROGRAM = "pretrain_gpt.py"
PYTHON = os.environ.get("MS_TUNE_TEST_MEGATRON")
# Qwen2.5-7B as in the pair that was published; tests/dryrun/test_megatron_oracle.py.
MEGATRON = """
--use-mcore-models --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel
--num-layers 28 --hidden-size 3584 --ffn-hidden-size 18944 --num-attention-heads 28 --group-query-attention
--num-query-groups 4 --seq-length 10240 --max-position-embeddings 10240 --disable-bias-linear --add-qkv-bias
--use-flash-attn --swiglu --use-fused-swiglu --normalization RMSNorm --norm-epsilon 1e-6 --use-fused-rmsnorm
--position-embedding-type rope --rotary-base 1000000 --use-fused-rotary-pos-emb --untie-embeddings-and-output-weights
--micro-batch-size 1 --global-batch-size 4 --make-vocab-size-divisible-by 1 --padded-vocab-size 152064
--tokenizer-type PretrainedFromHF --tokenizer-name-or-path absent --data-path absent --split 100,0,0
--attention-dropout 0.0 --hidden-dropout 0.0 --train-iters 2000 --lr 1e-6 --lr-decay-style cosine --min-lr 1e-7
--weight-decay 0.1 --clip-grad 1.0 --adam-beta1 0.9 --adam-beta2 0.95 --initial-loss-scale 4096
--no-gradient-accumulation-fusion --no-masked-softmax-fusion --attention-softmax-in-fp32 --bf16
--distributed-backend nccl --ai-framework mindspore
"""
SHORT = {
    "hidden-size": 1024,
    "ffn-hidden-size": 3072,
    "num-attention-heads": 8,
    "num-layers": 16,
    "seq-length": 2048,
    "max-position-embeddings": 2048,
    "padded-vocab-size": 16000,
}
ALL_RECOMPUTED = {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": 1}
MIXTURE = {
    **SHORT,
    "tensor-model-parallel-size": 1,
    "sequence-parallel": "null",
    "expert-model-parallel-size": 2,
    "num-experts": 8,
    "moe-router-topk": 2,
    "moe-token-dispatcher-type": "alltoall",
    "moe-grouped-gemm": "true",
}

BALANCED = {"moe-router-load-balancing-type": "aux_loss", "moe-aux-loss-coeff": 0.001, "global-batch-size": 8}
CONTEXT = {"context-parallel-size": 2, "context-parallel-algo": "ulysses_cp_algo", "global-batch-size": 8}
CHUNKS = {"num-layers": 24, "num-layers-per-virtual-pipeline-stage": 6, "use-distributed-optimizer": "true"}


@dataclass(frozen=True)
class Script:
    """A launch script.

    Attributes:
        settings: Options that replace those of :data:`MEGATRON`.
        devices: The number of ranks.
        few: The value of ``--layers``.
    """

    settings: dict[str, Any]
    devices: int = 4
    few: int | str = "auto"


SCRIPTS = {
    "Megatron, the published pair": Script({}),
    "Megatron, the published pair, everything recomputed": Script(ALL_RECOMPUTED),
    "Megatron, 7 of a stage's 14 layers recomputed": Script(
        {**SHORT, "num-layers": 28, **ALL_RECOMPUTED, "recompute-method": "block", "recompute-num-layers": 7}
    ),
    "Megatron, groups of 2 recomputed": Script({**SHORT, **ALL_RECOMPUTED, "recompute-num-layers": 2}),
    "Megatron, virtual pipeline 2": Script({**SHORT, "num-layers": 24, "num-layers-per-virtual-pipeline-stage": 6}),
    "Megatron, uneven list": Script({**SHORT, "num-layer-list": "7,9"}),
    "Megatron, layers that do nothing": Script({**SHORT, "noop-layers": "14,15"}),
    "Megatron, distributed optimizer": Script({**SHORT, "use-distributed-optimizer": "true"}, 8),
    "Megatron, tensor 4, selective recompute": Script(
        {**SHORT, "tensor-model-parallel-size": 4, "pipeline-model-parallel-size": 1, "num-query-groups": 4,
         "recompute-granularity": "selective"}
    ),
    "Megatron, experts": Script(MIXTURE),
    "Megatron, experts behind dense layers": Script({**MIXTURE, "first-k-dense-replace": 3, "moe-layer-freq": 1}),
    "Megatron, experts, everything recomputed": Script({**MIXTURE, **ALL_RECOMPUTED}),
    "Megatron, context 2, Ulysses": Script({**SHORT, **CONTEXT}, 8),
    "Megatron, context 2, ring": Script({**SHORT, **CONTEXT, "context-parallel-algo": "megatron_cp_algo"}, 8),
    "Megatron, context 2, virtual pipeline 2, distributed optimizer": Script({**SHORT, **CONTEXT, **CHUNKS}, 8),
    "Megatron, experts with a loss that balances them": Script({**MIXTURE, **BALANCED}),
    "Megatron, experts, context 2": Script({**MIXTURE, **BALANCED, **CONTEXT}, 8),
    "Megatron, experts, virtual pipeline 2, distributed optimizer": Script({**MIXTURE, **BALANCED, **CHUNKS}),
}  # fmt: skip


def path_of(config: str) -> Path:
    """Return the path of a config of ms-tune or of MindFormers' wheel."""
    own = data_folder("yaml_templates") / config
    if own.is_file():
        return own
    files = metadata.files("mindformers") or []
    return next(Path(str(file.locate())) for file in files if file.as_posix().endswith(f"configs/{config}"))


def launched(job: Script, *arguments: str) -> dict[str, Any]:
    """Return the output of ``ms-tune dryrun --json`` for a launch script."""
    sources = [Path(folder) for folder in os.environ["PYTHONPATH"].split(os.pathsep)]
    home = next(folder for folder in sources if (folder / PROGRAM).is_file())
    options = [word for option, value in job.settings.items() for word in ("--set", f"{option}={value}")]
    with tempfile.TemporaryDirectory() as folder:
        script, line = Path(folder) / "pretrain.sh", " ".join(MEGATRON.split())
        script.write_text(
            "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
            f"msrun --worker_num {job.devices} --local_worker_num {job.devices} {PROGRAM} {line}\n",
            encoding="utf-8",
        )
        command = [sys.executable, "-m", "ms_tune", "dryrun", "--json", "--python", str(PYTHON), *STAGES, *options]
        command += ["--run-dir", f"{folder}/run", *arguments, str(script)]
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    read: dict[str, Any] = json.loads(done.stdout or "{}")
    if not read.get("ranks") or read["problems"]:
        raise RuntimeError(done.stderr[-2000:])
    return {"stages": read["ranks"]}


def dryrun(job: Job | Script, *arguments: str) -> dict[str, Any]:
    """Return the output of ``ms-tune dryrun --json`` for a job."""
    if isinstance(job, Script):
        return launched(job, *arguments)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(yaml.safe_dump(_config(job), sort_keys=False), encoding="utf-8")
        command = [sys.executable, "-m", "ms_tune", "dryrun", "--json", "--run-dir", f"{folder}/run", *STAGES]
        done = subprocess.run([*command, *arguments, str(config)], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 2) or not done.stdout:
        raise RuntimeError(done.stderr[-2000:])
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def _config(job: Job) -> dict[str, Any]:
    """Return the job's config with its settings, including those that the published config omits."""
    data: dict[str, Any] = yaml.safe_load(path_of(job.config).read_text(encoding="utf-8"))
    for path, value in {**job.settings, job.count: job.layers}.items():
        *parents, last = path.split(".")
        node = data
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = value
    return data


def rows(name: str, job: Job | Script) -> list[str]:
    """Yield one table line per stage."""
    derived = {stage["stage"]: stage for stage in dryrun(job, "--layers", str(job.few))["stages"]}
    whole = {stage["stage"]: stage for stage in dryrun(job, "--layers", "all")["stages"]}
    made = []
    for number, stage in whole.items():
        few = derived[number]
        real, reported = stage["peak_bytes"], few["extrapolated_peak_bytes"]
        runs = ", ".join(map(str, few["extrapolated_from_layers"] or ()))
        error = "" if reported is None else f"{100 * (reported - real) / real:+.4f} %"
        shown = "not derived" if reported is None else f"{reported:,}"
        made.append(f"| {name}, stage {number} | {runs} of {stage['layers']} | {shown} | {real:,} | {error} |")
    return made


def main() -> None:
    """Run the jobs and print the table."""
    wanted = [one for one in sys.argv[1:] if one != "--first-stage"]
    print("| job | from layers | derived, bytes | run whole, bytes | difference |")
    print("| --- | --- | ---: | ---: | ---: |")
    every: dict[str, Job | Script] = {**JOBS, **(SCRIPTS if PYTHON else {})}
    for name, job in every.items():
        if wanted and name not in wanted and not any(part in name for part in set(wanted) - set(every)):
            continue
        try:
            lines = rows(name, job)
        except (RuntimeError, StopIteration, ValueError, KeyError) as error:
            lines = [f"| {name} | | | | failed: {' '.join(str(error).split())[-400:]} |"]
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
