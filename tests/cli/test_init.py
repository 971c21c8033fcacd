from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ms_tune.cli.init import Template, list_templates
from ms_tune.cli.main import main
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.enums import Dialect
from ms_tune.facts.query import served
from ms_tune.lint.result import LintRequest
from ms_tune.lint.runner import lint_files
from ms_tune.source.yaml import load_source
from ms_tune.text import Language
from tests.jobs import read_recompute

TEMPLATES = list_templates()
ALL = pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["init", "--lang", "en", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


@ALL
def test_templates_lint_clean_for_every_release_that_they_name(template: Template) -> None:
    named = re.search(r"(MindFormers) (\d\.\d)(?: to (\d\.\d))?", template.summary[Language.EN])
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
    lines = run(capsys, "--list")[1].splitlines()
    assert [line.split()[0] for line in lines] == [one.name for one in TEMPLATES]
    entries = json.loads(run(capsys, "--list", "--json")[1])["templates"]
    assert entries[0]["name"] == TEMPLATES[0].name
    assert set(entries[0]["summary"]) == {"en", "zh"}


def test_copy(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    template = TEMPLATES[0]
    assert run(capsys, template.name)[:2] == (
        0,
        f"wrote {template.name}.yaml; check it with: ms-tune lint {template.name}.yaml\n",
    )
    copied = tmp_path / f"{template.name}.yaml"
    assert copied.read_bytes() == template.file.read_bytes()
    copied.write_text("mine\n")
    code, _, err = run(capsys, template.name)
    assert code == 2
    assert "already exists" in err
    assert copied.read_text() == "mine\n"
    assert run(capsys, template.name, "--force")[0] == 0
    assert copied.read_bytes() == template.file.read_bytes()
    (tmp_path / "folder").mkdir()
    assert json.loads(run(capsys, template.name, "folder", "--json")[1])["file"] == f"folder/{template.name}.yaml"
    for name in ("folder/other.yaml", "new/folder/other.yaml"):
        assert run(capsys, template.name, name)[0] == 0
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
def test_mistakes(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain-file").touch()
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert words in err
