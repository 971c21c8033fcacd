"""Compare the reference transformer with MindFormers 2.1's own trainer on several ranks: ``-m tests.oracle.tensor_parallel PYTHON``.

PYTHON is that of an environment with MindSpore 2.10 or later, MindFormers 2.1 and ms-tune's requirements; the trainer
uses the stand-in for HyperParallel in tests/oracle/stand_in. Further arguments name cases of
``tests/data/tensor_parallel_cases.yaml`` (default: all). Their figures are written to
tests/data/tensor_parallel_figures.json; docs/accuracy-dryrun.md summarizes them. ``PYTHON --seed N --count K`` draws
others, whose figures are only printed. With MindFormers 2.0 only one device is possible, as its layers need more than
the stand-in has.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import yaml

from ms_tune.dialects import write_specs

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
CASES = yaml.safe_load((DATA / "tensor_parallel_cases.yaml").read_text(encoding="utf-8"))
FIGURES = DATA / "tensor_parallel_figures.json"
# Of MindFormers 2.0, whose layers ran over HyperParallel's public tensors outside of this project.
FIGURES_2_0 = DATA / "tensor_parallel_figures_2.0.json"
STAND_IN = ROOT / "tests" / "oracle" / "stand_in"
MIB = 2**20
_LEAST_FOR_COMPRESSION = 2048  # tokens
_GIVEN = 0.4  # the share of a drawn case's settings that are not the base's
SCALARS = 5 * 512  # counters of steps and, in each layer with experts, of the router: a block of 512 bytes each
_REST: dict[str, Any] = {
    "training": {"local_batch_size": 1, "global_batch_size": 1},
    "optimizer": {"type": "AdamW"},
    "lr_scheduler": {"type": "ConstantWarmUpLR", "warmup_ratio": 0},
    "parallelism": {"data_parallel_shard": 1, "pipeline_parallel": 1},
}


def config_of(case: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return a case's config and its devices."""
    case = dict(case)
    base, tensor = case.pop("base"), case.pop("tensor")
    config = {**copy.deepcopy(_REST), "model": dict(CASES["bases"][base])}
    config["parallelism"] |= {"tensor_parallel": tensor, "sequence_parallel": tensor > 1}
    for path, value in case.items():
        section, _, key = path.partition(".")
        if key:
            config[section][key] = value
        else:
            config[section] = value
    return config, tensor


def figures(
    python: str, folder: Path, devices: int, run: str, *options: str, release: str | None = None
) -> dict[str, int]:
    """Return the bytes at the peak of one dryrun of ``case.yaml``: total, weights, optimizer state.

    ``release``: the MindFormers release that the reference transformer follows, instead of the installed one.
    """
    command = ["-m", "ms_tune", "dryrun", "case.yaml", "--devices", str(devices), "--run-dir", run, "--json", *options]
    return _figures_of(_printed(python, folder, command, release))


_EACH = """
import json, sys
from pathlib import Path
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.dryrun.run import simulate_each
from ms_tune.dryrun.task import Observer
from ms_tune.encode import as_json, json_text
from ms_tune.report.dryrun_json import variants_json
asked = [
    (DryrunRequest(config=Path(file), devices=devices, reference=True, fewest_layers=True, run_folder=Path("own")), None)
    for file, devices in json.loads(sys.argv[1]).items()
]
print(json_text(as_json(variants_json(simulate_each(asked, Observer())), None)))
"""


def reference_figures(folder: Path, names: Sequence[str], release: str) -> dict[str, dict[str, int]]:
    """Return the figures of the reference transformer for several cases, as :func:`figures`; they share imports of MindSpore."""
    devices = {}
    for name in names:
        config, devices[f"{name}.yaml"] = config_of(CASES["cases"][name])
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    found = _printed(sys.executable, folder, ["-c", _EACH, json.dumps(devices)], release)["variants"]
    return {name: _figures_of(one["result"]) for name, one in zip(names, found, strict=True)}


def _printed(python: str, folder: Path, arguments: Sequence[str], release: str | None) -> dict[str, Any]:
    places = [str(STAND_IN), str(ROOT)]
    if release:
        (folder / "told" / f"mindformers-{release}.dist-info").mkdir(parents=True)
        places.insert(0, str(folder / "told"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run(
        [python, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if not done.stdout.startswith("{"):
        raise RuntimeError(done.stderr[-2000:])
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def _figures_of(result: dict[str, Any]) -> dict[str, int]:
    stage = result["stages"][0]
    kept = stage["categories_at_peak"]
    return {"peak": stage["peak_bytes"], **{name: kept[name] for name in ("weights", "optimizer_state")}}


def drawn(seed: int, tensors: Sequence[int] = (1, 2, 2, 4, 4, 8)) -> dict[str, Any]:
    """Return a random case: sizes that any number of ranks divides, every setting written or left out."""
    random = Random(seed)  # noqa: S311 - cases are drawn, no secrets
    base, tensor = random.choice(("qwen3", "deepseek")), random.choice(tensors)
    layers, dtypes = random.randint(1, 4), ("bfloat16", "bfloat16", "float32")
    some: dict[str, Sequence[Any]] = {
        "model.vocab_size": (1024, 8000, 32000, 65536),
        "model.hidden_size": (512, 768, 1536),
        "model.intermediate_size": (1024, 2816, 6144),
        "model.seq_length": (512, 1024, 3072, 8192),
        "model.tie_word_embeddings": (True, False),
        "model.params_dtype": dtypes,
        "model.layernorm_compute_dtype": dtypes,
        "model.rotary_dtype": dtypes,
        "model.hidden_act": ("fusedswiglu",),
        "training.local_batch_size": (1, 2),
        "optimizer.use_fused": (True, False),
    }
    modules = ["mlp", "self_attention", "input_layernorm", "pre_mlp_layernorm", "self_attention.core_attention"]
    if base == "qwen3":
        some |= {
            "model.num_attention_heads": (8, 32),
            "model.head_dim": (64, 128, 256),
            "model.attention_bias": (True, False),
            "model.qk_layernorm": (True, False),
        }
        modules += ["mlp.activation_func"]
    else:
        some |= {
            "model.num_attention_heads": (8, 16),
            "model.qk_layernorm": (True, False),
            "model.q_lora_rank": (512, 1024),
            "model.kv_lora_rank": (128, 512),
            "model.qk_nope_head_dim": (128, 160, 192),  # with rotary positions at least the width of the values
            "model.v_head_dim": (64, 128, 192),
            "model.first_k_dense_replace": range(layers + 1),
            "model.n_routed_experts": (8, 32),
            "model.num_experts_per_tok": (4, 8),  # of four groups
            "model.n_shared_experts": (0, 1, 2),
            "model.moe_intermediate_size": (256, 768),
            "model.router_dense_type": dtypes,
            "model.num_nextn_predict_layers": (0, 0, 1),
            "parallelism.expert_parallel": (tensor,),
        }
    case = {key: random.choice(values) for key, values in some.items() if random.random() < _GIVEN}
    case["training.global_batch_size"] = case.get("training.local_batch_size", 1) * random.choice((1, 1, 2, 3))
    chosen = write_specs(sorted(random.sample(range(layers), random.randint(1, layers))))
    if case.get("model.seq_length", 0) > _LEAST_FOR_COMPRESSION and random.random() < _GIVEN:
        case["model.use_attn_mask_compression"] = True
    recompute: dict[str, Any] = {"mode": random.choice(("None", "full", "select"))}
    if recompute["mode"] == "full":
        recompute["full_recompute_layer"] = chosen
    elif recompute["mode"] == "select":
        recompute["select_module"] = dict.fromkeys(random.sample(modules, random.randint(1, 2)), chosen)
    return {"base": base, "tensor": tensor, "model.num_hidden_layers": layers, "recompute": recompute, **case}


def compared(python: str, case: dict[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Return a case's figures with MindFormers' own code, and with the reference transformer."""
    config, devices = config_of(case)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "case.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        return figures(python, folder, devices, "real"), figures(python, folder, devices, "own", "--reference")


def row(name: str, real: dict[str, int], own: dict[str, int]) -> str:
    """Return the line that is printed for a case."""
    same = [
        "equal" if abs(real[key] - own[key]) <= SCALARS else f"{own[key] - real[key]:+,}"
        for key in ("weights", "optimizer_state")
    ]
    peaks = f"{real['peak'] / MIB:,.1f} | {own['peak'] / MIB:,.1f} | {own['peak'] / real['peak'] - 1:+.2%}"
    return f"| {name} | {' | '.join(same)} | {peaks} |"


def write(found: dict[str, Any]) -> None:
    """Write the figures of all cases that have some."""
    FIGURES.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    """Run the cases; print their lines, and write them when each one is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("names", nargs="*", default=list(CASES["cases"]))
    parser.add_argument("--seed", type=int, help="draw cases instead of running those that have a name")
    parser.add_argument("--count", type=int, default=10, help="how many are drawn")
    parser.add_argument("--tensor", type=int, nargs="+", default=[1, 2, 2, 4, 4, 8], help="ranks to draw from")
    asked = parser.parse_args()
    cases = {name: CASES["cases"][name] for name in asked.names}
    if asked.seed is not None:
        cases = {f"{asked.seed + more}": drawn(asked.seed + more, asked.tensor) for more in range(asked.count)}
    for name, case in cases.items():
        try:
            real, own = compared(asked.python, case)
        except RuntimeError as error:
            sys.stderr.write(f"{name}: {error}\n{json.dumps(case)}\n")
            continue
        sys.stdout.write(row(name, real, own) + "\n")
        sys.stdout.flush()
        if asked.seed is not None:
            sys.stdout.write(f"  {json.dumps(case)}\n")
            continue
        found = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
        write({**found, name: {"real": real, "reference": own}})


if __name__ == "__main__":
    main()
