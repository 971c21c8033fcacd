"""Write suggestions of ``ms-tune check`` into configs that exceed the limit, and judge them by ``ms-tune dryrun``.

``python benchmarks/advice.py SEED COUNT [FAMILY ...]`` draws jobs from the packaged templates with other layers, sequence lengths,
splits and recomputation, each on the largest device whose memory it exceeds (about a minute a job). A line has the job, the
suggestion, and the verdict about the changed config. Families take turns; ``example`` is ``examples/out_of_memory.yaml``.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ms_tune import load_job
from ms_tune.dryrun.request import Setting
from ms_tune.dryrun.settings import with_settings
from ms_tune.source.yaml import parse_source

_ROOT = Path(__file__).parents[1]
_SIZES = (64, 48, 32, 24, 16, 12, 8)  # GiB of a device
# Left out: experts and swap, to get a dense legacy model; a limit that smaller devices refuse.
_DROPPED = re.compile(r"^(?:(?:moe|swap)_config:\n(?:[ \t].*\n|\n)*|[ \t]*max_device_memory:.*\n)", re.MULTILINE)


class _Family(NamedTuple):
    """A template and its keys, by what they set; several keys are separated by blanks."""

    file: str
    keys: Mapping[str, str]


_STATIC = {
    "tensor": "parallel_config.model_parallel",
    "stages": "parallel_config.pipeline_stage",
    "data": "parallel_config.data_parallel",
    "sequence": "parallel_config.use_seq_parallel",
    "sharded": "parallel.enable_parallel_optimizer",
    "micro": "parallel_config.micro_batch_num",
    "size": "runner_config.batch_size",
    "rows": "recompute_config.recompute",
}
_DYNAMIC = {
    "layers": "model.num_hidden_layers",
    "length": "model.seq_length model.max_position_embeddings train_dataset.dataloader.config.seq_length",
    "tensor": "parallelism.tensor_parallel",
    "size": "training.local_batch_size",
    "batch": "training.global_batch_size",
    "ids": "recompute.full_recompute_layer",
}
_MINDSPEED = {
    "layers": "model_config.num_layers",
    "length": "model_config.seq_length",
    "tensor": "parallel_config.tensor_model_parallel_size",
    "stages": "parallel_config.pipeline_model_parallel_size",
    "sequence": "parallel_config.sequence_parallel",
    "sharded": "training_config.use_distributed_optimizer",
    "micro": "dataset_config.micro_batch_num",
    "size": "dataset_config.batch_size",
    "rows": "parallel_config.recompute_config.recompute",
}
_LEGACY = {"layers": "model.model_config.num_layers", "length": "model.model_config.seq_length"}
_CORE = {
    "layers": "model.model_config.num_hidden_layers",
    "length": "model.model_config.seq_length model.model_config.max_position_embeddings train_dataset.data_loader.config.seq_length",
}
_FAMILIES = {
    "example": _Family("examples/out_of_memory.yaml", _MINDSPEED),
    "mindspeed": _Family("yaml_templates/mindspeed_ms/llama2_7b.yaml", _MINDSPEED),
    "dynamic": _Family("yaml_templates/mindformers_pynative/qwen3_8b_dynamic.yaml", _DYNAMIC),
    "experts": _Family("yaml_templates/mindformers_pynative/deepseek3_1b_moe.yaml", _DYNAMIC),
    "core": _Family("yaml_templates/mindformers/qwen3_0_6b.yaml", {**_STATIC, **_CORE}),
    "legacy": _Family("yaml_templates/mindformers/mixtral_8x7b_swap.yaml", {**_STATIC, **_LEGACY}),
}


def main() -> None:
    """Print a line for each job that exceeds the limit, and the number of suggestions that fit."""
    seed, count = map(int, sys.argv[1:3])
    draw, names = random.Random(seed), sys.argv[3:] or list(_FAMILIES)  # noqa: S311 - jobs to judge
    number, fits, given = 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        while number < count:
            name = names[number % len(names)]
            file = Path(folder) / f"{number}.yaml"
            label = f"{name} {_write_job(draw, _FAMILIES[name], file)}"
            found = _find_shortage(file)
            if found is None:
                continue
            number += 1
            size, change = found
            verdict = "-"
            if change["settings"]:
                given += 1
                verdict = _judge(file, size, change["settings"])
                fits += verdict == "fits"
            print(f"{number:3} {label} on {size} GiB: {change['text']}: {verdict}", flush=True)
    print(f"{fits} of {given} suggestions fit; {number - given} of {number} jobs have none")


def _write_job(draw: random.Random, family: _Family, file: Path) -> str:
    # Write a job, and return its sizes.
    layers, stages, tensor = draw.choice([4, 6, 8, 12]), draw.choice([1, 1, 2, 4]), draw.choice([1, 2, 4])
    stages = stages if "stages" in family.keys and not layers % stages else 1
    data, size, length = draw.choice([1, 2, 4]), draw.choice([1, 1, 2, 4]), draw.choice([2048, 4096, 8192])
    rows = [draw.choice([0, 0, 1, layers // stages]) for _ in range(stages)]
    values = {
        "layers": layers, "length": length, "tensor": tensor, "stages": stages, "data": data, "size": size,
        "micro": draw.choice([4, 8]) if stages > 1 or family.keys is _MINDSPEED else 1, "batch": 8 * data * size,
        "sharded": draw.random() < 1 / 2, "sequence": tensor > 1 and draw.random() < 1 / 2,
        "rows": rows if stages > 1 or family.keys is _MINDSPEED else bool(rows[0]), "ids": [f"0-{rows[0]}"],
    }  # fmt: skip
    text = _DROPPED.sub("", (_ROOT / family.file).read_text(encoding="utf-8"))
    file.write_text(re.sub(r"# devices: \d+", f"# devices: {data * tensor * stages}", text), encoding="utf-8")
    settings = [
        Setting(tuple(key.split(".")), json.dumps(values[name]))
        for name, keys in family.keys.items()
        for key in keys.split()
    ]
    _write_settings(file, file, settings)
    return f"{layers} layers, length {length}, TP {tensor}, PP {stages}, DP {data}, size {size}, recompute {rows}"


def _write_settings(file: Path, to: Path, settings: list[Setting]) -> None:
    source = parse_source(file.read_text(encoding="utf-8"), file)
    to.write_text(with_settings(source, settings, load_job(file).dialect).text, encoding="utf-8")


def _find_shortage(file: Path) -> tuple[int, dict[str, Any]] | None:
    # Return the largest device whose memory the job exceeds by the estimate, and the suggestion for it.
    for size in _SIZES:
        screen = _run_command("check", file, size)["files"][0]
        if screen["estimate"] is None:
            return None
        if screen["estimate"]["outlook"] == "over":
            return size, screen["change"]
    return None


def _judge(file: Path, size: int, settings: Mapping[str, str]) -> str:
    changed = file.with_name(f"changed_{file.name}")
    _write_settings(file, changed, [Setting.parse(f"{name}={raw}") for name, raw in settings.items()])
    found = _run_command("dryrun", changed, size, "--run-dir", str(file.with_suffix("")))
    verdicts = [stage["verdict"] or "no verdict" for stage in found["stages"]] if "stages" in found else [str(found)]
    return max(verdicts, key=["fits", "tight"].count) if set(verdicts) == {"fits"} else str(verdicts)


def _run_command(name: str, file: Path, size: int, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "ms_tune", name, str(file), "--json", "--device-memory", f"{size}GiB", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)  # type: ignore[no-any-return] # an object
    except ValueError:
        return {"error": done.stderr[-300:]}


if __name__ == "__main__":
    main()
