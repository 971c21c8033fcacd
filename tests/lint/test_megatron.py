"""Lint launch scripts: a valid one has no findings, each of many faults is found, unknown values are ignored."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.diagnostics import Severity
from ms_tune.enums import Dialect
from ms_tune.facts.megatron import names
from ms_tune.job.script import ScriptJob
from ms_tune.lint.checklist import Check, built_in
from ms_tune.lint.engine import lint
from ms_tune.lint.result import FileReport, LintRequest
from ms_tune.lint.runner import LintRun, LintTarget, check_file
from ms_tune.lint.settings import ProjectSettings
from ms_tune.normalize.script import normalize_script
from ms_tune.text import Language
from tests.jobs import commands_in
from tests.oracle.megatron_cases import random_arguments
from tests.oracle.megatron_child import world_size

RELEASE = "2.3"
SOUND = (Path(__file__).parents[1] / "data" / "pretrain_sound.sh").read_text("utf-8")
# The replaced text, its replacement, and the check that must report it.
FAULTS = [
    ("--num-layers 32", "--num-layer 32", "MST150"),
    ("--micro-batch-size 1 ", "--micro_batch_size 1 ", "MST150"),
    ("--hidden-size 4096", "--hidden-size", "MST151"),
    ("--sequence-parallel ", "--sequence-parallel True ", "MST151"),
    ("--use-mcore-models", "--use-mcore-models yes", "MST151"),
    ("--num-layers 32", "--num-layers 32.0", "MST152"),
    ("TP=2", "TP=two", "MST152"),
    ("type rope", "type ropes", "MST153"),
    ("--lr 1.25e-6", "--lr 1.25e-6 --lr 1e-5", "MST154"),
    ("NNODES=4", "NNODES=1", "MST156"),
    ("PP=4", "PP=3", "MST156"),
    ("--num-attention-heads 32", "--num-attention-heads 33", "MST157"),
    ("--num-query-groups 8", "--num-query-groups 7", "MST157"),
    ("--num-layers 32", "--num-layers 30", "MST159"),
    ("--num-layers-per-virtual-pipeline-stage 2", "--num-layers-per-virtual-pipeline-stage 3", "MST159"),
    ("--seq-length 8192", "--seq-length 8190", "MST160"),
    ("--expert-model-parallel-size 1", "--expert-model-parallel-size 3", "MST161"),
    ("--recompute-num-layers 2", "", "MST164"),
    ("--bf16", "--bf16 --noop-layers 32", "MST170"),
    ("--bf16", "--bf16 --num-layer-list 8,8,8,8", "MST170"),
    ("--recompute-num-layers 2", "--recompute-num-layers 3", "MST174"),
    ("--recompute-num-layers 2", "--recompute-num-layers 2 --recompute-norm-num-layers 1", "MST171"),
    ("--recompute-granularity full", "--recompute-granularity full --recompute-modules mlp", "MST171"),
    ("--bf16", "--bf16 --moe-layer-freq 2", "MST171"),
    ("--bf16", "--bf16 --spec a.b layer_spec --recompute-norm-num-layers 1", "MST171"),
    ("--num-attention-heads 32", "--num-attention-heads 24", "MST178"),
    ("--bf16", "--bf16 --swap-attention", "MST171"),
    ("--bf16", "--bf16 --swap-optimizer", "MST175"),
    ("\n", "\r\n", "MST176"),
    ("msrun ", "msrun --master_port 70000 ", "MST190"),
    ("--bf16", "--bf16 --use-nanopipe", "MST150"),
    ("--ai-framework mindspore", "--enable-share-memory", "MST150"),
    ("--global-batch-size 64", "--global-batch-size 66", "MST146"),
    ("--num-experts 8", "--num-experts 8 --moe-router-group-topk 2", "MST130"),
    ("--num-experts 8", "--num-experts 8 --moe-router-num-groups 4 --moe-router-group-topk 5", "MST130"),
    ("--num-experts 8", "--num-experts 8 --ffn-hidden-size 4096 --moe-ffn-hidden-size 1025", "MST143"),
]


def ids(text: str, release: str = RELEASE) -> list[str]:
    found = []
    for source in (one for one in commands_in(Path("pretrain.sh"), text, release) if not one.supposed):
        for finding in lint(source, Dialect.MEGATRON, built_in(Dialect.MEGATRON), release):
            for language in Language:
                assert finding.message.say(language)
            assert text[finding.location.start : finding.location.end]
            found.append(finding.id)
    return found


@pytest.mark.parametrize("release", ["2.0", "2.1", "2.2", "2.3", "26.0", "26.1"])
def test_a_sound_script_is_clean(release: str) -> None:
    text = SOUND if release >= "2.2" else SOUND.replace(" --ai-framework mindspore", "")
    assert len(commands_in(Path("pretrain.sh"), text, release)) == 1
    assert ids(text, release) == []


@pytest.mark.parametrize(("old", "new", "expected"), FAULTS, ids=lambda one: str(one)[:24])
def test_a_fault_is_found(old: str, new: str, expected: str) -> None:
    assert old in SOUND
    assert expected in ids(SOUND.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("TP=2", "TP=$1"),
        ("PP=4", "PP=$(cat pp)"),
        ("NNODES=4", "NNODES=$WORKERS"),
        ("--num-layers 32", "--num-layers $1"),
        ("--global-batch-size 64", "$BATCH"),
        ("--recompute-num-layers 2", "$FURTHER"),
        ("TP=2", "if [ -d /x ]; then TP=2; else TP=4; fi"),
        ("--load $CKPT", "--load ${CKPT} $@"),
    ],
)
def test_what_is_unknown_is_left_alone(old: str, new: str) -> None:
    assert old in SOUND
    known = new in ("NNODES=$WORKERS", "$BATCH", "$FURTHER") or new.endswith(
        "$@"
    )  # left out, or reported by others if wanted
    assert ids(SOUND.replace(old, new, 1)) == ([] if known else ["MST199"])


def test_edge_and_cloud_have_processes_and_layers_of_their_own() -> None:
    """MindSpeed-LLM 26 trains some layers elsewhere: the list has one number more than stages, and each start has its own processes."""
    text = SOUND.replace("NNODES=4", "NNODES=3").replace("--bf16", "--bf16 --num-layer-list 2,8,8,8,6", 1)
    assert {"MST156", "MST170"} <= {*ids(text, "26.1")}
    apart = text.replace("--bf16", "--bf16 --layerwise-disaggregated-training", 1)
    assert not {"MST156", "MST158", "MST159", "MST170"} & {*ids(apart, "26.1")}


@pytest.mark.parametrize(
    "words",
    [
        "--moe-router-num-groups 4 --moe-router-group-topk 4",
        "--moe-router-num-groups 3",  # there is no choice among them
        "--ffn-hidden-size 4097 --moe-ffn-hidden-size 1024",  # every layer has experts
        "--ffn-hidden-size 4096 --moe-ffn-hidden-size 1025 --moe-tp-extend-ep",  # TP does not share them
        "--ffn-hidden-size 4097 --moe-intermediate-size 1024",  # the name of releases before
    ],
)
def test_sizes_of_experts_that_nothing_asks_about(words: str) -> None:
    assert {"MST130", "MST143"}.isdisjoint(ids(SOUND.replace("--num-experts 8", f"--num-experts 8 {words}", 1)))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("$TP=8", "TP has a dollar sign in front, so bash runs this as a command and TP does not change"),
        ("TP =8", "there is a blank at the equals sign, so bash runs this as a command and TP is not set"),
        ("SIZE=$(TP*2)", "bash runs the inside of $(TP*2) as a command; to calculate, use $((...))"),
    ],
)
def test_an_assignment_that_bash_runs_as_a_command(line: str, words: str) -> None:
    text = SOUND.replace("PP=4", f"{line}\nPP=4")
    (source,) = (one for one in commands_in(Path("pretrain.sh"), text, RELEASE) if not one.supposed)
    found = [
        one.message.say(Language.EN) for one in lint(source, Dialect.MEGATRON, built_in(Dialect.MEGATRON), RELEASE)
    ]
    assert [one for one in found if "bash" in one] == [words]


def test_the_place_is_where_the_value_is_written() -> None:
    text = SOUND.replace("PP=4", "PP=four")
    (source,) = commands_in(Path("pretrain.sh"), text, RELEASE)
    (finding,) = lint(source, Dialect.MEGATRON, built_in(Dialect.MEGATRON), RELEASE)
    assert (finding.location.line, finding.location.column) == (6, 4)
    assert finding.path == ("--pipeline-model-parallel-size",)


def test_options_that_no_program_of_the_release_takes_are_refused_in_tuning_too() -> None:
    words = "--stage simpo --simpo-beta 2.5 --simpo-loss-type sigmoid --is-pairwise-dataset"
    (source,) = commands_in(Path("x.sh"), f"msrun posttrain_gpt.py --num-layers 2 {words} --dpo-beta 0.1\n", "2.2")
    found = lint(source, Dialect.MEGATRON, built_in(Dialect.MEGATRON), "2.2")
    assert [one.path for one in found if one.id == "MST150"] == [("--simpo-beta",), ("--simpo-loss-type",)]


def test_a_script_has_findings_about_its_environment_too(tmp_path: Path) -> None:
    script = tmp_path / "pretrain.sh"
    text = SOUND.replace("export", "export MS_ALLOC_CONF=enable_vmm=True\nexport").replace("--bf16", "--bf61")
    script.write_text(text, encoding="utf-8")
    job = LintRun(LintRequest(), ProjectSettings(None, tmp_path))
    report = check_file(LintTarget(script, named=True), job)
    assert isinstance(report, FileReport), report
    assert {finding.id for finding in report.findings} >= {"MST801", "MST150"}
    assert (report.release.framework, report.release.version) == ("MindSpeed-LLM", RELEASE)


@given(
    st.lists(st.sampled_from([*sorted(names(RELEASE))[::7], "8", "-1", "x", "$A", "1e-5", "''", "--x=1"]), max_size=12)
)
def test_no_arguments_make_a_check_crash(words: list[str]) -> None:
    assert "MST001" not in ids(f"msrun --worker_num 8 pretrain_gpt.py {' '.join(words)}")


def test_a_script_with_the_line_ends_of_windows_is_read_as_it_was_meant() -> None:
    assert ids(SOUND.replace("\n", "\r\n")) == ["MST176"]
    broken = SOUND.replace("--hidden-size", "--hiden-size").replace("\n", "\r\n")
    assert sorted(ids(broken)) == ["MST150", "MST176"]
    (source,) = commands_in(Path("pretrain.sh"), broken, RELEASE)
    (finding,) = [
        one for one in lint(source, Dialect.MEGATRON, built_in(Dialect.MEGATRON), RELEASE) if one.id == "MST150"
    ]
    assert broken[finding.location.start : finding.location.end] == "--hiden-size"


@pytest.mark.slow
def test_layers_are_judged_as_normalize_recompute_judges_them() -> None:
    """An error about layers in one command is an error in the other, with the framework's same text."""
    random = Random(20261123)  # noqa: S311 - cases, no secrets
    refused = 0
    for _ in range(30):
        arguments = random_arguments(random)
        words = " ".join(f"'{word}'" for word in arguments)
        script = f"torchrun --nproc_per_node {world_size(arguments)} pretrain_gpt.py {words}\n"
        (source,) = commands_in(Path("pretrain.sh"), script, RELEASE)
        (program,) = normalize_script(ScriptJob(Path("pretrain.sh"), script, version=RELEASE))
        assert program.plan is not None
        found = {one.id: one for one in lint(source, Dialect.MEGATRON, built_in(Dialect.MEGATRON), RELEASE)}
        of_layers = {"MST159", "MST164", "MST170"} & {
            name for name, one in found.items() if one.severity is Severity.ERROR
        }
        if program.plan.failure is not None and program.plan.failure.exception != "SystemExit":
            assert len(of_layers) == 1, (arguments, found)
            if "MST170" in found:
                assert program.plan.failure.text in str(found["MST170"].message)
            refused += 1
        else:
            assert not of_layers - {"MST164"}, (arguments, found)
    assert refused > 7


def fixed(path: Path, fix: str) -> tuple[str, list[str]]:
    request = LintRequest(fix=fix, framework_version=RELEASE)  # type: ignore[arg-type]  # one of its words
    report = check_file(LintTarget(path, named=True), LintRun(request, ProjectSettings(None, path.parent)))
    assert isinstance(report, FileReport), report
    return report.text, [one.id for one in report.findings]


@pytest.mark.slow
def test_fixes_change_the_words_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "pretrain.sh"
    text = SOUND.replace(
        "--recompute-num-layers 2", "--recompute-num-layers 7 \\\n    --recompute-norm-num-layers 2"
    ).replace("    --bf16\n", "    --seq-length 8192 \\\n    --seq-length 4096 \\\n    --bf16\n")
    path.write_text(text, "utf-8")
    after, left = fixed(path, "safe")
    assert after == SOUND.replace("    --seq-length 8192 \\\n", "").replace(
        "    --bf16\n", "    --seq-length 4096 \\\n    --bf16\n"
    )
    assert not {*left} & {"MST154", "MST171", "MST174"}


def test_a_refusal_of_a_network_that_is_not_known_is_reported_without_a_fix(tmp_path: Path) -> None:
    path = tmp_path / "pretrain.sh"
    spec = "--spec mindspeed_llm.tasks.models.spec.longcat_spec layer_spec"
    path.write_text(SOUND.replace("--bf16\n", f"--noop-layers 99 {spec} \\\n    --bf16\n"), "utf-8")
    after, left = fixed(path, "unsafe")
    assert after == path.read_text("utf-8")
    assert "MST170" in left
    assert "MST001" not in left


@pytest.mark.slow
@pytest.mark.parametrize("check", [one for one in built_in(Dialect.MEGATRON) if one.fixes], ids=lambda check: check.id)
def test_the_fix_of_a_check_mends_its_bad_example(check: Check, tmp_path: Path) -> None:
    path = tmp_path / "pretrain.sh"
    path.write_text(check.bad, "utf-8")
    assert (check.id in fixed(path, "safe")[1]) != check.fixes[0].safe
    after, left = fixed(path, "unsafe")
    assert after != check.bad
    assert check.id not in left


def test_what_is_thousands_of_times_has_no_fix() -> None:
    words = "--lr 1 --lr 2 " * 500
    (source,) = commands_in(Path("x.sh"), f"torchrun pretrain_gpt.py --num-layers 8 {words}\n", RELEASE)
    found = [one for one in lint(source, Dialect.MEGATRON, built_in(Dialect.MEGATRON), RELEASE) if one.id == "MST154"]
    assert found
    assert all(one.fix is None and one.unfixable is not None for one in found)
