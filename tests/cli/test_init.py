"""Test ``ms-tune init`` and ``schema``, completions of the shell, and output of native libraries."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from ms_tune.cli.init import Template, list_templates
from ms_tune.cli.main import main
from ms_tune.cli.output import without_native_output
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.facts.query import served
from ms_tune.lint.result import LintRequest
from ms_tune.lint.runner import lint_files
from ms_tune.lint.schema import schema
from ms_tune.source.yaml import load_source
from ms_tune.text import Language
from tests.jobs import read_recompute

CONFIG = "# 头\r\ntrainer: {type: A}\r\nseed: 1\r\n"


def print_schema(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["schema", "--lang", "en", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.parametrize("dialect", YAML_DIALECTS)
def test_schemas_are_schemas(dialect: Dialect, capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(print_schema(capsys, "--dialect", dialect.value)[1])
    assert made == schema(dialect)
    assert made["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema.Draft7Validator.check_schema(made)
    assert "additionalProperties" not in json.dumps(made)


def test_install_adds_a_modeline_and_nothing_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + CONFIG.encode())
    line = "# yaml-language-server: $schema=./.ms-tune/mindformers.schema.json\r\n"
    for _ in range(2):
        code, _, err = print_schema(capsys, "--install", str(file))
        assert code == 0
        assert f" and set up in {file}" in err
        assert file.read_bytes() == b"\xef\xbb\xbf" + (line + CONFIG).encode()
    written = json.loads((tmp_path / ".ms-tune" / "mindformers.schema.json").read_text(encoding="utf-8"))
    assert written == schema(Dialect.MINDFORMERS)


def test_install_takes_the_place_of_an_older_modeline(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    file = tmp_path / "a" / "train.yaml"
    file.write_text("# one\n# yaml-language-server: $schema=old.json\ntrainer: {}\n# $schema: not here\n")
    arguments = ("--install", str(file), "--dialect", "mindspeed-ms", "--output", str(tmp_path / "s.json"))
    assert print_schema(capsys, *arguments)[:2] == (0, "")
    assert json.loads((tmp_path / "s.json").read_text(encoding="utf-8")) == schema(Dialect.MINDSPEED_MS)
    assert file.read_text() == ("# one\n# yaml-language-server: $schema=../s.json\ntrainer: {}\n# $schema: not here\n")


@pytest.mark.parametrize("hindrance", ["config", "folder"])
def test_both_files_are_written_or_none(hindrance: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_bytes(CONFIG.encode())
    if hindrance == "config":
        config.chmod(0o444)
    else:
        (tmp_path / ".ms-tune").write_text("no folder")
    before = sorted(tmp_path.iterdir())
    assert main(["schema", "--install", str(config), "--lang", "en"]) == 2
    assert "error" in capsys.readouterr().err
    assert config.read_bytes() == CONFIG.encode()
    assert sorted(tmp_path.iterdir()) == before


def test_one_release(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = json.loads(print_schema(capsys, "--dialect", "mindformers", "--framework-version", "1.6.0")[1])
    model = made["properties"]["model"]["properties"]["model_config"]["properties"]
    assert "aux_loss_types" in model  # only 1.6 knows it
    assert "mlp_bias" not in model  # since 1.9
    everything = schema(Dialect.MINDFORMERS)["properties"]["model"]["properties"]["model_config"]["properties"]
    assert {"aux_loss_types", "mlp_bias"} <= everything.keys() > model.keys()
    dynamic = schema(Dialect.MINDFORMERS_PYNATIVE, "2.0")["properties"]
    assert "num_hidden_layers" in dynamic["model"]["properties"]
    assert "rampup_batch_size" not in dynamic["training"]["properties"]
    file = tmp_path / "train.yaml"
    file.write_text(CONFIG)
    assert print_schema(capsys, "--install", str(file), "--framework-version", "1.6")[0] == 0
    assert json.loads((tmp_path / ".ms-tune" / "mindformers.schema.json").read_text(encoding="utf-8")) == made
    code, _, err = print_schema(capsys, "--dialect", "mindformers", "--framework-version", "9.9")
    assert code == 2
    assert "1.6, 1.7" in err


def test_unknown_dialects(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert print_schema(capsys)[0] == 2
    (tmp_path / "a.yaml").write_text("a: 1\n")
    code, _, err = print_schema(capsys, "--install", str(tmp_path / "a.yaml"))
    assert code == 2
    assert "does not look like a training config" in err


TEMPLATES = list_templates()
ALL = pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)


def init(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["init", "--lang", "en", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.drawn(5)
@ALL
def test_templates_lint_clean_for_every_release_that_they_name(template: Template) -> None:
    named = re.search(r"(MindFormers|HyperParallel) (\d\.\d|G\d)(?: to (\d\.\d))?", template.summary[Language.EN])
    assert named is not None or template.dialect is Dialect.MINDSPEED_MS
    releases = served(template.dialect)
    first, last = (named[2], named[3] or named[2]) if named else (releases[0], releases[-1])
    for release in releases[releases.index(first) : releases.index(last) + 1]:
        report = lint_files(template.file, request=LintRequest(framework_version=release))
        assert [found.name for file in report.files for found in file.findings] == [], release
        assert all(file.notes == () for file in report.files), release


@pytest.mark.parametrize(
    "template", [one for one in TEMPLATES if one.dialect is Dialect.MINDFORMERS], ids=lambda one: one.name
)
def test_static_graph_templates_normalise_without_problems(template: Template) -> None:
    assert normalize(read_recompute(load_source(template.file))).problems == ()


@ALL
def test_templates_show_what_they_are(template: Template) -> None:
    assert template.summary[Language.EN].isascii()
    assert re.search("[一-鿿]", template.summary[Language.ZH])
    assert template.file.parent.name == template.dialect.value.replace("-", "_")


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    lines = init(capsys, "--list")[1].splitlines()
    assert [line.split()[0] for line in lines] == [one.name for one in TEMPLATES]
    entries = json.loads(init(capsys, "--list", "--json")[1])["templates"]
    assert entries[0]["name"] == TEMPLATES[0].name
    assert set(entries[0]["summary"]) == {"en", "zh"}


def test_copy(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    template = TEMPLATES[0]
    assert init(capsys, template.name)[:2] == (
        0,
        f"wrote {template.name}.yaml; check it with: ms-tune lint {template.name}.yaml\n",
    )
    copied = tmp_path / f"{template.name}.yaml"
    assert copied.read_bytes() == template.file.read_bytes()
    copied.write_text("mine\n")
    code, _, err = init(capsys, template.name)
    assert code == 2
    assert "already exists" in err
    assert copied.read_text() == "mine\n"
    assert init(capsys, template.name, "--force")[0] == 0
    assert copied.read_bytes() == template.file.read_bytes()
    (tmp_path / "folder").mkdir()
    assert json.loads(init(capsys, template.name, "folder", "--json")[1])["file"] == f"folder/{template.name}.yaml"
    for name in ("folder/other.yaml", "new/folder/other.yaml"):
        assert init(capsys, template.name, name)[0] == 0
        assert (tmp_path / name).is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no template specified"),
        (("llama2_7",), "did you mean llama2_7b?"),
        (("zzz",), "run 'ms-tune init --list' to list the templates"),
        (("llama2_7b", "plain-file/a.yaml"), "cannot be written"),
    ],
)
def test_templates_that_are_not_written(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain-file").touch()
    code, _, err = init(capsys, *arguments)
    assert code == 2
    assert words in err


ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "among", "not_among"),
    [
        ("ms-tune ", {"check", "lint", "normalize-recompute", "profile"}, {"what-if"}),
        ("ms-tune norm", {"normalize-recompute"}, {"lint"}),
        ("ms-tune fit --exp", {"--explain", "--export-table"}, {"--table"}),
        ("ms-tune dryrun --engine ", {"local", "ray"}, {"check"}),
        ("ms-tune rule negative-re", {"negative-recompute"}, {"rule"}),
        ("ms-tune init qwen3_3", {"qwen3_32b"}, {"llama2_7b"}),
        ("ms-tune memory what-if --exp", {"--expandable"}, {"--explain"}),
    ],
)
def test_tab_offers(tmp_path: Path, line: str, among: set[str], not_among: set[str]) -> None:
    pytest.importorskip("argcomplete")
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    script = "from ms_tune.cli.main import entry_point; entry_point()"
    subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, **asked, "PYTHONPATH": str(ROOT)}, check=False
    )
    offered = {one.strip() for one in answer.read_text(encoding="utf-8").split("\n")}
    assert among <= offered
    assert not offered & not_among


def test_what_native_code_prints_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    sys.stdout.write("before\n")
    with without_native_output():
        os.write(1, b"written\n")
        ctypes.CDLL(None).puts(b"buffered")  # as C code prints: its own buffer is emptied later
    sys.stdout.write("after\n")
    assert capfd.readouterr().out == "before\nafter\n"


def test_a_failure_gives_the_output_back(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), without_native_output():
        raise KeyError
    sys.stdout.write("after\n")
    assert capfd.readouterr().out == "after\n"
