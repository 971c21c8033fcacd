"""Test the gate of fixes: safe ones keep what the framework reads, unsafe ones make no config worse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.diagnostics import Diagnostic, Fix
from ms_tune.dialects.check_context import parse_path
from ms_tune.enums import ChangeKind, Dialect
from ms_tune.facts.query import Release, served
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import job_of, lint
from ms_tune.lint.fix import Gate, apply_fixes
from ms_tune.source.edit import ValueChange
from ms_tune.source.yaml import SourceFile, parse_source
from ms_tune.text import msg

# Command-line options that override the config (run_mindformer.py; --options accepts any key).
OVERRULED = (
    "use_parallel",
    "parallel_config.pipeline_stage",
    "parallel_config.model_parallel",
    "parallel_config.context_parallel",
)
# Safe though their conditions name one of them: with parallelism off the key is not read either.
DEAD_EITHER_WAY = {"MST301", "MST315"}

CHATGLM2 = """
runner_config: {batch_size: 1}
recompute_config: {recompute: True, parallel_optimizer_comm_recompute: True}
model: {model_config: {type: ChatGLM2Config, num_layers: 28}, arch: {type: ChatGLM2ForConditionalGeneration}}
"""
ONE_CARD = """
use_parallel: False
runner_config: {batch_size: 1}
parallel_config: {data_parallel: 2, model_parallel: 4, pipeline_stage: 2, micro_batch_num: 4}
"""


def fixed(tmp_path: Path, text: str, how: str, *more: str) -> str:
    file = tmp_path / "a.yaml"
    file.write_text(text, encoding="utf-8")
    main(["lint", "--no-config", how, *more, str(file)])
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize("model", ["ChatGLM2Config", "OurOwnConfig"])
def test_a_key_that_one_model_reads_is_not_dead_there(tmp_path: Path, model: str) -> None:
    text = CHATGLM2.replace("ChatGLM2Config", model)
    assert fixed(tmp_path, text, "--fix=unsafe") == text
    assert "parallel_optimizer" not in fixed(tmp_path, CHATGLM2.replace("ChatGLM2", "Llama"), "--fix")


@pytest.mark.parametrize(
    "text",
    [
        ONE_CARD,
        "use_parallel: True\nrunner_config: {batch_size: 1}\nparallel_config: {pipeline_stage: 1, micro_batch_num: 8}\n",
    ],
)
def test_what_the_command_line_can_switch_on_is_not_dead(tmp_path: Path, text: str) -> None:
    assert fixed(tmp_path, text, "--fix") == text


@pytest.mark.parametrize("dialect", [one for one in Dialect if one is not Dialect.MEGATRON])
def test_no_safe_fix_hangs_on_what_the_command_line_can_change(dialect: Dialect) -> None:
    wrong = set()
    for check in built_in(dialect):
        if dialect not in check.dialects or not any(rule.safe for rule in check.fixes):
            continue
        words = [".".join(map(str, parse_path(one.get("path", "")))) for one in check.entry.get("when", ())]
        if check.function is not None:
            words += [str(check.options)]
        if any(key in word for key in OVERRULED for word in words):
            wrong.add(check.id)
    assert wrong <= DEAD_EITHER_WAY


def test_a_number_as_text_stays_one_where_texts_are_meant(tmp_path: Path) -> None:
    text = "runner_config: {batch_size: 1}\ncontext: {mode: 0, max_device_memory: 1e5}\n"
    assert fixed(tmp_path, text, "--fix=unsafe") == text
    eps = "runner_config: {batch_size: 1}\noptimizer: {type: AdamW, eps: 1e-8}\n"
    assert "eps: 1.e-8" in fixed(tmp_path, eps, "--fix")


def test_a_section_with_other_keys_is_not_another_one_misspelt(tmp_path: Path) -> None:
    text = "runner_config: {epochs: 1}\nuse_parallel: False\nmodel_config: {hidden_size: 1}\n"
    assert "moe_config" not in fixed(tmp_path, text, "--fix=unsafe")
    text = "runner_config: {epochs: 1}\nuse_parallel: False\nrecompute_confg: {recompute: True}\n"
    assert "recompute_config: {recompute: True}" in fixed(tmp_path, text, "--fix=unsafe")


GUESSED = (
    'runner_config: {batch_size: 1}\ncontext: {mode: 0, graph_kernel_flags: "--opt_level=0"}\nuse_parallel: False\n'
)


@pytest.mark.parametrize(
    ("installed", "more", "gone"), [(None, (), False), ("1.9.0", (), True), (None, ("1.9",), True)]
)
def test_what_hangs_on_a_release_is_fixed_where_that_is_certain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: str | None, more: Sequence[str], *, gone: bool
) -> None:
    release = Release("MindFormers", "1.9", installed)
    monkeypatch.setattr("ms_tune.job.release_for", lambda _, asked: release._replace(version=asked or release.version))
    after = fixed(tmp_path, GUESSED, "--fix", *(word for one in more for word in ("--framework-version", one)))
    assert ("graph_kernel_flags" not in after) is gone
    assert served(Dialect.MINDFORMERS)[0] < "1.9"  # there are releases for which the guess may be wrong


def gate(text: str, changes: Sequence[ValueChange], *, safe: bool) -> tuple[str, int]:
    """Return a config after invented fixes, and the number of refused fixes."""
    source = parse_source(text, Path("a.yaml"))
    dialect = Dialect.MINDFORMERS

    def check(config: SourceFile) -> tuple[Diagnostic, ...]:
        return lint(config, dialect, built_in(dialect), "1.9")

    wanted = list(changes)

    def with_fixes(config: SourceFile) -> tuple[Diagnostic, ...]:
        found = lint(parse_source("trainr: 1\n", Path("b.yaml")), dialect, built_in(dialect), "1.9")
        fixes = [Fix(safe, msg("lint.fix.remove-key", key="x"), (one,), one.edits(config)) for one in wanted]
        wanted.clear()
        return tuple(found[0]._replace(fix=fix) for fix in fixes)

    after, done = apply_fixes(
        source, with_fixes, unsafe=True, admits=Gate(lambda one: job_of(one, dialect, "1.9"), check).admits
    )
    assert after.text == done.text
    return done.text, done.refused


WHOLE = """
use_parallel: True
runner_config: {batch_size: 1}
parallel_config: {data_parallel: 1, model_parallel: 2, pipeline_stage: 2, micro_batch_num: 4}
recompute_config: {recompute: True}
model:
  model_config: {type: LlamaConfig, num_layers: 8, hidden_size: 64, num_heads: 8}
  arch: {type: LlamaForCausalLM}
"""


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("recompute_config.recompute", False),  # the layers do something else
        ("model.model_config.hidden_size", 128),  # correct: the fix names this change
        ("parallel_config.pipeline_stage", 4),  # the layers are elsewhere
        ("parallel_config.pipeline_stage", 16),  # an error
    ],
)
def test_a_safe_fix_leaves_the_reading_as_it_is(path: str, value: object) -> None:
    change = ValueChange(ChangeKind.SET_VALUE, tuple(path.split(".")), value)
    text, refused = gate(WHOLE, [change], safe=True)
    if "hidden_size" in path:
        assert (text != WHOLE, refused) == (True, 0)
    else:
        assert (text, refused) == (WHOLE, 1)


def test_an_unsafe_fix_brings_no_error_and_no_unknown_key_and_the_others_are_made() -> None:
    worse = [
        ValueChange(ChangeKind.SET_VALUE, ("parallel_config", "pipeline_stage"), 16),
        ValueChange(ChangeKind.RENAME_KEY, ("recompute_config",), "recomputing"),
    ]
    fine = ValueChange(ChangeKind.SET_VALUE, ("runner_config", "batch_size"), 2)
    assert gate(WHOLE, worse, safe=False) == (WHOLE, 2)
    text, refused = gate(WHOLE, [worse[0], fine, worse[1]], safe=False)
    assert (text, refused) == (WHOLE.replace("batch_size: 1", "batch_size: 2"), 0)
