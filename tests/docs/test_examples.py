"""Run every example command of pages and help, or check that the page states its requirements."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path

import pytest

from ms_tune.cli import COMMANDS
from ms_tune.cli.main import main
from ms_tune.errors import ExitCode
from ms_tune.lint.settings import settings_for
from ms_tune.report.console import text_width

pytest.importorskip("numpy", reason="the extra 'report' is not installed")

from collections.abc import Iterator

from tests.docs.examples import ROOT, blocks, furnish, linked, needs, of_help
from tests.docs.test_pages import PAGES

ENGLISH = [page for page in PAGES if not page.name.endswith(".zh.md")]  # the Chinese ones have the same examples
HELP = {
    text_id: text["en"] if isinstance(text["en"], str) else "\n".join(text["en"])
    for file in sorted((ROOT / "ms_tune" / "texts").glob("*.json"))
    for text_id, text in json.loads(file.read_text("utf-8")).items()
    if text_id.endswith(".examples")
}
# Values that depend on the reader's own file: a moment, a rank, a device.
_OWN = {
    ("migrate", "train.yaml"): "static.yaml",
    ("--device", "3"): "0",
    ("--at", "7430"): "3",
    ("--at", "43685"): "50",
    ("--json", "memory_block.csv"): "layers",
    ("4", "output/"): "layers",
    ("adam_v.*", "output/"): "layers",
}
_ELSEWHERE = (("rule", "--markdown"), ("fit", "llama.json"))  # seconds each; tests/cli runs them
# Output for programs or for copying is not wrapped: formats, files, logs, and shown lines of a config or script.
_WHOLE_OUTPUT = {"--json", "--diff", "--as-log", "--to", "sarif", "--dialect", "migrate", "export"}
_WHOLE_LINE = re.compile(r" *(?:(?:\$ )?ms-tune |--> |Formative |Set )|\s*\d*\s*\||  .*[{}#]|[^ ]+(?:: |：)ms-tune ")
# English punctuation after Chinese words; “键: 值” is YAML syntax.
_ASCII_MARK = re.compile(r"(?!键: )[\u4e00-\u9fff）”][:;,!?](?=\s|$)")
_SEEN: set[tuple[str, ...]] = set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_not_run_says_what_it_needs(page: Path) -> None:
    """``<!-- needs: simulation -->`` (or NPU, network, repository, development) must precede such commands, and no others."""
    wrong = [
        (block.commands, sorted(block.needs)) for block in blocks(page.read_text("utf-8")) if block.needs != block.said
    ]
    assert wrong == []


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples") / "files"
    folder.mkdir()
    furnish(folder)
    return folder


@pytest.fixture
def home(furnished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder with the files that examples name."""
    folder = tmp_path / "home"
    shutil.copytree(furnished, folder, copy_function=linked)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / "cache"))
    return folder


def to_run(text: str) -> Iterator[tuple[str, ...]]:
    for block in blocks(text):
        yield from (words for words in block.commands if not needs(words))


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in ENGLISH if any(to_run(page.read_text("utf-8")))], ids=lambda page: page.name
)
@pytest.mark.usefixtures("home")
def test_commands_of_a_page_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [wrong for words in to_run(page.read_text("utf-8")) for wrong in failed(words, capsys)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, text in HELP.items() if any(not needs(one) for one in of_help(text))])
@pytest.mark.usefixtures("home")
def test_commands_of_help_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [words for words in of_help(HELP[name]) if not needs(words)]
    assert [wrong for words in commands for wrong in failed(words, capsys)] == []


def failed(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run one command; what is wrong with how it ended."""
    program, rest = words[0], list(words[1:])
    if program == "cp":
        shutil.copy(rest[0], rest[1])
        return []
    output = rest[rest.index(">") + 1] if ">" in rest else None
    rest = rest[: rest.index(">")] if output else rest
    if program == "echo":
        Path(output or "out").write_text(f"{rest[0]}\n", "utf-8")
        settings_for.cache_clear()  # a separate process would read them again
        return []
    if program == "grep" or words in _SEEN or any({*one} <= {*rest} for one in _ELSEWHERE):
        return []
    _SEEN.add(words)
    rest = [_OWN.get((before, word), word) for before, word in zip(["", *rest], rest, strict=False)]
    if rest[0] == "fit" and "--search" not in rest and "--explain" not in rest:
        rest += ["--effort", "quick"]
    for option, file in itertools.pairwise(rest):
        if option in ("--html", "--write", "-o", "--bundle"):
            Path(file).unlink(missing_ok=True)  # an earlier example's
    code = main(rest)
    captured = capsys.readouterr()
    if output:
        Path(output).write_text(captured.out, "utf-8")
    fine = code in (ExitCode.OK, ExitCode.FINDINGS) and "Traceback" not in captured.err
    wide = [] if _WHOLE_OUTPUT & {*rest} else [*too_wide(captured.out), *in_chinese(rest, capsys)]
    return [*([] if fine else [f"{' '.join(rest)}: exit code {code}: {captured.err}"]), *wide]


def in_chinese(rest: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what is wrong with the command's output in Chinese; commands that write or take long are skipped."""
    if (
        {"--html", "--write", "-o", "--bundle", "--fix", "--lang", "--effort"} & {*rest}
        or rest[0] == "init"
        or "--" in rest
    ):
        return []
    main([*rest, "--lang", "zh"])
    captured = capsys.readouterr()
    marks = [line for line in (*captured.out.splitlines(), *captured.err.splitlines()) if _ASCII_MARK.search(line)]
    return [*too_wide(captured.out), *marks]


def too_wide(text: str) -> list[str]:
    """Return lines of prose and tables that a terminal of 80 columns would break at any position."""
    lines = (line for line in text.splitlines() if text_width(line) > 80 and not _WHOLE_LINE.match(line))
    return [line for line in lines if any(text_width(word) < 60 for word in line.split()[1:])]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    "command", ["", *COMMANDS, "memory what-if", "memory plan", "memory diff", "memory import-memlog", "memory run"]
)
def test_help_is_80_columns_wide(
    command: str, language: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in (["--help"], ["--help-all"], [])[: 3 if not command else 2]:
        main([*command.split(), *words, "--lang", language] if words else [])
        assert too_wide(capsys.readouterr().out) == []
