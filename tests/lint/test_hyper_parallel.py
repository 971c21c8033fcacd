"""Test HyperParallel's YAML: refusals as a strict loader's, generations, the user's own copy, and commands that do not apply."""

from __future__ import annotations

import copy
import importlib
import inspect
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ms_tune.cli.main import main
from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.enums import Dialect
from ms_tune.job import Job
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.lint.result import LintRequest
from ms_tune.lint.runner import lint_files
from ms_tune.source.yaml import parse_source
from tests.files import read_data
from tests.lint.strict_loader import refusals

HERE = Dialect.HYPER_PARALLEL
EXAMPLES: dict[str, dict[str, Any]] = read_data("hyper_parallel.yaml")
LOADERS = [one for one in built_in(HERE) if one.id in ("MST860", "MST862", "MST863", "MST864")]
VALUES: tuple[Any, ...] = (
    0,
    1,
    4,
    1.5,
    "2",
    "1e-4",
    True,
    False,
    None,
    [],
    {},
    "full",
    "hccl",
    "float32",
    "single",
    "attention",
)
NEW_KEYS = (
    "max_steps",
    "layers",
    "sampler_typ",
    "enabled",
    "tp",
    "dp_shard_size",
    "pp_schedule",
    "profiling",
    "memory",
)
CASES = int(os.environ.get("MS_TUNE_ORACLE_CASES", "40"))


def job_of(data: object) -> Job:
    return Job(parse_source(yaml.safe_dump(data, sort_keys=False), Path("train.yaml")))


def found_in(data: object, version: str | None = None) -> tuple[Diagnostic, ...]:
    job = job_of(data)
    return lint(job.original, HERE, built_in(HERE), version or job.release.version)


@pytest.mark.parametrize("generation", EXAMPLES)
def test_a_file_that_fits_its_generation_is_recognised_and_has_no_error(generation: str) -> None:
    job = job_of(EXAMPLES[generation])
    assert (job.dialect, job.release.version) == (HERE, generation)
    assert {one.id for one in found_in(EXAMPLES[generation])} <= {"MST861"}  # which names what moved


def mutate(data: dict[str, Any], draw: random.Random) -> None:
    """Change, rename, add or delete one key, in any section."""
    section, below = data, [data]
    while below and draw.random() < 0.7:
        section = draw.choice(below)
        below = [one for one in section.values() if isinstance(one, dict)]
    names = list(section)
    kind = draw.choice(("value", "value", "rename", "add", "delete"))
    if kind == "add" or not names:
        section[draw.choice(NEW_KEYS)] = draw.choice(VALUES)
        return
    name = draw.choice(names)
    if name == "_target_":
        return
    old = section.pop(name)
    if kind == "rename":
        section[name[:-1] + name[-1:] * 2] = old
    elif kind == "value":
        section[name] = draw.choice(VALUES)


def compared(findings: tuple[Diagnostic, ...]) -> set[tuple[str, str]]:
    """Return the refusals among findings: the path of the key that the loader names, and the kind."""
    made = set()
    for one in findings:
        reason = str(one.message.params.get("reason", ""))
        if one.id in ("MST860", "MST864"):
            path = (
                one.path[:1]
                if one.path[0] in ("profiling", "memory", "profiler") and "reason" not in one.message.params
                else one.path
            )
            made.add((".".join(map(str, path)), "unknown"))
        elif "expected at least" not in reason:
            kind = "missing" if one.id == "MST862" else "choice" if "expected one of" in reason else "type"
            made.add((".".join(map(str, one.path)), kind))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("generation", ["G3", "G4"])
def test_refusals_are_those_of_a_strict_loader(generation: str) -> None:
    draw = random.Random(f"{generation} {os.environ.get('MS_TUNE_ORACLE_SEED', '0')}")  # noqa: S311 - examples
    refused = 0
    for _ in range(CASES):
        data = copy.deepcopy(EXAMPLES[generation])
        for _ in range(draw.randint(1, 3)):
            mutate(data, draw)
        source = parse_source(yaml.safe_dump(data, sort_keys=False), Path("train.yaml"))
        findings = lint(source, HERE, LOADERS, generation)
        inferred = {
            ".".join(map(str, one.path)) for one in findings if one.id == "MST863" and one.severity is Severity.WARNING
        }
        expected = refusals(data, generation)
        refused += len(expected)
        nulls = {(path, "type") for path, _ in expected if path in inferred}
        assert (
            compared(findings) - {(one, "type") for one in inferred} - {(one, "choice") for one in inferred}
            == expected - nulls
        ), data
    assert refused > CASES / 2


COPY = {
    "hyper_parallel/__init__.py": "",
    "hyper_parallel/trainer/config/training.py": (
        "from dataclasses import dataclass, field\nfrom typing import Literal, Optional\n"
        "Backend = Literal['nccl', 'hccl']\n"
        "@dataclass\nclass Base:\n    seed: Optional[int] = None\n"
        "@dataclass(kw_only=True)\nclass TrainingConfig(Base):\n"
        "    train_iters: int | None = None\n    new_field: float = 0.5\n    backend: Backend = 'nccl'\n    free: 'SomeType' = None\n"
    ),
    "hyper_parallel/trainer/config/trainer.py": (
        "raise SystemExit('imported')\nfrom dataclasses import dataclass, field\n"
        "@dataclass\nclass TrainerConfig:\n    model: dict\n    optimizer: dict\n    required_section: 'TrainingConfig'\n"
        "    training: TrainingConfig = field(default_factory=TrainingConfig)\n"
        "    accelerator: 'AcceleratorConfig' = field(default_factory=dict)\n"
    ),
}
OWN = """
model: {_target_: hyper_parallel.models.x}
optimizer: {_target_: hyper_parallel.y}
training: {train_iters: 3, new_field: 1, global_batch_size: 8, seed: null, free: [1], backend: gloo}
accelerator: {tp_size: 1}
fsdp_config: {dp_shard_size: 2}
activation_checkpoint: {mode: full}
"""


@pytest.mark.parametrize("place", ["copy/examples", "elsewhere"])
def test_fields_are_those_of_the_copy_around_the_file_or_installed(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "copy"
    for name, text in COPY.items():
        (copied / name).parent.mkdir(parents=True, exist_ok=True)
        (copied / name).write_text(text, encoding="utf-8")
    file = tmp_path / place / "train.yaml"
    file.parent.mkdir()
    file.write_text(OWN, encoding="utf-8")
    if place == "elsewhere":
        monkeypatch.syspath_prepend(copied)
    report = lint_files(file, request=LintRequest())
    found = {
        (one.id, ".".join(map(str, one.path)), str(one.message.params.get("reason", ""))) for one in report.findings
    }
    errors = {one for one in found if one[0] in ("MST860", "MST862", "MST863")}
    roots = "$: unknown configuration fields: ['activation_checkpoint', 'fsdp_config']"
    assert errors == {
        ("MST860", "training.global_batch_size", "$.training: unknown configuration fields: ['global_batch_size']"),
        ("MST860", "fsdp_config", roots),
        ("MST860", "activation_checkpoint", roots),
        ("MST862", "required_section", "$: missing required configuration fields: ['required_section']"),
        ("MST863", "training.backend", "$.training.backend: expected one of ('nccl', 'hccl'), got 'gloo'"),
    }
    messages = [one.message for one in report.findings if one.id == "MST860"]
    assert {one.params["where"] for one in messages} == {str(copied)}


TARGETS = {
    "hyper_parallel/models/__init__.py": "from .auto import Auto as Model, build\nfrom hyper_parallel.models.auto import other\n",
    "hyper_parallel/models/auto.py": (
        "import functools\nclass Auto:\n    def __init__(self, size, *, depth=1):\n        pass\n"
        "    @classmethod\n    def from_pretrained(cls, path, torch_dtype=None):\n        pass\n"
        "    @staticmethod\n    def make(size):\n        pass\n"
        "    def open(self, **options):\n        pass\n"
        "class Child(Auto):\n    pass\n"
        "def build(path, *rest, depth=2):\n    pass\ndef other(**options):\n    pass\n"
        "@functools.lru_cache\ndef cached(path):\n    pass\n"
    ),
}


@pytest.mark.drawn(18)
@pytest.mark.parametrize("name", ["size", "depth", "path", "torch_dtype", "options", "self", "cls", "rest"])
@pytest.mark.parametrize(
    "target",
    [
        *("Model", "Model.from_pretrained", "Model.make", "build", "other", "absent"),
        *("auto.Child", "auto.cached", "auto.Auto.from_pretrained"),
    ],
)
def test_arguments_of_targets_are_refused_as_python_refuses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, name: str
) -> None:
    for place, text in (COPY | TARGETS).items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for module in [one for one in sys.modules if one.partition(".")[0] == "hyper_parallel"]:
        del sys.modules[module]
    code: Any = importlib.import_module("hyper_parallel.models")
    for part in target.split("."):
        code = getattr(code, part, None)
    refused = False
    try:
        if code is not None:
            inspect.signature(code).bind_partial(**{name: 1})
    except TypeError:
        refused = True
    file = tmp_path / "train.yaml"
    file.write_text(
        yaml.safe_dump({**yaml.safe_load(OWN), "model": {"_target_": f"hyper_parallel.models.{target}", name: 1}})
    )
    found = [
        str(one.message.params["reason"]) for one in lint_files(file).files[0].findings if one.path == ("model", name)
    ]
    inherited = target in ("auto.Child", "auto.cached")  # bases and decorators are not followed
    assert found == [
        f"$.model: target arguments are invalid: got an unexpected keyword argument {name!r}"
        for _ in range(refused and not inherited)
    ]
    for module in [one for one in sys.modules if one.partition(".")[0] == "hyper_parallel"]:
        del sys.modules[module]


@pytest.mark.parametrize(
    ("text", "version", "words"),
    [
        ("profiling: {end_step: 20}", "G4", "the new place is profiler.stop_step, which includes its step: write 19"),
        ("profiling: {rank: 3}", "G4", "the new place is profiler.rank_ids, a list: [3]"),
        (
            "training: {max_steps: 20}",
            "G4",
            "'training.max_steps' is a field of an earlier generation; the new place is training.train_iters",
        ),
        ("fsdp_config: {defer_fsdp_grad_sync: true}", "G3", "the newest one has no replacement"),
        (
            "accelerator: {tp_sizes: 2}",
            "G4",
            "$.accelerator: unknown configuration fields: ['tp_sizes']; did you mean 'tp_size'?",
        ),
        ("accelerator: {tp_size: '2'}", "G4", "$.accelerator.tp_size: expected int, got str"),
        ("training: {global_batch_size: null}", "G4", "$.training.global_batch_size: expected int, got None"),
        ("activation_swap: all", "G4", "$.activation_swap: expected one of ('none', 'attention'), got 'all'"),
        ("training: {max_grad_norm: 1e-4}", "G4", "$.training.max_grad_norm: expected float, got str"),
    ],
)
def test_messages_have_the_loaders_words(text: str, version: str, words: str) -> None:
    found = lint(parse_source(text, Path("a.yaml")), HERE, LOADERS, version)
    assert any(words in str(one.message) for one in found), [str(one.message) for one in found]


def test_fixes_are_made(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text(
        "optimizer: {_target_: hyper_parallel.components.optim.AdamW, adamw_config: {adamw_lr: 1e-4}}\n"
        "accelerator: {tp_sizes: 2}\ntraining: {train_iters: 3, backend: ncl}\n"
    )
    lint_files(file, request=LintRequest(fix="unsafe", write=True))
    fixed = yaml.safe_load(file.read_text("utf-8"))
    assert fixed["optimizer"]["adamw_config"] == {"adamw_lr": 1.0e-4}
    assert (fixed["accelerator"], fixed["training"]["backend"]) == ({"tp_size": 2}, "nccl")


def test_such_a_file_is_never_sent_to_another_dialect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for generation, data in EXAMPLES.items():
        (tmp_path / f"{generation}.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    assert main(["lint", "--lang", "en", str(tmp_path)]) in (0, 1)  # not "no training config found"
    shown = capsys.readouterr()
    assert "5 files" in shown.out + shown.err
    file = str(tmp_path / "G4.yaml")
    for command in ("dryrun", "fit", "normalize-recompute"):
        assert main([command, "--lang", "en", file]) == 2
        shown = capsys.readouterr()
        assert "HyperParallel runs on PyTorch" in shown.err
        assert "ms-tune check" in shown.err
        assert "pynative" not in shown.err
    program, script = tmp_path / "train_text.py", tmp_path / "run.sh"
    program.write_text("from hyper_parallel.trainer import TextTrainer\n")
    script.write_text(f"python -m torch.distributed.run --module examples.train_text {file}\n")
    for words in ([str(program)], [str(script)], ["--", "python", "train.py", file], ["--check", str(script)]):
        assert main(["dryrun", "--lang", "en", *words]) == 2  # before MindSpore starts
        assert "HyperParallel runs on PyTorch" in capsys.readouterr().err
    assert main(["check", "--lang", "en", file]) == 0
    assert "the CSV of HyperParallel's dry-run" in " ".join(capsys.readouterr().out.split())


@pytest.mark.drawn(12)
@pytest.mark.parametrize("seed", range(40))
def test_ranks_are_divided_as_the_trainer_divides_them(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    tp, cp, pp, ep, shard, micro, batch = (rng.choice((1, 1, 2, 3, 4)) for _ in range(7))
    batch, world = batch * 8, rng.choice((4, 8, 12, 16, 24))
    data = {
        "model": {"_target_": "hyper_parallel.models.A"},
        "optimizer": {"_target_": "hyper_parallel.components.optim.AdamW"},
        "training": {"train_iters": 9, "global_batch_size": batch, "micro_batch_size": micro},
        "accelerator": {"cp_size": cp, "pp_size": pp, "ep_size": ep},
        "fsdp_config": {"dp_shard_size": shard},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(data))
    script = tmp_path / "run.sh"
    script.write_text(
        f"torchrun --nproc_per_node={world} --module examples.train_text job.yaml --accelerator.tp_size={tp}\n"
    )
    meshes = [
        dp
        for dp in range(1, world + 1)
        if dp * cp * pp * tp == world
        and any(shard * replicas == dp * cp for replicas in range(1, world + 1))
        and any(ep * others == dp * cp * tp for others in range(1, world + 1))
        and any(micro * dp * steps == batch for steps in range(1, batch + 1))
    ]
    found = [one.id for one in lint_files(script).files[0].findings]
    assert ("MST844" in found) == (not meshes)
    assert not {"MST001", "MST845"} & set(found)


def test_arguments_that_the_trainer_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "G4.yaml").write_text(yaml.safe_dump(EXAMPLES["G4"], sort_keys=False))
    script = tmp_path / "run.sh"
    script.write_text(
        "torchrun --nproc_per_node=$N --module examples.train_text G4.yaml --training.train_iter=3 --accelerator.tp_size 2\n"
    )
    (report,) = lint_files(script).files
    assert [str(one.message) for one in report.findings if one.id == "MST845"] == [
        "training.train_iter does not exist; did you mean training.train_iters?",
        "--accelerator.tp_size and its value must be one word, with = between them",
    ]
    assert report.release.framework == "HyperParallel"
    assert main(["check", "--lang", "en", str(script)]) == 1
    assert "hyper-parallel (HyperParallel G4)" in " ".join(capsys.readouterr().out.split())
