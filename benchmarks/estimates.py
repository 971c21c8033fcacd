"""Compare highest peaks of dryruns with the estimates of ``ms-tune check`` for the same jobs.

``python benchmarks/estimates.py [CONFIG ...]`` (some minutes a config; the packaged templates by default), or
``python benchmarks/estimates.py --random SEED COUNT [FOLDER]`` for jobs with random sizes, splits and recomputation, of each kind
of graph in turn: about a minute each. With a folder, configs and measured peaks are kept there, and are not measured again.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ms_tune import check_job
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.dryrun.run import dryrun_job
from ms_tune.errors import MsTuneError
from ms_tune.units import gib

_TEMPLATES = Path(__file__).parents[1] / "yaml_templates"
# Kinds of jobs and the templates that they are made from.
_KINDS = {
    "legacy": "mindformers/mixtral_8x7b_swap",
    "static": "mindformers/qwen3_0_6b",
    "static_experts": "mindformers/qwen3_30b_a3b",
    "static_latent": "mindformers/deepseek3_671b",
    "dynamic": "mindformers_pynative/qwen3_8b_dynamic",
    "dynamic_experts": "mindformers_pynative/deepseek3_1b_moe",
    "mindspeed": "mindspeed_ms/llama2_7b",
}

_RARELY, _MOSTLY, _OFTEN = 0.15, 0.6, 2 / 3  # probabilities


def main() -> None:
    """Print a row of a table for each job, and how many peaks are in the range of their estimate."""
    inside, widths = [], []
    with tempfile.TemporaryDirectory() as folder:
        for path, fewest in _jobs(Path(folder)):
            estimate = check_job(path).estimate
            try:
                stage, peak = _measure(path, fewest=fewest, runs=Path(folder))
            except MsTuneError as error:
                print(f"| {path.stem} | - | - | {error} |", flush=True)
                continue
            if estimate is None:
                print(f"| {path.stem} | - | {gib(peak)} | - |", flush=True)
                continue
            own = estimate.stages[stage].peak_bytes if stage is not None else estimate.fullest.peak_bytes
            low, high = estimate.ratio_range
            inside.append(low <= peak / own <= high)
            widths.append(high - low)
            print(f"| {path.stem} | {gib(own)} | {gib(peak)} | {peak / own:.3f} |", flush=True)
    print(f"{sum(inside)} of {len(inside)} peaks in their range, median width {statistics.median(widths):.0%}")


def _measure(path: Path, *, fewest: bool, runs: Path) -> tuple[int | None, int]:
    # Return the highest simulated peak; with its stage if only that one was simulated.
    kept = path.with_suffix(".json")
    if not fewest and kept.exists():
        stages = json.loads(kept.read_text(encoding="utf-8"))["stages"]
    else:
        request = DryrunRequest(path, fewest_layers=fewest, run_folder=runs / f"run_{path.stem}")
        stages = [
            {"stage": one.run.stage, "peak": one.verdict.need.peak_bytes}
            for one in dryrun_job(request).stages
            if one.verdict.need is not None
        ]
        if not fewest:
            kept.write_text(json.dumps({"stages": stages}), encoding="utf-8")
    return (stages[0]["stage"] if len(stages) == 1 else None), max(one["peak"] for one in stages)


def _jobs(folder: Path) -> Iterator[tuple[Path, bool]]:
    if sys.argv[1:2] != ["--random"]:
        yield from ((Path(one), True) for one in sys.argv[1:] or sorted(map(str, _TEMPLATES.glob("*/*.yaml"))))
        return
    folder = Path(sys.argv[4]) if sys.argv[4:] else folder
    draw = random.Random(int(sys.argv[2]))  # noqa: S311 - jobs to compare
    for number in range(int(sys.argv[3])):
        text, name = draw_job(draw, list(_KINDS)[number % len(_KINDS)])
        path = folder / f"{number:02d}_{name}.yaml"
        path.write_text(text, encoding="utf-8")
        yield path, False


def draw_job(draw: random.Random, kind: str) -> tuple[str, str]:  # noqa: PLR0915 - a list of draws
    """Draw a config of a kind, and its name."""
    heads, length, words = (
        draw.choice([8, 16, 32]),
        draw.choice([2048, 4096, 8192]),
        draw.choice([32000, 64000, 151936]),
    )
    stages, tensor, data = draw.choice([1, 1, 2]), draw.choice([1, 2, 4]), draw.choice([1, 2, 4])
    stages = 1 if kind == "dynamic" else stages  # MindFormers 2.1 cannot split Qwen3 into stages
    layers = stages * draw.choice([2, 3, 4])
    if kind in ("dynamic", "dynamic_experts", "mindspeed"):
        layers = stages * draw.choice([2, 4, 6])
    size, micro = draw.choice([1, 2]), draw.choice([2, 4, 8])
    each = layers // stages
    recomputed = [draw.choice([0, each, draw.randrange(each + 1)])] * stages
    context = 2 if draw.random() < _RARELY and kind.startswith("static") else 1
    sizes = {"hidden_size": 128 * heads, "seq_length": length, "vocab_size": words}
    inner, groups = 128 * heads * draw.choice([3, 4]), draw.choice([max(heads // 4, 4), heads])
    sequence = tensor > 1 and draw.random() < _OFTEN
    sequence = tensor > 1 if kind in ("static_experts", "static_latent") else sequence  # refused without
    wide, dtype = draw.random() < 1 / 4, draw.choice(["float32", "float32", "bfloat16"])
    shards = draw.random() < _OFTEN
    job = yaml.safe_load((_TEMPLATES / f"{_KINDS[kind]}.yaml").read_text(encoding="utf-8"))
    if kind == "legacy":
        del job["moe_config"], job["swap_config"]
        model = job["model"]["model_config"]
        model.update(sizes, num_layers=layers, num_heads=heads, n_kv_heads=groups, param_init_type=dtype)
        model.update(intermediate_size=draw.choice([None, inner]), qkv_concat=draw.random() < 1 / 2)
    elif kind == "mindspeed":
        job["model_config"].update(sizes, num_layers=layers, ffn_hidden_size=inner, num_attention_heads=heads)
        if groups < heads:
            job["model_config"].update(group_query_attention=True, num_query_groups=groups)
        job["parallel_config"].update(tensor_model_parallel_size=tensor, pipeline_model_parallel_size=stages)
        job["parallel_config"].update(sequence_parallel=sequence, recompute_config={"recompute": recomputed})
        job["dataset_config"].update(batch_size=size, micro_batch_num=micro)
        job["training_config"]["use_distributed_optimizer"] = shards
    else:
        model = job["model"] if kind.startswith("dynamic") else job["model"]["model_config"]
        model.update(sizes, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=inner)
        model.update(max_position_embeddings=length, params_dtype=dtype)
    if kind.startswith("static"):
        model.update(offset=0)
        data = _draw_static(draw, kind, model, wide=wide, groups=groups, data=data)
        job["train_dataset"]["data_loader"]["config"]["seq_length"] = length
        job["train_dataset_task"]["dataset_config"] = job["train_dataset"]
    if kind.startswith("dynamic"):
        tensor = tensor if draw.random() < _MOSTLY else 1
        data, experts = _draw_dynamic(draw, kind, model, heads=heads, groups=groups, data=data, tensor=tensor)
        job["train_dataset"]["dataloader"]["config"]["seq_length"] = length
        job["training"].update(local_batch_size=size, global_batch_size=size * data * micro)
        job["parallelism"].update(tensor_parallel=tensor, sequence_parallel=tensor > 1)
        job["parallelism"].update(expert_parallel=experts, pipeline_parallel=stages)
        full = recomputed[0] * stages
        job["recompute"] = {"mode": "full", "full_recompute_layer": [f"0-{full - 1}"]}
        if not full:
            del job["recompute"]
    if kind == "legacy" or kind.startswith("static"):
        del job["context"]["max_device_memory"]
        experts = draw.choice([1, data]) if kind in ("static_experts", "static_latent") else 1
        split = {"data_parallel": data, "model_parallel": tensor, "pipeline_stage": stages, "expert_parallel": experts}
        job["parallel_config"].update(split, context_parallel=context, use_seq_parallel=sequence)
        job["parallel_config"].update(micro_batch_num=micro if stages > 1 else 1)
        job["use_parallel"] = stages * tensor * data * context > 1
        job["parallel"]["enable_parallel_optimizer"] = shards
        if kind != "legacy":
            job["parallel"]["dataset_strategy"] = [[data, 1]] * 4
        again = recomputed if stages > 1 else draw.random() < 1 / 2
        job["recompute_config"] = {"recompute": again, "select_recompute": draw.random() < _RARELY}
        job["runner_config"]["batch_size"] = size
    head = "" if "context" in job else f"# devices: {tensor * data * stages}\n"
    name = (
        f"{kind}_l{layers}_h{128 * heads}_s{length}_b{size}_v{words // 1000}_dp{data}_tp{tensor}_pp{stages}_cp{context}"
    )
    return head + yaml.safe_dump(job, sort_keys=False), name


def _draw_static(  # noqa: PLR0913 - what was drawn before
    draw: random.Random, kind: str, model: dict[str, Any], *, wide: bool, groups: int, data: int
) -> int:
    # Draw the rest of a model of the static graph; return the DP ranks.
    if kind != "static_latent":
        model.update(num_key_value_heads=groups)
    if kind == "static":
        model.update(fp32_residual_connection=wide)
    if kind == "static_experts":
        model.update(num_experts=draw.choice([8, 16]), num_experts_per_tok=draw.choice([2, 4]))
        model.update(moe_intermediate_size=draw.choice([512, 1024]))
    if kind == "static_latent":
        model.update(n_routed_experts=16, num_experts_per_tok=draw.choice([2, 4]), moe_intermediate_size=1024)
        model.update(moe_shared_expert_intermediate_size=1024, first_k_dense_replace=1, n_group=4, topk_group=2)
        model.update(num_nextn_predict_layers=draw.choice([0, 1]))
        return max(data, 2)
    return data


def _draw_dynamic(  # noqa: PLR0913 - what was drawn before
    draw: random.Random, kind: str, model: dict[str, Any], *, heads: int, groups: int, data: int, tensor: int
) -> tuple[int, int]:
    # Draw the rest of a model of the dynamic graph; return the DP and EP ranks.
    if kind == "dynamic":
        model.update(num_key_value_heads=groups)
        return data, 1
    data = draw.choice([2, 4, 8])
    experts = draw.choice([1, 2, data])
    model.update(num_key_value_heads=heads, n_routed_experts=draw.choice([8, 16]))
    model.update(num_experts_per_tok=draw.choice([2, 4]), moe_intermediate_size=draw.choice([512, 1024]))
    model.update(moe_shared_expert_intermediate_size=1024, num_nextn_predict_layers=draw.choice([0, 1]))
    model.update(mla_qkv_concat=tensor == 1 and draw.random() < 1 / 2)
    return data, experts


if __name__ == "__main__":
    main()
