from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.errors import ConfigError
from ms_tune.facts.launchers import variables
from ms_tune.facts.query import data_folder
from ms_tune.lint.checklist import read_checklist
from ms_tune.lint.environment.settings import (
    Environment,
    from_process,
    parse_env,
    parse_shell,
)
from ms_tune.lint.environment.variables import RUNTIME_BOOLEANS, RUNTIME_KEYS_OF_2_7, RUNTIME_KEYS_OF_2_10, items
from ms_tune.source.shell.read import content
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
    def found(text: str) -> list[str]:
        for name, words in re.findall(r"^# (\S+\.yaml): (.*)$", text, re.MULTILINE):
            (tmp_path / name).write_text(words, encoding="utf-8")  # what a script names, in its comments
        findings = lint_environment(parse_shell(text, tmp_path / FILE.name), profile=profile_for(check))
        for finding in findings:
            for language in Language:
                assert finding.message.say(language)
        return [finding.id for finding in findings if finding.id not in check.also]

    assert found(check.bad) == [check.id]
    assert found(check.good) == []


def test_the_checklist_meets_the_schema() -> None:
    checks = read_checklist(data_folder("checklists") / "code" / "environment.yaml").checks
    assert [check.entry for check in checks] == [check.entry for check in CHECKS]
    assert len({check.id for check in checks}) == len({check.name for check in checks}) == len(checks)


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
        ('export A="1" B=2; C=3\n', {"A": "1", "B": "2", "C": "3"}),
        ("A=1 python train.py --x=2\n", {"A": "1"}),
        ("python train.py A=1\n", {}),
        ("echo export A=1\n", {}),
        ("# export A=1\necho '# x'; export B=1 # C=2\n", {"B": "1"}),
        ("export A=$HOME/x B=`date` C=$(echo 1; export D=2)\n", {"A": None, "B": None, "C": None}),
        ('export A=\'$HOME\' B="a\\"b" C=x\\ y\n', {"A": "$HOME", "B": 'a"b', "C": "x y"}),
        ("export A=1 \\\n  B=2\n", {"A": "1", "B": "2"}),
        ("cat <<EOF\nexport A=1\nEOF\nexport B=2\n", {"B": "2"}),
        ("cat <<-'END' && export C=3\n\texport A=1\n\tEND\nexport B=2\n", {"C": "3", "B": "2"}),
        ("if true; then export A=1; fi\n", {"A": "1"}),
        ("f() { local A=1; }\n", {"A": "1"}),
        ("export A=a'b'\"c\"\n", {"A": "abc"}),
        ("export A='unfinished\n", {"A": "'unfinished\n".strip("'")}),
    ],
)
def test_shell_scripts(text: str, expected: dict[str, str | None]) -> None:
    found = values(parse_shell(text, FILE))
    assert {name: found.get(name, "missing") for name in expected} == expected or found.keys() == expected.keys()
    assert found.keys() == expected.keys()


PLAIN = st.text(alphabet="ab1:,;= '\"#\\$x", max_size=12)


@given(st.lists(PLAIN.filter(lambda value: "$" not in value), min_size=1, max_size=4))
def test_assignments_mean_what_a_shell_makes_of_them(parts: list[str]) -> None:
    quoted = ["'" + part.replace("'", "'\\''") + "'" for part in parts]
    script = "\n".join(f"export V{number}={value}" for number, value in enumerate(quoted)) + "\n"
    expected = {f"V{number}": part for number, part in enumerate(parts)}
    assert values(parse_shell(script, FILE)) == expected


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
        ("if a; then\nexport MS_ALLOC_CONF=enable_vmm:True\nelse\nexport MS_ALLOC_CONF=acl_allocator:True\nfi\n", []),
        ("export MS_ALLOC_CONF=enable_vmm:True\nif a; then\nexport MS_ALLOC_CONF=acl_allocator:True\nfi\n", []),
        ("if a; then\nexport MS_ALLOC_CONF=enable_vmm:True\nfi\nexport MS_ALLOC_CONF=acl_allocator:True\n", ["MST804"]),
        ("export GLOG_v=2\nexport GLOG_v=3\n", []),
        ("export MS_ALLOC_CONF='enable_vmm:True;acl_allocator:False'\n", []),
        ("export MS_ALLOC_CONF=memory_tracker_path:/a:b\n", ["MST822"]),
        ("export MS_ALLOC_CONF=vmm_align_size:2\n", ["MST805"]),
        ("export MS_ALLOC_CONF=enable_vmm\n", ["MST801"]),
        ("export MS_ALLOC_CONF=$OTHER\n", []),
        ("export OTHER_CONF=enable_vmm=True\n", []),
    ],
)
def test_alloc_conf(text: str, expected: list[str]) -> None:
    assert ids(text) == expected


def test_profiles_choose_what_is_right() -> None:
    text = "export MS_ALLOC_CONF=memory_tracker:True\n"
    assert ids(text, "performance") == ["MST807"]
    assert ids(text, "debug-memory") == ["MST820"]
    assert ids("export MS_ALLOC_CONF=memory_tracker_path:/tmp/blocks\n", "debug-memory") == []
    assert ids("export MS_DEV_LAUNCH_BLOCKING=1\n", "debug-memory") == ["MST830"]
    assert ids("export HCCL_DETERMINISTIC=true\n", "reproducible") == []


def test_items_are_those_that_mindspore_reads() -> None:
    # `Split` and `GetConfigValue` of mindspore/core/utils/ms_utils.cc, 2.7.
    assert [(item.key, item.value) for item in items('"a:1; b : 2:3 ,c=4,,d"')] == [
        ("a", "1"),
        ("b", "2:3"),
        (None, ""),
        (None, ""),
    ]


def test_the_process_shows_mindspores_variables_only() -> None:
    environment = from_process({"MS_ALLOC_CONF": "enable_vmm:1", "SECRET": "x", "GLOG_v": "1"})
    assert "SECRET" not in environment.text
    assert [finding.id for finding in lint_environment(environment)] == ["MST818", "MST803"]
    assert values(from_process({"MS_ALLOC_CONF": "'a:1' # b"})) == {"MS_ALLOC_CONF": "'a:1' # b"}


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "a.env"
    file.write_bytes(b"MS_SIMULATION_LEVEL=7\r\n")
    assert [finding.id for finding in lint_environment(parse_env(content(file), file), profile="debug-memory")] == [
        "MST830",
        "MST809",
    ]
    assert values(parse_shell(content(file), file)) == {"MS_SIMULATION_LEVEL": "7"}
    with pytest.raises(ConfigError, match="no such file"):
        parse_shell(content(tmp_path / "missing.sh"), tmp_path / "missing.sh")
    with pytest.raises(ConfigError, match="cannot be read"):
        parse_env(content(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"MS_DEV_LAUNCH_BLOCKING": "0", "TASK_QUEUE_ENABLE": "2"}, ["MST827"]),
        ({"GLOG_v": "2", "TASK_QUEUE_ENABLE": "2"}, []),
        ({"TASK_QUEUE_ENABLE": "2"}, []),
    ],
)
def test_variables_of_torch_are_told_beside_those_of_mindspore(variables: dict[str, str], expected: list[str]) -> None:
    assert [finding.id for finding in lint_environment(from_process(variables))] == expected


@pytest.mark.skipif(not (SITE_PACKAGES / "mindspore").is_dir(), reason="mindspore is not installed")
def test_keys_of_other_releases_are_not_among_those_of_the_installed_one() -> None:
    header = SITE_PACKAGES / "mindspore/include/mindspore/ccsrc/include/runtime/utils/runtime_conf/runtime_env.h"
    (version,) = SITE_PACKAGES.glob("mindspore-*.dist-info")
    if not version.name.startswith("mindspore-2.9"):
        pytest.skip("what 2.9 reads is told")
    text = header.read_text(encoding="utf-8")
    assert not [key for key in RUNTIME_KEYS_OF_2_7 | RUNTIME_KEYS_OF_2_10 if f'"{key}"' in text]
    assert not [key for key in RUNTIME_BOOLEANS if f'"{key}"' not in text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export MS_ALLOC_CONF=enable_vmm:True, simple_tracker:False\n", ["settings-cut-by-the-shell"]),
        ("export MS_ALLOC_CONF=enable_vmm:True ,simple_tracker:False\n", []),
        ("export MS_ALLOC_CONF=enable_vmm:True;simple_tracker:False\n", ["settings-cut-by-the-shell"]),
        ("export MS_ALLOC_CONF='enable_vmm:True, simple_tracker:False'\n", []),
        ("export MS_ALLOC_CONF=enable_vmm:True OTHER=1\n", []),
        ("MS_ALLOC_CONF=enable_vmm:True\nmsrun --worker_num 8 a.py\n", ["variable-not-exported"]),
        ("MS_ALLOC_CONF=enable_vmm:True\nexport MS_ALLOC_CONF\nmsrun --worker_num 8 a.py\n", []),
        ("MS_ALLOC_CONF=enable_vmm:True msrun --worker_num 8 a.py\n", []),
        ("set -a\nMS_ALLOC_CONF=enable_vmm:True\nmsrun --worker_num 8 a.py\n", []),
        ("MS_ALLOC_CONF=enable_vmm:True\nenv A=$MS_ALLOC_CONF msrun --worker_num 8 a.py\n", []),
        ("RANK_SIZE=8\nmsrun --worker_num 8 a.py\n", []),
        ("MS_ALLOC_CONF=enable_vmm:True\n", []),
        ("msrun --sim_level=1 a.py\n", ["simulation-by-msrun"]),
        ("L=3\nmsrun --sim_level $L a.py\n", ["simulation-by-msrun"]),
        ("msrun --sim_level=-1 a.py\n", []),
        ("msrun --sim_level=$1 a.py\n", []),
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
        ("export COMBINED_ENBLE=1", ["MST850"]),
        ("MS_ALOC_CONF=enable_vmm:True msrun train.py", ["MST850"]),
        ("export PYTORCH_NPU_ALLOC_CONF=expandable_segment:True", ["MST850"]),
        ("export NCCL_BUFFSIZE=4194304", []),  # of another library
        ("export HCCL_CONNECT_TIMEOUTS=60; echo $HCCL_CONNECT_TIMEOUTS", []),  # the script's own
        ("export MODEL_PATH=/data", []),
        ("export HCCL_CONNECT_TIMEOUT=7200", []),
        ("export HCCL_CONNECT_TIMEOUT=72000", ["MST851"]),
        ("export HCCL_CONNECT_TIMEOUT=${TIMEOUT:-1200}", []),
        ("export HCCL_BUFFSIZE='200M'", ["MST851"]),
        ("export ACLNN_CACHE_LIMIT=1e5", ["MST851"]),
    ],
)
def test_variables_are_held_against_their_documentation(text: str, expected: list[str]) -> None:
    assert ids(text + "\n") == expected


def test_no_documented_name_is_taken_for_a_slip_of_another() -> None:
    for name in variables():
        assert "MST850" not in ids(f"export {name}=1\n"), name
