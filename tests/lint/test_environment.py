from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.facts.launchers import variables
from ms_tune.lint.environment.settings import (
    KEYS,
    Environment,
    from_process,
    parse_env,
    parse_shell,
)
from ms_tune.text import Language
from tests.lint.code import environment_checks, lint_environment
from tests.lint.few import profile_for
from tests.source.corpus import SITE_PACKAGES

if TYPE_CHECKING:
    from ms_tune.lint.checklist import Check

CHECKS = environment_checks()
FILE = Path("run.sh")


def values(environment: Environment) -> dict[str, str | None]:
    return {one.name: one.value for one in environment.assignments}


def ids(text: str, profile: str | None = None) -> list[str]:
    return [finding.id for finding in lint_environment(parse_shell(text, FILE), profile=profile)]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_bad_example_is_found_and_good_example_is_clean(check: Check, tmp_path: Path) -> None:
    def lint_ids(text: str) -> list[str]:
        for name, words in re.findall(r"^# (\S+\.(?:yaml|py)): (.*)$", text, re.MULTILINE):
            (tmp_path / name).write_text(words, encoding="utf-8")  # files that a script names, in its comments
        findings = lint_environment(parse_shell(text, tmp_path / FILE.name), profile=profile_for(check))
        for finding in findings:
            for language in Language:
                assert finding.message.say(language)
        return [finding.id for finding in findings if finding.id not in check.also]

    assert lint_ids(check.bad) == [check.id]
    assert lint_ids(check.good) == []


@pytest.mark.skipif(not (SITE_PACKAGES / "mindspore").is_dir(), reason="mindspore is not installed")
def test_the_settings_of_the_installed_mindspore_are_known() -> None:
    include = SITE_PACKAGES / "mindspore" / "include" / "mindspore" / "ccsrc" / "include" / "runtime"
    for file in ("memory/mem_pool/mem_env.h", "utils/runtime_conf/runtime_env.h"):
        for line in (include / file).read_text(encoding="utf-8").splitlines():
            name = line.partition('"')[2].partition('"')[0]
            if line.startswith("const char k") and name.islower():
                text = f'export {"MS_ALLOC_CONF" if "mem_env" in file else "MS_DEV_RUNTIME_CONF"}="{name}:True"\n'
                assert "MST802" not in ids(text), name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\nexport B=2\n  C = 3  # note\n# D=4\n", {"A": "1", "B": "2", "C": "3"}),
        ("A='x # y'\nB=\"z\" # note\n", {"A": "x # y", "B": "z"}),
        ("A=a#b\r\nB=\r\n", {"A": "a#b", "B": ""}),
        ("\ufeffA=中文\n", {"A": "中文"}),
    ],
)
def test_env_files(text: str, expected: dict[str, str]) -> None:
    assert values(parse_env(text, FILE)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1 python train.py --x=2\n", {"A": "1"}),
        ("python train.py A=1\n", {}),
        ("# export A=1\necho '# x'; export B=1 # C=2\n", {"B": "1"}),
        ("export A=$HOME/x B=`date` C=$(echo 1; export D=2)\n", {"A": None, "B": None, "C": None}),
        ('export A=\'$HOME\' B="a\\"b" C=x\\ y\n', {"A": "$HOME", "B": 'a"b', "C": "x y"}),
        ("cat <<-'END' && export C=3\n\texport A=1\n\tEND\nexport B=2\n", {"C": "3", "B": "2"}),
        ("export A='unfinished\n", {"A": "'unfinished\n".strip("'")}),
    ],
)
def test_shell_scripts(text: str, expected: dict[str, str | None]) -> None:
    found = values(parse_shell(text, FILE))
    assert {name: found.get(name, "missing") for name in expected} == expected or found.keys() == expected.keys()
    assert found.keys() == expected.keys()


def test_a_real_shell_agrees() -> None:
    script = (
        'export A="x y" B=\'q"r\' C=a\\ b D="e\\\\f"\nE=1; export E\nif true; then export F=\'1,2;3\'; fi\n'
        "cat > /dev/null <<EOF\nexport A=lost\nEOF\n"
    )
    done = subprocess.run(
        ["sh", "-c", f"{script} env"], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}
    )
    real = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert values(parse_shell(script, FILE)) == {name: real[name] for name in "ABCDEF"}


@given(st.text(alphabet="export A=1;'\"`$()\\\n<#{}if fi EOF", max_size=60))
def test_any_text_is_read(text: str) -> None:
    environment = parse_shell(text, FILE)
    for one in environment.assignments:
        assert text[one.key.start : one.key.end] == one.name
    lint_environment(environment)
    parse_env(text, FILE)


def test_positions_point_into_the_value() -> None:
    text = "# 设置\nexport MS_ALLOC_CONF='enable_vmm:True, memory_trakcer:True'\n"
    (finding,) = lint_environment(parse_shell(text, FILE))
    assert (finding.id, finding.location.line, finding.location.column) == ("MST802", 2, 40)
    assert text[finding.location.start : finding.location.end] == "memory_trakcer:True"
    assert "memory_tracker" in finding.message.say(Language.ZH)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export MS_ALLOC_CONF=enable_vmm:True\nexport MS_ALLOC_CONF=acl_allocator:True\n", ["MST804"]),
        ("export MS_ALLOC_CONF=enable_vmm:True\nexport MS_ALLOC_CONF=enable_vmm:True\n", []),
        ("export MS_ALLOC_CONF=enable_vmm:True\nexport MS_ALLOC_CONF=$MS_ALLOC_CONF,acl_allocator:True\n", []),
        ("export MS_ALLOC_CONF=enable_vmm:True\nif a; then\nexport MS_ALLOC_CONF=acl_allocator:True\nfi\n", []),
        ("if a; then\nexport MS_ALLOC_CONF=enable_vmm:True\nfi\nexport MS_ALLOC_CONF=acl_allocator:True\n", ["MST804"]),
        ("export MS_ALLOC_CONF=memory_tracker_path:/a:b\n", ["MST822"]),
        ("export MS_ALLOC_CONF=$OTHER\n", []),
        ("export OTHER_CONF=enable_vmm=True\n", []),
    ],
)
def test_alloc_conf(text: str, expected: list[str]) -> None:
    assert ids(text) == expected


def test_the_process_shows_mindspores_variables_only() -> None:
    environment = from_process({"MS_ALLOC_CONF": "enable_vmm:1", "SECRET": "x", "GLOG_v": "1"})
    assert "SECRET" not in environment.text
    assert [finding.id for finding in lint_environment(environment)] == ["MST818", "MST803"]
    assert values(from_process({"MS_ALLOC_CONF": "'a:1' # b"})) == {"MS_ALLOC_CONF": "'a:1' # b"}


@pytest.mark.skipif(not (SITE_PACKAGES / "mindspore").is_dir(), reason="mindspore is not installed")
def test_keys_of_other_releases_are_not_among_those_of_the_installed_one() -> None:
    header = SITE_PACKAGES / "mindspore/include/mindspore/ccsrc/include/runtime/utils/runtime_conf/runtime_env.h"
    (version,) = SITE_PACKAGES.glob("mindspore-*.dist-info")
    if not version.name.startswith("mindspore-2.9"):
        pytest.skip("what 2.9 reads is told")
    text = header.read_text(encoding="utf-8")
    keys = KEYS["MS_DEV_RUNTIME_CONF"]
    assert not [key for key, one in keys.items() if one.keys() & {"since", "until"} and f'"{key}"' in text]
    assert not [key for key, one in keys.items() if "switch" in one and f'"{key}"' not in text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export MS_ALLOC_CONF=enable_vmm:True, simple_tracker:False\n", ["settings-cut-by-the-shell"]),
        ("export MS_ALLOC_CONF=enable_vmm:True ,simple_tracker:False\n", []),
        ("export MS_ALLOC_CONF=enable_vmm:True;simple_tracker:False\n", ["settings-cut-by-the-shell"]),
        ("export MS_ALLOC_CONF=enable_vmm:True OTHER=1\n", []),
        ("MS_ALLOC_CONF=enable_vmm:True\nmsrun --worker_num 8 a.py\n", ["variable-not-exported"]),
        ("MS_ALLOC_CONF=enable_vmm:True\nexport MS_ALLOC_CONF\nmsrun --worker_num 8 a.py\n", []),
        ("set -a\nMS_ALLOC_CONF=enable_vmm:True\nmsrun --worker_num 8 a.py\n", []),
        ("MS_ALLOC_CONF=enable_vmm:True\nenv A=$MS_ALLOC_CONF msrun --worker_num 8 a.py\n", []),
        ("RANK_SIZE=8\nmsrun --worker_num 8 a.py\n", []),
        ("MS_ALLOC_CONF=enable_vmm:True\n", []),
        ("L=3\nmsrun --sim_level $L a.py\n", ["simulation-by-msrun"]),
        ("msrun --sim_level=-1 a.py\n", []),
    ],
)
def test_what_the_shell_and_the_launcher_make_of_settings(text: str, expected: list[str]) -> None:
    found = lint_environment(parse_shell(text, Path("run.sh")))
    assert [
        one.name
        for one in found
        if one.name in {"settings-cut-by-the-shell", "variable-not-exported", "simulation-by-msrun"}
    ] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export HCCL_DETERMINISITIC=true", ["MST850"]),
        ("MS_ALOC_CONF=enable_vmm:True msrun train.py", ["MST850"]),
        ("export PYTORCH_NPU_ALLOC_CONF=expandable_segment:True", ["MST850"]),
        ("export NCCL_BUFFSIZE=4194304", []),  # of another library
        ("export HCCL_CONNECT_TIMEOUTS=60; echo $HCCL_CONNECT_TIMEOUTS", []),  # the script's own
        ("export HCCL_CONNECT_TIMEOUT=72000", ["MST851"]),
        ("export HCCL_CONNECT_TIMEOUT=${TIMEOUT:-1200}", []),
        ("export ACLNN_CACHE_LIMIT=1e5", ["MST851"]),
    ],
)
def test_variables_are_compared_with_their_documentation(text: str, expected: list[str]) -> None:
    assert ids(text + "\n") == expected


def test_no_documented_name_is_taken_for_a_slip_of_another() -> None:
    for name in variables():
        assert "MST850" not in ids(f"export {name}=1\n"), name
