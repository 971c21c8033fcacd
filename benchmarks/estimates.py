"""Compare highest peaks of dryruns with the closed-form estimates of ``ms-tune check`` for the same jobs.

``python benchmarks/estimates.py [CONFIG ...]`` (some minutes a config; the packaged templates by default), or
``python benchmarks/estimates.py --random SEED COUNT`` for small legacy Llama jobs with random sizes and splits.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ms_tune import check_job
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.dryrun.run import dryrun_job
from ms_tune.units import gib

_TEMPLATE = Path(__file__).parents[1] / "yaml_templates" / "mindformers" / "mixtral_8x7b_swap.yaml"


def main() -> None:
    """Print a row of a table for each job."""
    with tempfile.TemporaryDirectory() as folder:
        for path, fewest in _jobs(Path(folder)):
            estimate = check_job(path).estimate
            request = DryrunRequest(path, fewest_layers=fewest, run_folder=Path(folder) / f"run_{path.stem}")
            needs = [stage.verdict.need for stage in dryrun_job(request).stages]
            peak = max(need.peak_bytes for need in needs if need is not None)
            if estimate is None:
                print(f"| {path.stem} | - | {gib(peak)} | - |", flush=True)
                continue
            own = estimate.fullest.peak_bytes
            print(f"| {path.stem} | {gib(own)} | {gib(peak)} | {peak / own:.2f} |", flush=True)


def _jobs(folder: Path) -> Iterator[tuple[Path, bool]]:
    if sys.argv[1:2] != ["--random"]:
        packaged = _TEMPLATE.parents[1]
        yield from ((Path(one), True) for one in sys.argv[1:] or sorted(map(str, packaged.glob("*/*.yaml"))))
        return
    seed, count = map(int, sys.argv[2:4])
    draw = random.Random(seed)  # noqa: S311 - jobs to compare
    for number in range(count):
        job, name = _draw_llama(draw)
        path = folder / f"{number}_{name}.yaml"
        path.write_text(yaml.safe_dump(job), encoding="utf-8")
        yield path, False


def _draw_llama(draw: random.Random) -> tuple[dict[str, Any], str]:
    job = yaml.safe_load(_TEMPLATE.read_text(encoding="utf-8"))
    job.pop("moe_config", None)
    job.pop("swap_config", None)
    heads, layers, length = draw.choice([8, 16]), draw.choice([4, 6]), draw.choice([1024, 2048, 4096])
    model = job["model"]["model_config"]
    model.update(num_layers=layers, hidden_size=128 * heads, num_heads=heads, seq_length=length)
    model.update(n_kv_heads=draw.choice([heads // 4, heads]), vocab_size=draw.choice([32000, 64000]))
    model.update(param_init_type=draw.choice(["float32", "bfloat16"]), intermediate_size=None)
    stages, tensor, data = draw.choice([1, 1, 2]), draw.choice([1, 2]), draw.choice([1, 2, 4])
    job["parallel_config"].update(data_parallel=data, model_parallel=tensor, expert_parallel=1, pipeline_stage=stages)
    job["parallel_config"].update(micro_batch_num=4 if stages > 1 else 1, use_seq_parallel=draw.random() < 1 / 2)
    job["use_parallel"] = stages * tensor * data > 1
    job["parallel"]["enable_parallel_optimizer"] = shards = draw.random() < 2 / 3
    job["recompute_config"] = {"recompute": draw.random() < 1 / 2}
    job["runner_config"]["batch_size"] = draw.choice([1, 2])
    name = f"layers{layers}_hidden{128 * heads}_sequence{length}_dp{data}_tp{tensor}_pp{stages}"
    return job, name + ("_sharded" if shards else "")


if __name__ == "__main__":
    main()
