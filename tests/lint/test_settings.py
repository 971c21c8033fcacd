from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from ms_tune.diagnostics import Severity
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, UsageError
from ms_tune.lint.checklist import Check, built_in
from ms_tune.lint.settings import (
    ProjectSettings,
    Selection,
    check_selectors,
    load_settings,
    path_matches,
    settings_for,
)

FULL = """\
select = ["MST5", "correctness"]
ignore = ["profiling-on"]
profile = "debug-memory"
checklists = ["team.yaml"]
exclude = ["third_party/**"]
fail-on = "error"
baseline = "old.json"
dialect = "mindformers"
framework-version = "1.8"

[severity]
save-graphs-on = "info"

[[per-path]]
paths = ["debug/**", "*.tmp.yaml"]
ignore = ["save-graphs-on"]
profile = "reproducible"
"""


def check(name: str) -> Check:
    return next(one for one in built_in() if one.name == name)


def write(folder: Path, text: str, name: str = "ms-tune.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def load(folder: Path, text: str) -> ProjectSettings:
    settings = load_settings(write(folder, text))
    assert settings is not None
    return settings


def test_every_setting(tmp_path: Path) -> None:
    settings = load(tmp_path, FULL)
    assert settings.folder == tmp_path
    assert settings.checklists == (tmp_path / "team.yaml",)
    assert settings.exclude == ("third_party/**",)
    assert settings.fail_on is Severity.ERROR
    assert settings.baseline == tmp_path / "old.json"
    assert (settings.dialect, settings.version) == (Dialect.MINDFORMERS, "1.8")
    plain = settings.selection_for(tmp_path / "train.yaml")
    assert plain.selects(check("save-graphs-on"))
    assert plain.severity(check("save-graphs-on")) is Severity.INFO
    assert plain.selects(check("duplicate-key"))
    assert not plain.selects(check("profiling-on"))
    assert not plain.selects(check("none-as-text")) or check("none-as-text").category.value == "correctness"
    assert plain.profile == "debug-memory"
    for path in ("debug/deep/train.yaml", "debug/train.yaml", "x/y.tmp.yaml"):
        there = settings.selection_for(tmp_path / path)
        assert not there.selects(check("save-graphs-on"))
        assert there.profile == "reproducible"


def test_the_same_in_pyproject(tmp_path: Path) -> None:
    file = write(tmp_path, "[tool.ms-tune]\nignore = ['style']\n[tool.other]\na = 1\n", "pyproject.toml")
    settings = load_settings(file)
    assert settings is not None
    assert settings.selection.ignore == ("style",)
    assert load_settings(write(tmp_path, "[tool.other]\nms-tune = 1\n", "pyproject.toml")) is None
    assert load_settings(write(tmp_path, "[project]\n", "pyproject.toml")) is None


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    write(tmp_path, "profile = 'reproducible'\n")
    write(tmp_path / "a", "[project]\nname = 'ms-tune'\n", "pyproject.toml")
    settings = settings_for(folder)
    assert settings.file == tmp_path / "ms-tune.toml"
    settings_for.cache_clear()
    write(folder, "")
    assert settings_for(folder).file == folder / "ms-tune.toml"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = ", "is not valid TOML"),
        ("selekt = []", "unknown setting 'selekt'; did you mean 'select'?"),
        ("select = 'a'", "'select' must be a list of strings"),
        ("severity = 1", "'severity' must be a table"),
        ("[severity]\na = 'bad'", "'severity.a' is 'bad', but must be one of error, warning, info"),
        ("profile = 'fast'", "'profile' is 'fast', but must be one of performance, debug-memory, reproducible"),
        ("framework-version = 'new'", "version new is not supported; supported: mindformers 1.6"),
        ("per-path = 1", "'per-path' must be a list of tables"),
        ("[[per-path]]\npath = ['a']", "unknown setting 'per-path.path'; did you mean 'paths'?"),
        ("per-path = ['a']", "'per-path' must be a table"),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert words in str(caught.value)
    assert str(tmp_path / "ms-tune.toml") in str(caught.value)


def test_mistakes_in_pyproject_name_the_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'tool\.ms-tune\.a'"):
        load_settings(write(tmp_path, "[tool.ms-tune]\na = 1\n", "pyproject.toml"))
    (tmp_path / "ms-tune.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(ConfigError, match="not valid UTF-8"):
        load_settings(tmp_path / "ms-tune.toml")
    with pytest.raises(ConfigError):
        load_settings(tmp_path / "missing.toml")


def test_the_command_line_wins() -> None:
    plain = Selection(select=("MST5",), ignore=("MST505",), severities=(("all", Severity.INFO),))
    save_graphs, duplicate = check("save-graphs-on"), check("duplicate-key")
    assert (plain.selects(save_graphs), plain.selects(duplicate)) == (False, False)
    chosen = plain.and_then(Selection(select=("MST505", "MST101")))
    assert (chosen.selects(save_graphs), chosen.selects(duplicate)) == (True, True)
    assert chosen.severity(duplicate) is Severity.INFO
    assert not chosen.and_then(Selection(ignore=("MST1",))).selects(duplicate)


def test_selectors_that_mean_nothing() -> None:
    check_selectors(["MST1", "all", "memory", "unused-ignore", "MST001"], built_in(), "here")
    with pytest.raises(UsageError, match="here: unknown check 'duplicated-key'") as caught:
        check_selectors(["duplicated-key"], built_in(), "here")
    assert caught.value.hint is not None
    assert caught.value.hint.params == {"similar": "duplicate-key"}


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("a/b.yaml", "*.yaml", True),
        ("a/b.yaml", "a/*.yaml", True),
        ("a/b/c.yaml", "a/*.yaml", False),
        ("a/b/c.yaml", "a/**/*.yaml", True),
        ("a/c.yaml", "a/**/*.yaml", True),
        ("a/b/c.yaml", "a/", True),
        ("a/b/c.yaml", "b", True),
        ("a/b/c.yaml", "a/c", False),
        ("a+b/c.yaml", "a+b/?.yaml", True),
        ("a/" * 40 + "a" * 200, "*a" * 18 + "*c", False),  # no regular expression ends on that
        ("a" * 200 + "c", "**a*" * 18 + "c", True),
    ],
)
def test_globs(path: str, pattern: str, *, expected: bool) -> None:
    assert path_matches(PurePosixPath(path), pattern) is expected
