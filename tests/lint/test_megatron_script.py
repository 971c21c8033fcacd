"""Test the shell's part of a launch script, before a program's parser runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.diagnostics import Severity
from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.lint.result import LintRequest
from ms_tune.lint.runner import lint_files
from ms_tune.text import Language
from tests.jobs import commands_in

RUN = (
    "msrun --worker_num 8 --local_worker_num 8 pretrain_gpt.py --ai-framework mindspore $GPT_ARGS"
    " --seq-length 4096 --max-position-embeddings 4096\n"
)
GROUP = 'GPT_ARGS="\n  --num-layers 8 \\\n  --hidden-size 64 \\\n  --num-attention-heads 8\n"\n'
OWN = ("MST179", "MST180", "MST181", "MST182", "MST183", "MST184", "MST185")


def lint_script(text: str, path: Path = Path("pretrain_x.sh")) -> list[tuple[str, str]]:
    checks = built_in(Dialect.MEGATRON)
    every = [
        one
        for command in commands_in(path, text, "2.2")
        if not command.supposed
        for one in lint(command, Dialect.MEGATRON, checks, "2.2")
    ]
    return [(one.id, str(one.message)) for one in every if one.id in OWN]


def ids(text: str) -> list[str]:
    return [one for one, _ in lint_script(text)]


@pytest.mark.parametrize(
    ("before", "run", "expected"),
    [
        (GROUP, RUN.replace("$GPT_ARGS", "$GPT_ARGS $MOE_ARGS"), ["MST179"]),
        (GROUP.replace("GPT_ARGS", "GPT_ARG"), RUN, ["MST181", "MST180"]),
        (GROUP + "TRAIN_ITERS=5\n", RUN.replace("--seq", "--train-iters ${TRAIN_ITER} --seq"), ["MST180"]),
        (GROUP, RUN.replace("--local_worker_num 8", "--local_worker_num 5"), ["MST183"]),
        ('source "$0"\n' + GROUP, RUN, ["MST184"]),
        (GROUP, RUN.replace("--seq", "--seed 0 --seq"), ["MST185"]),
    ],
)
def test_each_of_them(before: str, run: str, expected: list[str]) -> None:
    assert ids(before + run) == expected


@pytest.mark.parametrize(
    ("before", "run"),
    [
        (GROUP, RUN.replace("$GPT_ARGS", "$GPT_ARGS --data-path $DATA_PATH")),  # the user who starts the script sets it
        (GROUP + "MOE_ARGS=''\n", RUN.replace("$GPT_ARGS", "$GPT_ARGS $MOE_ARGS")),
        (GROUP, RUN.replace("$GPT_ARGS", "$GPT_ARGS $@")),
        (GROUP + GROUP.replace("GPT", "MOE") + "source more.sh\n", RUN),  # it may be used there
        (GROUP, RUN + "export HCCL_CONNECT_TIMEOUT=1\n" + RUN),
        ("run() {\n" + GROUP + RUN + "}\nexport HCCL_CONNECT_TIMEOUT=1\nrun\n", ""),
        (GROUP, RUN.replace("--local_worker_num 8", "--local_worker_num $HERE")),
        (GROUP, '# source "$0"\n' + RUN),
        (GROUP, RUN.replace("--seq", "--seed 1 --seq")),
    ],
)
def test_what_is_right_or_unknown_is_left_alone(before: str, run: str) -> None:
    assert ids(before + run) == []


def test_scripts_that_source_each_other(tmp_path: Path) -> None:
    script = tmp_path / "pretrain_x.sh"
    (tmp_path / "a.sh").write_text("source b.sh\n", encoding="utf-8")
    (tmp_path / "b.sh").write_text("source a.sh\n", encoding="utf-8")
    text = "source a.sh\n" + GROUP + RUN
    script.write_text(text, encoding="utf-8")
    assert ("MST184", "the file sourced here sources this script again, in an endless loop") in lint_script(
        text, script
    )
    (tmp_path / "b.sh").write_text("source pretrain_x.sh\n", encoding="utf-8")
    assert "MST184" in [one for one, _ in lint_script(text, script)]
    (tmp_path / "b.sh").write_text("X=1\n", encoding="utf-8")
    assert lint_script(text + "source b.sh\n", script) == []


@pytest.mark.parametrize("launcher", ["msrun --worker_num 8", "torchrun --nproc_per_node 8"])
def test_a_quotation_mark_that_is_never_closed(tmp_path: Path, launcher: str) -> None:
    script = tmp_path / "pretrain_x.sh"
    for text, expected in (
        (f'A="\n--bf16\n{launcher} pretrain_gpt.py $A\n', True),
        (f"{launcher} pretrain_gpt.py --bf16\necho 'done\n", True),
        (f"{launcher} pretrain_gpt.py --bf16\ncat <<END\nit's\nEND\n", False),
        (f"{launcher} pretrain_gpt.py --bf16\nfi\n", True),
    ):
        script.write_text(text, encoding="utf-8")
        (report,) = lint_files(script, request=LintRequest()).files
        assert ("MST840" in [one.id for one in report.findings]) == expected


@pytest.mark.parametrize(("release", "outcome"), [("2.0", True), ("2.1", True), ("2.2", False), ("26.1", False)])
def test_releases_whose_layers_are_not_checked_are_reported(tmp_path: Path, release: str, *, outcome: bool) -> None:
    script = tmp_path / "pretrain_x.sh"
    script.write_text(GROUP + RUN, encoding="utf-8")
    (report,) = lint_files(script, request=LintRequest(framework_version=release)).files
    assert [f"MindSpeed-LLM {release}" in str(one) for one in report.notes] == ([True] if outcome else [])


def checked(text: str, folder: Path) -> list[tuple[str, Severity, str, str]]:
    path = folder / "pretrain_x.sh"
    path.write_text(text, encoding="utf-8")
    report = lint_files(path, request=LintRequest(settings=False, framework_version="2.2"))
    return [
        (one.id, one.severity, one.message.say(Language.EN), one.message.say(Language.ZH))
        for one in report.findings
        if one.id in ("MST164", "MST166", "MST167")
    ]


@pytest.mark.parametrize(
    ("hidden", "en", "zh"),
    [
        ("$MEM_ARGS", ", unless the environment sets MEM_ARGS", "（除非环境中设置了 MEM_ARGS）"),
        ("$@", ", unless the script is started with arguments", "（除非启动脚本时带有参数）"),
        ("$A_ARGS $B_ARGS", ", unless the environment sets A_ARGS, B_ARGS", "（除非环境中设置了 A_ARGS, B_ARGS）"),
        (
            "${A_ARGS} ${*}",
            ", unless the environment sets A_ARGS or the script is started with arguments",
            "（除非环境中设置了 A_ARGS，或启动脚本时带有参数）",
        ),
    ],
)
def test_what_shows_where_nothing_comes_from_outside(tmp_path: Path, hidden: str, en: str, zh: str) -> None:
    """A second reading treats unset variables as empty, like bash; no error depends on it, and nothing is reported twice."""
    found_without = checked(GROUP + RUN.replace("$GPT_ARGS", "$GPT_ARGS --sequence-parallel --bf16 --fp16"), tmp_path)
    asked = f"$GPT_ARGS --sequence-parallel --bf16 --fp16 {hidden}"
    found_with = checked(GROUP + RUN.replace("$GPT_ARGS", asked), tmp_path)
    (sure, severity, *_), (unsure, reported, message, other) = sorted(found_with, key=lambda one: one[0] != "MST167")
    assert [one[0] for one in sorted(found_without)] == ["MST166", "MST167"]
    assert (sure, severity) == ("MST167", Severity.ERROR)
    assert (unsure, reported) == ("MST166", Severity.INFO)
    assert message.endswith(en)
    assert other.endswith(zh)
    incomplete = checked(GROUP + RUN.replace("$GPT_ARGS", f"$GPT_ARGS --recompute-granularity full {hidden}"), tmp_path)
    assert {(one[0], one[1]) for one in incomplete} == {("MST164", Severity.WARNING)}


@pytest.mark.parametrize("hidden", ["$(cat more)", "${HOME}", "$X*", "${X//a/b}", "$MEM_ARGS $(cat more)"])
def test_what_may_be_anything_is_not_supposed_to_be_nothing(tmp_path: Path, hidden: str) -> None:
    assert checked(GROUP + RUN.replace("$GPT_ARGS", f"$GPT_ARGS --sequence-parallel {hidden}"), tmp_path) == []


def test_a_value_that_comes_from_outside_stays_one(tmp_path: Path) -> None:
    """``--data-path`` accepts any number of words: without its variable it would have no value, which is never intended."""
    text = GROUP + RUN.replace("$GPT_ARGS", "$GPT_ARGS --data-path $DATA_PATH --seq-length $LENGTH")
    path = tmp_path / "pretrain_x.sh"
    path.write_text(text, encoding="utf-8")
    report = lint_files(path, request=LintRequest(settings=False, framework_version="2.2"))
    assert [one.id for one in report.findings if one.id in ("MST151", "MST152")] == []
