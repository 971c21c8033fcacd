"""Test options that ``msrun``, ``torchrun`` and the programs' parsers refuse, compared with the real parsers."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_tune.enums import Dialect
from ms_tune.facts.launchers import launcher
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.lint.environment.settings import parse_shell
from ms_tune.source.yaml import parse_source
from tests.lint.code import lint_environment

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic


ID = "MST843"


def lint_script(text: str) -> list[Diagnostic]:
    return [one for one in lint_environment(parse_shell(text, Path("launch.sh"))) if one.id == ID]


def lint_options(line: str) -> list[str]:
    """Return the findings about the launcher's options in a script of one line."""
    return [str(one.message.params.get("name", "more")) for one in lint_script(f"{line}\n")]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("msrun --worker_nums=8 --local_worker_num=8 train.py", ["--worker_nums"]),
        ("msrun --local=8 train.py --worker_nums 8", []),  # cut short, and the program's own
        ("msrun --worker_num=eight train.py", ["--worker_num"]),
        ("msrun --worker_num=4 train.py", ["more"]),  # 8 per machine by default
        ("msrun --worker_num=$N --local_worker_num=16 train.py", []),  # only a run could show it
        ("torchrun --nproc_per_nodes=8 train.py", ["--nproc_per_nodes"]),
        ("torchrun --nproc-per-node 8 train.py", []),
        ("msrun --worker_nums=8 pretrain_gpt.py", []),  # a check of its dialect reports that
        ("python train.py --worker_nums 8", []),
    ],
)
def test_what_a_launcher_refuses(line: str, names: list[str]) -> None:
    assert lint_options(line) == names


def test_it_is_reported_where_the_value_is() -> None:
    (finding,) = lint_script("N=x\nmsrun --worker_num=$N train.py\n")
    assert (finding.location.line, finding.location.column) == (1, 3)


VALUES = ["8", "16", "0", "-1", "x", "8.0", "1_0", "True", "False", "3", "4", "", "+2", "yes"]


@pytest.mark.slow
def test_against_the_parser_of_the_installed_msrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that its parser refuses is reported, and nothing that it accepts, except two counts that are compared later."""
    if importlib.util.find_spec("mindspore") is None:
        pytest.skip("MindSpore is not installed")
    from mindspore.parallel.cluster import run  # noqa: PLC0415 - slow, and only here

    draw, seen = random.Random(1), [0, 0]  # noqa: S311 - cases, no secrets
    names = [name for name in launcher("msrun").values if not name.startswith("bind_")]
    for _ in range(300):
        spelled = [
            draw.choice([name, name, f"{name}s", name[:-1], name[: len(name) // 2]]) for name in draw.sample(names, 2)
        ]
        words = [f"--{name}={draw.choice(VALUES)}" for name in spelled]
        monkeypatch.setattr(sys, "argv", ["msrun", *words, "train.py", "--x", "1"])
        refused = False
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                run.get_args()
            except (SystemExit, SyntaxError):  # `--join=` raises the latter
                refused = True
        ours = [name for name in lint_options(f"msrun {' '.join(words)} train.py --x 1") if name != "more"]
        ours = [name for name in ours if not (name == "--worker_num" and not refused)]  # none at all is refused later
        assert bool(ours) == refused, words
        seen[refused] += 1
    assert min(seen) > 30


IDS = {*(f"MST56{n}" for n in range(1, 8)), *(f"MST78{n}" for n in range(4, 8))}
CHECKS = tuple(check for check in built_in() if check.id in IDS)
MODEL = "use_legacy: False\nmodel: {{model_config: {{model_type: qwen3, architectures: [Qwen3ForCausalLM], {}}}}}"


def lint_keys(text: str, version: str = "1.9", dialect: Dialect = Dialect.MINDFORMERS) -> list[tuple[str, object]]:
    source = parse_source(text, Path("a.yaml"))
    return [(one.id, one.path[-1]) for one in lint(source, dialect, CHECKS, version)]


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ("optimizer: {type: AdamW, swap: True}", "1.6", [("MST561", "swap")]),  # 2.1 accepts it
        ("optimizer: {type: AdamW, swap: True}", "2.1", []),
        ("optimizer: {type: AdamWeightDecay, wieght_decay: 0.1}", "1.9", []),  # MindSpore's own
        ("optimizer: {type: AdamW, auto_register: mine.AdamW, other: 1}", "1.9", []),
        ("callbacks: [{type: MyCallback, interval: 2}]", "1.9", []),
        ("callbacks: [{type: MFLossMonitor}, {type: CheckpointMonitor, prefx: a}]", "1.9", [("MST561", "prefx")]),
        ("lr_schedule: {type: CosineWithWarmUpLR, lr_ends: 0.}", "1.9", [("MST562", "lr_ends")]),
        ("lr_schedule: {type: CosineWithWarmUpLR, warmup_epoch: 1}", "1.9", [("MST562", "warmup_epoch")]),
        ("lr_schedule: {type: CosineWithWarmUpLR, warmup_epochs: 1, of_my_own: 2}", "1.9", []),
        ("run_mode: predict\noptimizer: {type: AdamW, beta1: 0.9}", "1.9", []),
        ("train_dataset: {data_loader: {handler: [{tyype: take}]}}", "2.1", [("MST565", "tyype")]),
        ("train_dataset: [1, 2]", "1.9", []),
        ("train_dataset: {stage: train, input_colums: [a]}", "1.9", [("MST565", "input_colums")]),
    ],
)
def test_arguments_of_classes(text: str, version: str, expected: list[tuple[str, object]]) -> None:
    assert lint_keys(text, version) == expected


@pytest.mark.parametrize(
    ("value", "wrong"),
    [("'False'", True), ("Flase", True), ("2", True), ("0.5", True), ("True", False), ("1", False), ("0", False), ("''", False), ("", False), ("[False]", True), ("[]", False)],
)  # fmt: skip
def test_a_switch_is_true_or_false(value: str, wrong: bool) -> None:  # noqa: FBT001 - a column of the table
    assert lint_keys(f"only_save_strategy: {value}") == ([("MST563", "only_save_strategy")] if wrong else [])
    assert lint_keys(f"use_parallel: {value}") == ([("MST563", "use_parallel")] if wrong else [])
    assert lint_keys(MODEL.format(f"qk_layernorm: {value}")) == ([("MST563", "qk_layernorm")] if wrong else [])


def test_a_switch_that_later_releases_refuse() -> None:
    # 1.6 has no template, and reads it like any other key; from 1.7 on its type is checked first, which another check
    # reports.
    assert lint_keys("auto_trans_ckpt: Faalse", "1.6") == [("MST563", "auto_trans_ckpt")]
    assert lint_keys("auto_trans_ckpt: Faalse", "1.7") == []


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("num_hidden_layers: 8k", True),
        ("rms_norm_eps: 1e-5", False),  # MST102's
        ("hidden_act: silu", False),
        ("of_my_own: many", False),
        ("hidden_size: 6144.5", True),
        ("hidden_size: 4096.0", False),
        ("hidden_size: null", False),
        ("moe_shared_expert_intermediate_size: 2048O", True),
        ("initializer_range: [0.02]", True),
        ("moe_aux_loss_coeff: [0.001, 0.001]", False),
    ],
)
def test_numbers_of_the_model_are_no_texts(field: str, wrong: bool) -> None:  # noqa: FBT001 - a column of the table
    assert lint_keys(MODEL.format(field)) == ([("MST564", field.partition(":")[0])] if wrong else [])
    assert lint_keys(f"model: {{model_config: {{type: Unknown, {field}}}}}") == []
    text = f"model: {{model_type: qwen3, architectures: Qwen3ForCausalLM, {field}}}"
    assert lint_keys(text, "2.1", Dialect.MINDFORMERS_PYNATIVE) == (
        [("MST786", field.partition(":")[0])] if wrong else []
    )


def test_the_same_of_dynamic_graphs() -> None:
    model = "model: {model_type: qwen3, architectures: Qwen3ForCausalLM, qk_layernorm: Ture}"
    data = "train_dataset: {dataloader: {config: {seq_legnth: 4096}, handler: [{type: A, seq_legnth: 4096}]}}"
    assert lint_keys(model, "2.1", Dialect.MINDFORMERS_PYNATIVE) == [("MST785", "qk_layernorm")]
    assert lint_keys(data, "2.1", Dialect.MINDFORMERS_PYNATIVE) == 2 * [("MST784", "seq_legnth")]


def test_functions_and_numbers_below_zero() -> None:
    assert lint_keys(MODEL.format("hidden_act: siilu")) == [("MST567", "hidden_act")]
    assert lint_keys(MODEL.format("hidden_act: swiglu")) == []
    assert lint_keys("use_legacy: True\nmodel: {model_config: {type: LlamaConfig, hidden_act: mine}}") == []
    dynamic = "model: {model_type: qwen3, architectures: Qwen3ForCausalLM, hidden_act: swiglu}"
    assert lint_keys(dynamic, "2.1", Dialect.MINDFORMERS_PYNATIVE) == [("MST787", "hidden_act")]
    assert lint_keys("optimizer: {type: AdamW, eps: 0., weight_decay: -0.1}") == [
        ("MST566", "eps"),
        ("MST566", "weight_decay"),
    ]
    assert lint_keys("optimizer: {type: AdamW, eps: 1.e-8, weight_decay: 0.}") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train_datase: &data {seed: 1}\ntask: {config: *data}", ["train_datase"]),
        ("train_datase: &data {seed: 1}\ntrain_dataset: *data", []),  # it is there
        ("of_my_own: &data {seed: 1}\ntrain_dataset: *data", []),
        ("sed: &seed 1\ntrain_dataset: {seed: *seed}", []),  # no section
    ],
)
def test_misspelt_sections_with_an_anchor(text: str, expected: list[str]) -> None:
    checks = [check for check in built_in(Dialect.MINDFORMERS) if check.id == "MST201"]
    assert [one.path[-1] for one in lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS, checks)] == expected
