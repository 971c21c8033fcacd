"""Find the example commands of pages and help, their requirements, and create a folder with the files that they name."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ms_tune.units import MIB
from tests.memory.reports import QWEN_TINY
from tests.memory.test_oom import ENOUGH, STATISTICS
from tests.metrics.profiles import host_bound, operator_bound
from tests.normalize.test_against import as_log, lines_of
from tests.planning.test_table_file import SAPP
from tests.pools.test_torch_replay import NPU
from tests.pools.torch_recordings import Program
from tests.readers.memlogs import training
from tests.readers.samples import folder as sample
from tests.readers.training_logs import megatron_log
from tests.workflows.migrate.test_migrate import SOURCE

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
JOB = """\
use_legacy: False
use_parallel: True
run_mode: train
trainer: {}
parallel_config: {pipeline_stage: 4}
model: {model_config: {model_type: qwen3, architectures: [Qwen3ForCausalLM], num_hidden_layers: 12, offset: 0}}
recompute_config:
  recompute: [1, 0, 0, 0]
"""
_FENCE = re.compile(
    r"^(?:<!-- needs: (?P<needs>[\w ,]+) -->\n+)?(?P<in> *)```(?P<kind>\w*)\n(?P<body>.*?)^ *```",
    re.MULTILINE | re.DOTALL,
)
_SHELLS = ("console", "sh", "bash")
# Commands of other programs: executed here, or by the words that they need.
_DONE_HERE = ("cp", "echo", "grep")
_PROGRAMS = {"msrun": "NPU", "pip": "network", "examples": "simulation"}
_DEVELOPMENT = ("python", "code", "pytest", "ruff", "mypy", "pre-commit", ".ci/release", "mkdocs", ".", "git")
_WITHOUT_RUNS = ("--table", "--explain")  # options of fit without simulation


@dataclass(frozen=True, slots=True)
class Block:
    """One block of commands on a page: the words of each command, its requirements, and those that the page states."""

    commands: tuple[tuple[str, ...], ...]
    said: frozenset[str]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(need for words in self.commands if (need := needs(words)))


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a page that contain commands."""
    for found in _FENCE.finditer(text):
        if found["kind"] in _SHELLS:
            said = frozenset((found["needs"] or "").split(", ")) - {""}
            yield Block(tuple(_commands(found["body"], found["kind"])), said)


def _commands(body: str, kind: str) -> Iterator[tuple[str, ...]]:
    for line in body.replace("\\\n", " ").splitlines():
        if kind == "console" and not line.startswith("$ "):
            continue  # output of a command
        for part in re.split(r"&&|\|", line.removeprefix("$ ")):
            words = shlex.split(part, comments=True)
            if words:
                yield tuple(words)


def of_help(text: str) -> Iterator[tuple[str, ...]]:
    """Return the example commands of a help text."""
    for line in text.splitlines():
        if line.startswith("  ms-tune "):
            yield tuple(shlex.split(re.split(r"\s{2,}", line.strip())[0]))


def needs(words: tuple[str, ...]) -> str | None:
    """Return the requirement of a command that a short test does not have, or None."""
    words = words[next((at for at, word in enumerate(words) if not re.match(r"\w+=", word)), 0) :]
    program, rest = words[0], words[1:]
    if program == "ms-tune":
        return _needed_by(rest)
    if program in _DONE_HERE:
        return None
    for name, need in _PROGRAMS.items():
        if program == name or name in rest[:2] or any(word.startswith(f"{name}/") for word in rest[:1]):
            return need
    assert program in _DEVELOPMENT, words
    return "development"


def _needed_by(rest: tuple[str, ...]) -> str | None:
    if rest[:2] == ("memory", "run") and "--" in rest:
        return "PyTorch"
    if rest[0] == "dryrun" or "--dryrun" in rest or (rest[0] == "init" and "--model" in rest):
        return "simulation"
    if rest[0] == "fit" and not {*_WITHOUT_RUNS} & {*rest} and ("--top", "0") not in itertools.pairwise(rest):
        return "simulation"
    if rest[0] == "server":
        return "editor"
    return "repository" if "--base" in rest else None


def furnish(folder: Path) -> None:
    """Put the files that examples name into a folder: small ones, of every kind that ms-tune reads."""
    templates = folder / "yaml_templates"
    shutil.copytree(ROOT / "yaml_templates", templates)
    shutil.copytree(ROOT / "examples", folder / "examples")
    _configs(folder, templates)
    _traces(folder)
    (folder / "team.yaml").write_text(_team(), "utf-8")
    (folder / "plan.txt").write_text("offset: [[0, 0, 0, 0]]\nrecompute: [[1, 0, 1, 0]]\n", "utf-8")
    (folder / "llama.json").write_text(json.dumps(SAPP), "utf-8")
    (folder / "table.json").write_text(json.dumps(_TABLE), "utf-8")
    shutil.copy(DATA / "placement" / "steps.csv", folder / "A.1048576.csv")
    snapshot = pickle.dumps(Program(NPU, seed=5).run().snapshot(), protocol=4)
    for name in ("snapshot.pickle", "before.pickle", "after.pickle"):
        (folder / name).write_bytes(snapshot)


def linked(old: str, new: str) -> None:
    """Copy a file; link a large one, which no command changes."""
    if Path(old).stat().st_size > MIB:
        os.link(old, new)
    else:
        shutil.copy(old, new)


def _configs(folder: Path, templates: Path) -> None:
    for name in ("train.yaml", "configs/train.yaml"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(folder / "examples" / "out_of_memory.yaml", folder / name)
    for name in ("static.yaml", "pretrain_deepseek3_671b.yaml"):
        (folder / name).write_text(SOURCE, "utf-8")
    for name in ("pretrain_qwen3_32b_4k.yaml", "old.yaml"):
        shutil.copy(templates / "mindformers" / "qwen3_32b.yaml", folder / name)
    for name in ("config.yaml", "pretrain.yaml"):
        (folder / name).write_text(JOB, "utf-8")
    script = (
        "msrun --worker_num 8 pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 8 --seq-length 2048 \\\n"
        "  --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 8 --pipeline-model-parallel-size 2\n"
    )
    for name in ("pretrain.sh", "pretrain_x.sh", "run.sh", "pretrain_qwen3_moe_ms.sh", "pretrain_qwen25_7b_32k_ms.sh"):
        (folder / name).write_text(script, "utf-8")
    tuning = folder / "examples" / "qwen2.5vl"
    tuning.mkdir()
    (tuning / "model.json").write_text("{}", "utf-8")
    (tuning / "finetune.sh").write_text(
        "torchrun --nproc_per_node 8 pretrain_vlm.py --mm-model model.json --mm-data data.json --bf16\n", "utf-8"
    )


def _traces(folder: Path) -> None:
    run = DATA / "memory_tracker" / "asc2"
    for name in (
        "run",
        "RUN",
        "before",
        "after",
        "rank_folder",
        "ms-tune-runs/NAME",
        "ms-tune-runs/20261121-llama",
        "rank_folders/rank_8",
        "output/rank_0",
        "output/rank_8",
    ):
        shutil.copytree(run, folder / name)
    layers = sample(QWEN_TINY)
    shutil.copytree(layers / "rank_0", folder / "layers", copy_function=linked)
    shutil.copy(run / "memory_block.csv", folder / "memory_block.csv")
    (folder / "trace").mkdir()
    (folder / "trace" / "mem_log_dev0.txt").write_text(training(1).text(), "utf-8")
    slow, fast = (megatron_log([9000, *[time + step for step in range(12)]], total=13) for time in (4000, 2000))
    log = as_log(lines_of(JOB))
    for name in ("output/msrun_log", "msrun_log", "one_machine"):
        (folder / name).mkdir(parents=True)
    for name in ("worker_0.log", "output/msrun_log/worker_0.log"):
        (folder / name).write_text(log, "utf-8")
    (folder / "worker_3.log").write_text(STATISTICS.format(peak=58600) + ENOUGH, "utf-8")
    for name in ("worker_7.log", "msrun_log/worker_7.log", "deterministic.log"):
        (folder / name).write_text(slow, "utf-8")
    own = (f"step {step}: loss 2.5, 100.0 ms\nstep {step} loss 2.5 in 0.1 s\n" for step in range(1, 41))
    (folder / "own.log").write_text("".join(own), encoding="utf-8")
    for name in ("one_machine.log", "one_machine/worker_0.log", "usual.log", "train.log", "before.log"):
        (folder / name).write_text(fast, "utf-8")
    host_bound().write(folder / "prof", 0)
    for rank, step in enumerate((host_bound(), operator_bound())):
        output = step.write(folder / "ranks", rank)
        output.parent.rename(folder / f"rank{rank}_ascend_ms")
    (folder / "cluster_step_trace_time.csv").write_text(
        "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
        "Communication(Not Overlapped and Exclude Receive),Preparing\n"
        "1,rank,0,900.0,80.0,0,80.0,20.0,1000.0,0,80.0,0\n1,rank,1,400.0,580.0,0,580.0,20.0,1000.0,480.0,100.0,0\n",
        "utf-8",
    )


def _team() -> str:
    """Return the checklist that docs/lint.md shows."""
    page = (ROOT / "docs" / "lint.md").read_text("utf-8")
    return next(found["body"] for found in _FENCE.finditer(page) if found["body"].startswith("dialects:"))


_TABLE = {
    "stages": 2,
    "chunks": 1,
    "micro_batches": 2,
    "limit_bytes": 55574528000,
    "order": "1f1b",
    "constant_bytes": 0,
    "head": {"forward": 30, "bytes": 1153433600},
    "tail": {"forward": 90, "bytes": 2593128448},
    "layers": [
        {
            "name": "dense",
            "count": 4,
            "forward": 180,
            "bytes": 1659895808,
            "recompute": {
                "none": {"activation_bytes": 8661237760, "backward_extra": 0},
                "full": {"activation_bytes": 33554432, "backward_extra": 0.5},
            },
        }
    ],
}
