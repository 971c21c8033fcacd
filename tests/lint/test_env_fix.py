"""Fixes of environment settings: the meant characters change, and no others."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.diagnostics import TextEdit
from ms_tune.errors import ConfigError
from ms_tune.lint.environment.settings import EnvironmentSource, from_process, parse_env, parse_shell
from ms_tune.lint.fix import Fixed, apply_fixes
from tests.lint.code import environment_checks, lint_environment
from tests.lint.few import check_the_example, profile_for

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic
    from ms_tune.lint.checklist import Check
    from ms_tune.lint.environment.settings import Environment
    from ms_tune.source.yaml import SourceFile

FILE = Path("run.sh")
CASES = [pytest.param(check, id=check.id) for check in environment_checks() if check.fixes]


def fixed(environment: Environment, profile: str | None = "performance", *, unsafe: bool = True) -> Fixed:
    def again(source: SourceFile) -> tuple[Diagnostic, ...]:
        assert isinstance(source, EnvironmentSource)
        return lint_environment(source.environment, profile=profile)

    return apply_fixes(environment.source(), again, unsafe=unsafe)[1]


def mended(text: str, *, unsafe: bool = True) -> str:
    return fixed(parse_shell(text, FILE), unsafe=unsafe).text


@pytest.mark.parametrize("check", CASES)
def test_the_fix_makes_the_good_example_of_the_bad_one(check: Check) -> None:
    def again(source: SourceFile) -> tuple[Diagnostic, ...]:
        assert isinstance(source, EnvironmentSource)
        return lint_environment(source.environment, (check,), profile_for(check))

    check_the_example(check, parse_shell(check.bad, FILE).source(), again)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("enable_vmm=True,vmm_align_size:2MB", "enable_vmm:True,vmm_align_size:2MB"),
        ("vmm_align_size:2MB; enable_vmm = True", "vmm_align_size:2MB; enable_vmm:True"),
        ("enable_vmm,vmm_align_size:2MB", "enable_vmm:True,vmm_align_size:2MB"),
        ("a=b=c", "a=b=c"),  # which of the two is the colon?
        ("enable_vmm:on,memory_recycle:FALSE", "enable_vmm:True,memory_recycle:False"),
        ("enable_vmm:perhaps", "enable_vmm:perhaps"),
        ("vmm_align_size:7", "vmm_align_size:8MB"),
        ("vmm_align_size:0MB", "vmm_align_size:2MB"),
        ("vmm_align_size:1GB", "vmm_align_size:1GB"),
        ("acl_allocator:False,acl_allocator:True,acl_allocator:False", "acl_allocator:False"),
        ("acl_alocator:False,acl_allocator:True", "acl_alocator:False,acl_allocator:True"),  # it is there already
        ("acl_alocator: False,enable_vmm:True", "acl_allocator: False,enable_vmm:True"),
        ("memory_tracker:True,memory_tracker_path:/a b", "memory_tracker:False,memory_tracker_path:/a b"),
    ],
)
def test_items_of_a_value(value: str, expected: str) -> None:
    for quote in "\"'":
        text = f"export MS_ALLOC_CONF={quote}{value}{quote} X=1 # {value}\n"
        assert mended(text) == f"export MS_ALLOC_CONF={quote}{expected}{quote} X=1 # {value}\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("GLOG_v=ERROR", "GLOG_v=3"),
        ("GLOG_v=7", "GLOG_v=7"),
        ("GLOG_v='0'", "GLOG_v='2'"),
        ("HCCL_DETERMINISTIC=TRUE", "HCCL_DETERMINISTIC=false"),  # first its spelling, then what it does
        ("HCCL_DETERMINISTIC=maybe", "HCCL_DETERMINISTIC=maybe"),
        ("MS_DEV_LAUNCH_BLOCKING=off", "MS_DEV_LAUNCH_BLOCKING=0"),
        ("MS_DEV_LAUNCH_BLOCKING=2", "MS_DEV_LAUNCH_BLOCKING=2"),
        ('MS_DEV_LAUNCH_BLOCKING="1"', 'MS_DEV_LAUNCH_BLOCKING="0"'),
        ("MS_SIMULATION_LEVEL=1", "MS_SIMULATION_LEVEL="),
    ],
)
def test_single_values(line: str, expected: str) -> None:
    assert mended(f"if a; then {line} python train.py; fi\n") == f"if a; then {expected} python train.py; fi\n"
    assert fixed(parse_env(f"{line}  # why\r\n", FILE)).text == f"{expected}  # why\r\n"


def test_unsafe_fixes_are_only_made_when_asked_for() -> None:
    text = "export GLOG_v=0 MS_DEV_LAUNCH_BLOCKING=1 MS_ALLOC_CONF=enable_vmm:1,memory_tracker:True\n"
    assert mended(text, unsafe=False) == text
    assert mended("export MS_DEV_LAUNCH_BLOCKING=True\n", unsafe=False) == "export MS_DEV_LAUNCH_BLOCKING=True\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("export GLOG_v='0'\"\"\n", "edits.pieced"),
        ('export MS_ALLOC_CONF=enable_vmm:"False"\n', "edits.pieced"),
        ("export MS_ALLOC_CONF=enable_vmm:\\False\n", "edits.pieced"),
        ("export MS_ALLOC_CONF=enable_vmm:perhaps\n", "edits.unclear"),
    ],
)
def test_a_fix_that_is_refused_says_why(text: str, reason: str) -> None:
    (finding,) = lint_environment(parse_shell(text, FILE))
    assert finding.fix is None
    assert finding.unfixable is not None
    assert finding.unfixable.id == reason
    assert mended(text) == text


def test_the_variables_of_a_process_are_not_mended() -> None:
    environment = from_process({"MS_ALLOC_CONF": "enable_vmm=True", "GLOG_v": "0"})
    for finding in lint_environment(environment):
        assert finding.unfixable is not None
        assert finding.unfixable.id == "edits.process"
    assert fixed(environment) == Fixed(environment.text, 0)
    with pytest.raises(ConfigError, match="process"):
        environment.source().again("")


def test_what_would_set_anything_else_is_not_proved() -> None:
    source = parse_shell("export A=1 GLOG_v=0\nGLOG_v=1 B=2\n", FILE).source()
    (finding,) = lint_environment(source.environment)
    fix = finding.fix
    assert fix is not None
    assert source.proves([fix])
    (edit,) = fix.edits
    for start, end, text in ((edit.start, edit.end, "3"), (edit.start, edit.end + 4, "2"), (0, 0, "C=1;")):
        assert not source.proves([fix._replace(edits=(TextEdit(start, end, text),))])


NAMES = ("MS_ALLOC_CONF", "GLOG_v", "MS_DEV_LAUNCH_BLOCKING", "HCCL_DETERMINISTIC", "OTHER")
VALUES = ("enable_vmm=True,acl_allocator:1", "enable_vmm", "vmm_align_size:3MB,x:1", "0", "True", "1", "2", "a#b", "")
QUOTES = ("{}", "'{}'", '"{}"', "{}''", '""{}')
ENDS = ("", "  # GLOG_v=0", "\t#说明", " ", "; GLOG_v=1")
LINES = st.builds(
    lambda name, value, quote, before, end: f"{before}{name}={quote.format(value)}{end}",
    st.sampled_from(NAMES),
    st.sampled_from(VALUES),
    st.sampled_from(QUOTES),
    st.sampled_from(("export ", "", "  export  A=1 ", "if a; then export ")),
    st.sampled_from(ENDS),
)


@given(lines=st.lists(LINES, max_size=6), end=st.sampled_from(["\n", "\r\n"]), unsafe=st.booleans())
def test_only_meant_values_change(lines: list[str], end: str, *, unsafe: bool) -> None:
    text = "".join(f"{line}{end}" for line in ("# 环境", *lines))
    for read in (parse_env, parse_shell):
        before = read(text, FILE)
        done = fixed(before, unsafe=unsafe)
        after = read(done.text, FILE)
        assert fixed(after, unsafe=unsafe) == Fixed(done.text, 0)
        assert [one.name for one in after.assignments] == [one.name for one in before.assignments]
        assert _frame(after) == _frame(before)
        touched = [
            one.name
            for one, other in zip(before.assignments, after.assignments, strict=True)
            if text[one.span.start : one.span.end] != done.text[other.span.start : other.span.end]
        ]
        assert bool(touched) is bool(done.made)
        assert "OTHER" not in touched
        assert len(touched) == len(set(touched))  # the last value of a variable, no earlier one


def _frame(environment: Environment) -> list[str]:
    """The text around the values, quotes included."""
    parts, at = [], 0
    for one in environment.assignments:
        words = environment.text[one.span.start : one.span.end]
        parts += [environment.text[at : one.span.start], "".join(mark for mark in words if mark in "'\"")]
        at = one.span.end
    return [*parts, environment.text[at:]]


def test_a_real_shell_agrees_that_nothing_else_changes() -> None:
    script = (
        "# start\nexport A='x y' MS_ALLOC_CONF=\"enable_vmm=True;acl_allocator:0\" B=$A\n"
        'export GLOG_v=warn; MS_DEV_LAUNCH_BLOCKING=1\nexport MS_DEV_LAUNCH_BLOCKING C="$GLOG_v" # end\n'
    )

    def variables(text: str) -> dict[str, str]:
        done = subprocess.run(
            ["sh", "-c", f"{text} env"], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}
        )
        return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)

    meant = {
        "MS_ALLOC_CONF": "enable_vmm:True;acl_allocator:False",
        "GLOG_v": "2",
        "C": "2",
        "MS_DEV_LAUNCH_BLOCKING": "0",
    }
    assert variables(mended(script)) == {**variables(script), **meant}
