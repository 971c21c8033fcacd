from __future__ import annotations

import shutil
import subprocess
import sys
from copy import copy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.cli.main import main
from ms_tune.diagnostics import Diagnostic, dotted
from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.query import data_folder
from ms_tune.lint.checklist import built_in, read_checklist
from ms_tune.lint.engine import lint, matches
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language


def run(text: str, dialect: Dialect = Dialect.MINDFORMERS, version: str | None = None) -> tuple[Diagnostic, ...]:
    return lint(parse_source(text, Path("config.yaml")), dialect, built_in(dialect), version)


def lint_positions(
    text: str, dialect: Dialect = Dialect.MINDFORMERS, version: str | None = None
) -> list[tuple[str, int, int]]:
    return [(finding.id, finding.location.line, finding.location.column) for finding in run(text, dialect, version)]


def test_findings_are_in_the_order_of_the_text_and_point_at_key_or_value() -> None:
    text = "profile_strat_step: 1\ncontext:\n  save_graphs: 2\n  deterministic: 'ON'\nseed: 1e5\nseed: 1\n"
    assert lint_positions(text) == [("MST201", 1, 1), ("MST505", 3, 16), ("MST502", 4, 3), ("MST101", 6, 1)]


def test_aliases_point_at_the_use_and_relate_to_the_definition() -> None:
    (finding,) = run("x-pp: &size 64GB\ncontext:\n  max_device_memory: *size\n")
    assert (finding.id, finding.location.line, finding.location.column) == ("MST508", 3, 22)
    assert [(related.location.line, related.location.column) for related in finding.related] == [(1, 13)]
    assert finding.message.params["value"] == "64GB"


@pytest.mark.parametrize(
    ("model", "stages", "expected"),
    [
        ("num_layers: 9, offset: 1", 4, ["MST303"]),
        ("num_layers: 9, offset: [0, 1, 0, 0]", 4, []),
        ("num_layers: 9, offset: [1, 0]", 4, ["MST302"]),
        ("num_layers: 9", 4, []),  # some legacy models know no offset
        ("num_layers: 3, mtp_depth: 1, offset: 0", 2, []),  # legacy DeepSeek counts the extra layer
        ("num_layers: 9, offset: auto", 4, ["MST302"]),
        ("num_layers: 9, num_hidden_layers: 8, offset: 0", 4, []),
        ("num_layers: 9, offset: 0, stage_num: 2", 4, []),
        ("num_layers: 9, offset: 5", 1, ["MST355"]),
        ("offset: [1, 0]", 4, ["MST302"]),  # too few numbers for any number of layers
        ("offset: [[1, 0, 0, 0]]", 4, []),
        ("offset: [1, 0], stage_num: 2", 4, []),
    ],
)
def test_layer_split(model: str, stages: int, expected: list[str]) -> None:
    text = f"parallel_config: {{pipeline_stage: {stages}}}\nmodel: {{model_config: {{{model}}}}}\n"
    assert [finding.id for finding in run(text)] == expected
    assert run(f"run_mode: predict\n{text}") == ()
    # On one device the offset is only read: a value that is not a number always stops the run.
    alone = {finding.id for finding in run(f"use_parallel: False\n{text}")} & {"MST302", "MST303"}
    assert alone == ({"MST302"} if "auto" in model else set())


def test_interleaved_layer_split() -> None:
    text = (
        "use_legacy: False\nparallel_config: {pipeline_stage: 2}\n"
        "parallel: {pipeline_config: {pipeline_interleave: True, pipeline_scheduler: 1f1b}}\n"
        "model: {model_config: {num_layers: 9, pp_interleave_num: 2, offset: OFFSET}}\n"
    )
    assert [finding.id for finding in run(text.replace("OFFSET", "[0, 1]"))] == ["MST303"]
    assert run(text.replace("OFFSET", "[[0, 1], [0, 0]]")) == ()
    (finding,) = run(text.replace("OFFSET", "[0, 1]"))
    assert "have 10 layers, but the model has 9" in finding.message.say(Language.EN)
    assert "容纳 10 层" in finding.message.say(Language.ZH)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("recompute: [1, 1, 1]", ["MST401"]),
        ("recompute: [[1, 1, 1]]", []),
        ("select_recompute: {'a\\.b': [1, 1, 1]}", ["MST401"]),
        ("select_recompute: {'a\\.b': [0, -1]}", ["MST402"]),
        ("select_recompute_exclude: {a: [0, -1]}", ["MST402"]),
        ("recompute: [[-1, 0]]", []),  # a negative number in a two-dimensional list counts as 0
        ("recompute: ['1', '1']", ["MST406"]),
        ("select_recompute: ['a\\.b', 'c.d', '.*\\.norm']", ["MST407"]),
        ("recompute: [True, 2]", []),
        ("recompute: 5", []),
        ("recompute:", []),
    ],
)
def test_recompute(values: str, expected: list[str]) -> None:
    text = f"parallel_config: {{pipeline_stage: 2}}\nrecompute_config:\n  {values}\n"
    assert [finding.id for finding in run(text)] == expected


def test_sections_of_training_are_not_checked_for_prediction() -> None:
    text = "run_mode: predict\nrecompute_config: {unknown: 1}\nprofile: True\ntrain_precision_sync: True\n"
    assert run(text) == ()
    assert [f.id for f in run("run_mode: predict\nparallel_config: {pipeline_stages: 1}\n")] == ["MST203"]


def test_sections_that_are_no_mappings() -> None:
    (finding,) = run("recompute_config: True\n")
    assert (finding.id, finding.message.say(Language.EN)) == (
        "MST204",
        "recompute_config must be a section with keys of its own",
    )


def test_versions_choose_the_checks() -> None:
    text = "context: {deterministic: 'ON', mode: 1, pynative_synchronize: True}\n"
    assert [finding.id for finding in run(text, version="1.9")] == ["MST502", "MST502"]
    assert [finding.id for finding in run(text, version="1.8.0")] == ["MST503", "MST504"]


@pytest.mark.parametrize(
    ("version", "versions", "expected"),
    [
        ("1.9", None, True),
        ("1.9", ">=1.9", True),
        ("1.9.0", "==1.9", True),
        ("1.10", ">1.9", True),
        ("1.8", ">=1.7,<1.9", True),
        ("2", ">=1.7,<1.9", False),
        ("1.9", "!=1.9.0", False),
    ],
)
def test_version_ranges(version: str, versions: str | None, *, expected: bool) -> None:
    assert matches(version, versions) is expected


def test_a_check_that_crashes_becomes_a_finding() -> None:
    check = copy(built_in()[0])
    check.function = ["ms_tune.lint.check_values", "no_such_function"]
    (finding,) = lint(parse_source("a: 1\na: 1\n", Path("config.yaml")), Dialect.MINDFORMERS, [check])
    assert (finding.id, finding.name) == ("MST001", "internal-error")
    assert "AttributeError" in finding.message.say(Language.ZH)
    assert finding.trace.startswith("Traceback")


@pytest.mark.parametrize(
    "more", [(), ("--fail-on", "error"), ("--exit-zero",), ("--ignore", "MST001"), ("--json",), ("--fix",)]
)
def test_a_crash_ends_with_an_exit_code_of_its_own_next_to_what_the_others_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    def crash(_: object) -> list[int]:
        return [1 // 0]

    monkeypatch.setattr("ms_tune.lint.check_values.duplicate_key", crash)
    file = tmp_path / "config.yaml"
    file.write_text("use_parallel: True\nrunner_config: {batch_size: 1}\nprofile: True\nprofile: True\n")
    assert main(["lint", "--no-config", "--lang", "en", *more, str(file)]) == 3
    shown = capsys.readouterr()
    assert "ZeroDivisionError: " in shown.err
    assert "Traceback" in shown.err
    assert "profiling-on" in shown.out


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.sampled_from(["1e-5", "None", "64GB", "a.b", "ON"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "recompute", "swap"]), inner),
    max_leaves=6,
)
KEYS = (
    *("use_legacy", "run_mode", "profile", "context", "parallel_config", "recompute_config", "swap_config", "model"),
    *("training_config", "parallelism", "swap", "parallel"),
)
INNER = (
    *("model_config", "pipeline_stage", "recompute", "select_recompute", "select_comm_recompute", "swap", "enable"),
    *("max_device_memory", "save_graphs", "recompute_config", "seq_split_num", "pipeline_config", "pipeline_parallel"),
)
INNERMOST = ("num_layers", "offset", "pp_interleave_num", "pipeline_interleave", "recompute", "select_comm_recompute")
SECTIONS = VALUES | st.dictionaries(
    st.sampled_from(INNER), VALUES | st.dictionaries(st.sampled_from(INNERMOST), VALUES, max_size=4), max_size=4
)


@given(config=st.dictionaries(st.sampled_from(KEYS), SECTIONS, max_size=5), dialect=st.sampled_from(YAML_DIALECTS))
def test_no_config_makes_a_check_crash(config: dict[str, object], dialect: Dialect) -> None:
    import yaml  # noqa: PLC0415 - only here

    source = parse_source(yaml.safe_dump(config), Path("config.yaml"))
    for finding in lint(source, dialect, built_in(dialect)):
        assert finding.id != "MST001", finding.message.say(Language.EN)
        for language in Language:
            assert finding.message.say(language)
            assert finding.help is None or finding.help.say(language)


OWN = """
dialects: [mindformers]
checks:
  - id: OUR001
    name: sequence-length
    severity: error
    category: style
    title: {en: t, zh: 题}
    why: {en: w, zh: 因}
    message: {en: "{key} is {value}", zh: "{key} 为 {value}"}
    help: {en: h, zh: 助}
    evidence: [{framework: MindFormers, version: "1.9", file: a.py}]
    bad: "a: 1"
    good: "a: 2"
    test: TEST
"""


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("{path: 'b.*.c', equals: 1}", ["b.y.c", "b.l.c"]),
        ("{path: 'b.*.c', one-of: [1, 3]}", ["b.y.c"]),
        ("{path: b.x.c, not-one-of: [1]}", ["b.x.c"]),
        ("{path: b.x.c, not-one-of: [true]}", []),  # 1 is not true
        ("{path: [b, x, c], schema: {type: string}}", ["b.x.c"]),
        ("{path: 'b.*.d', required: true}", ["b.x.d", "b.y.d", "b.l.d"]),
        ("{path: 'list.*.c', forbidden: true}", ["list[1].c"]),
        ("{paths: [b.x.c, nothing.at.all], equals: 2}", ["b.x.c"]),
    ],
)
def test_own_checklist(tmp_path: Path, test: str, expected: list[str]) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(OWN.replace("TEST", test), encoding="utf-8")
    source = parse_source("b:\n  x: {c: 1}\n  y: {c: 2}\n  l: {c: 3}\nlist: [1, {c: 5}]\n", Path("config.yaml"))
    findings = lint(source, Dialect.MINDFORMERS, read_checklist(file).checks)
    assert [dotted(finding.path) for finding in findings] == expected


def test_own_checklist_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        OWN.replace("TEST", "{path: a, equals: 1}").replace("severity: error", "severity: bad"), encoding="utf-8"
    )
    with pytest.raises(ConfigError) as caught:
        read_checklist(file)
    assert caught.value.location() == f"{file}:6:15"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["lint", "check"])
def test_nothing_slow_is_imported(command: str, tmp_path: Path) -> None:
    """Starting Python is most of the time of both; ``dataclasses`` alone imports ``inspect``, ``dis`` and ``tokenize``."""
    config = shutil.copy(data_folder("yaml_templates") / "mindformers" / "qwen3_0_6b.yaml", tmp_path)
    code = (
        "import sys; from ms_tune.cli.main import main; "
        f"main([{command!r}, {str(config)!r}]); "
        "slow = {'jsonschema', 'numpy', 'polars', 'scipy', 'mindspore'}; "
        "slow |= {'dataclasses', 'inspect', 'subprocess', 'importlib.metadata', 'difflib', 'typing'}; "
        f"slow |= {{'ast', 'ms_tune.job.definitions'}} if {command!r} == 'lint' else set(); "
        "sys.exit(str(slow & set(sys.modules)) if slow & set(sys.modules) else 0)"
    )
    for _ in range(2):  # the first lint of new checklists parses them, and stores their rows
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
