"""Test fixes of environment settings: only the intended characters change."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_tune.diagnostics import Diagnostic, TextEdit
from ms_tune.errors import ConfigError
from ms_tune.lint.environment.settings import Environment, EnvironmentSource, from_process, parse_env, parse_shell
from ms_tune.lint.fix import Fixed, apply_fixes
from tests.lint.code import environment_checks, lint_environment
from tests.lint.few import check_the_example, profile_for

if TYPE_CHECKING:
    from ms_tune.lint.checklist import Check
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
        ("a=b=c", "a=b=c"),  # which of the two is the colon?
        ("enable_vmm:on,memory_recycle:FALSE", "enable_vmm:True,memory_recycle:False"),
        ("enable_vmm:perhaps", "enable_vmm:perhaps"),
        ("vmm_align_size:7", "vmm_align_size:8MB"),
        ("vmm_align_size:0MB", "vmm_align_size:2MB"),
        ("acl_allocator:False,acl_allocator:True,acl_allocator:False", "acl_allocator:False"),
        ("acl_alocator:False,acl_allocator:True", "acl_alocator:False,acl_allocator:True"),  # it exists already
        ("acl_alocator: False,enable_vmm:True", "acl_allocator: False,enable_vmm:True"),
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
        ("GLOG_v='0'", "GLOG_v='2'"),
        ("HCCL_DETERMINISTIC=TRUE", "HCCL_DETERMINISTIC=false"),  # first its spelling, then its effect
        ("HCCL_DETERMINISTIC=maybe", "HCCL_DETERMINISTIC=maybe"),
        ("MS_DEV_LAUNCH_BLOCKING=off", "MS_DEV_LAUNCH_BLOCKING=0"),
        ('MS_DEV_LAUNCH_BLOCKING="1"', 'MS_DEV_LAUNCH_BLOCKING="0"'),
        ("MS_SIMULATION_LEVEL=1", "MS_SIMULATION_LEVEL="),
    ],
)
def test_single_values(line: str, expected: str) -> None:
    assert mended(f"if a; then {line} python train.py; fi\n") == f"if a; then {expected} python train.py; fi\n"
    assert fixed(parse_env(f"{line}  # why\r\n", FILE)).text == f"{expected}  # why\r\n"


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
        environment.source().with_text("")


def test_what_would_set_anything_else_is_not_proved() -> None:
    source = parse_shell("export A=1 GLOG_v=0\nGLOG_v=1 B=2\n", FILE).source()
    (finding,) = lint_environment(source.environment)
    fix = finding.fix
    assert fix is not None
    assert source.proves([fix])
    (edit,) = fix.edits
    for start, end, text in ((edit.start, edit.end, "3"), (edit.start, edit.end + 4, "2"), (0, 0, "C=1;")):
        assert not source.proves([fix._replace(edits=(TextEdit(start, end, text),))])


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
