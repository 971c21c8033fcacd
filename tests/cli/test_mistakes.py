"""Test mistakes of users: one line with the error, one with the remedy, exit code 2, and never a traceback."""

from __future__ import annotations

import ast
import gzip
import os
import re
import resource
import shutil
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from ms_tune.cli import COMMANDS
from ms_tune.cli.main import main
from ms_tune.enums import Dialect
from ms_tune.errors import ExitCode
from ms_tune.facts.megatron import definitions
from ms_tune.lint.checklist import built_in, built_in_code
from ms_tune.text import Language, lookup
from tests.files import read_data
from tests.sources import imports, modules, nodes

ROOT = Path(__file__).parents[2]
NOT_YAML = "2026-01-01 10:00:00 [INFO] step 1\n2026-01-01 10:00:01 [INFO] step 2\n"
FILES: dict[str, str | bytes] = {
    "empty.yaml": "",
    "tab.yaml": "model:\n\tnum_layers: 4\n",
    "broken.yaml": "a: [1, 2\nb: 3\n",
    "train.log": NOT_YAML,
    "data.json": '{"a": 1}',
    "latin.yaml": b"mod\xe8le: 1\n",
    "binary.yaml": bytes(range(256)),
    "list.yaml": "- a\n- b\n",
    "hyper.yaml": (ROOT / "yaml_templates" / "hyper_parallel" / "qwen3_8b_hyper.yaml").read_bytes(),
    "document.pdf": b"%PDF-1.7\n\x01\xe2\xe3\xcf\xd3\n",
    "code.py": "print(1)\n",
    "packed.log": gzip.compress(NOT_YAML.encode()),
    "powershell.log": NOT_YAML.encode("utf-16"),
    "plan.txt": "offset: [[0, 0]]\nrecompute: [[1, 0]]\nselect_recompute: [[2, 0]]\n",
    "pretrain_x.sh": "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --pipeline-model-parallel-size 2\n",
}


def read_mistakes() -> dict[str, str]:
    """Return command lines with a mistake, and words of the proposed remedy."""
    written = read_data("mistakes.yaml")
    found: dict[str, str] = {}
    for line, words in written.items():
        before, choices, after = re.fullmatch(r"(.*?)(?:\{(.*?)\}(.*))?", line).groups()  # type: ignore[union-attr]
        found |= {f"{before}{one}{after or ''}": words.replace("{}", one) for one in (choices or "").split(",")}
    return found


MISTAKES = read_mistakes()


@pytest.fixture
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    shutil.copy(ROOT / "examples" / "out_of_memory.yaml", tmp_path / "train.yaml")
    shutil.copytree(ROOT / "tests" / "data" / "memory_tracker" / "asc2", tmp_path / "run")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling.yaml").symlink_to("nowhere.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


def offered(command: str, language: Language) -> set[str]:
    """Return the options of a command and of its own commands; empty for an unknown one."""
    if command not in COMMANDS:
        return set()
    module = import_module(f"ms_tune.cli.{COMMANDS[command]}")
    further = getattr(module, "SUBCOMMANDS", {}).values()
    parsers = [one.build_parser(language) for one in (module, *further)]
    return {name for parser in parsers for action in parser.actions() for name in action.option_strings}


OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*(?!\w)")
# Hints about a value of an option, or that `lint` never gives (`rule` and `help` use its engine): they reach only a command that
# has the option.
AFTER = {
    "config.model-json.legacy.hint": "--model-config",
    "launch.set.hint": "--set",
    "layouts.too-many.hint": "--search",
    "memory.exists.hint": "--force",
    "memory.no-such-rank.hint": "--rank",
    "sizes.unknown.hint": "--model-config",
    "snapshot.no-limit.hint": "--limit",
    "stages.set.form.hint": "--set",
    "verdict.chip.hint": "--chip",
}


def is_message(node: ast.AST | None) -> bool:
    return (
        isinstance(node, ast.Call) and getattr(node.func, "id", "") == "msg" and isinstance(node.args[0], ast.Constant)
    )


@cache
def hints_of(name: str) -> frozenset[str]:
    """Return the texts that a module gives as hints: after an error's message, by name, or by their ID."""
    (module,) = [one for one in modules() if one.name == name]
    constants = [one.value for one in nodes(module) if isinstance(one, ast.Constant)]
    found = {one for one in constants if isinstance(one, str) and re.fullmatch(r"\w+\.[\w.-]+\.hint", one)}
    for node in nodes(module):
        given: list[ast.AST | None] = []
        if isinstance(node, ast.Call):
            given += [one for one in node.args[1:] if any(map(is_message, node.args[: node.args.index(one)]))]
            given += [one.value for one in node.keywords if one.arg in ("hint", "help")]
        elif (
            isinstance(node, ast.Assign)
            and getattr(node.targets[0], "attr", getattr(node.targets[0], "id", "")) == "hint"
        ):
            given.append(node.value)
        found |= {one.args[0].value for one in given if is_message(one)}  # type: ignore[union-attr]
    return frozenset(found)


def reached(name: str) -> set[str]:
    """Return every module that one imports, directly or not, at the top or when it runs."""
    by_name = {module.name: module for module in modules()}
    seen, left = set(), [name]
    while left:
        module = by_name.get(left.pop())
        if module is not None and module.name not in seen:
            seen.add(module.name)
            uses = [use for use in imports(module) if not use.typing_only]
            left += [one for use in uses for one in (use.module, f"{use.module}.{use.name}")]
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("language", Language)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_hint_names_options_that_the_command_has(command: str, language: Language) -> None:
    every = {name: offered(name, language) for name in COMMANDS}
    wrong = []
    texts = set().union(*map(hints_of, reached(f"ms_tune.cli.{COMMANDS[command]}")))
    assert texts, command
    for text_id in sorted(texts):
        text = getattr(lookup(text_id), language.value).replace("{command}", "ms-tune lint")
        for name, words in re.findall(r"(?:ms-tune ([a-z-]+))?(.*?(?=ms-tune [a-z]|$))", " ".join(text.split())):
            for option in OPTION.findall(words.partition(" -- ")[0]):
                known = any(option in options for options in every.values())  # else it is one of a framework
                if known and option not in every[name or command] and AFTER.get(text_id, "") in ("", *every[command]):
                    wrong.append(f"{text_id}: {option}")
    assert wrong == []


@pytest.mark.parametrize("language", Language)
def test_every_help_of_a_check_names_options_of_both_commands_that_show_it(language: Language) -> None:
    every = set().union(*(offered(name, language) for name in COMMANDS))
    shown = offered("lint", language) & offered("check", language)
    code = (one for several in built_in_code().values() for one in several)
    wrong = [
        (one.id, option)
        for one in (*code, *(check for dialect in Dialect for check in built_in(dialect)))
        for option in OPTION.findall(getattr(one.help, language.value))
        if option in every - shown and not definitions(option, "26.1")  # arguments of MindSpeed-LLM have the same names
    ]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("language", Language)
@pytest.mark.parametrize("typed", MISTAKES)
@pytest.mark.usefixtures("_home")
def test_what_to_do_is_said(typed: str, language: Language, capsys: pytest.CaptureFixture[str]) -> None:
    words = typed.split()
    behind = words.index("--") if "--" in words else len(words)
    code = main([*words[:behind], "--lang", language.value, *words[behind:]] if "--lang" not in words else words)
    captured = capsys.readouterr()
    assert code == ExitCode.USAGE
    assert "Traceback" not in captured.err
    assert MISTAKES[typed] in captured.err
    lines = [line for line in captured.err.splitlines() if not line.startswith(" ")]
    assert len(lines) == 1, captured.err
    command = words[0] if words[0] in COMMANDS else ""
    for named, options in re.findall(r"(?:ms-tune (\S+))?([^\n]*?(?=ms-tune|$))", captured.err.partition("\n  ")[2]):
        known = offered(named or command, language)
        assert {option for option in re.findall(r"(?<![\w-])--[a-z-]+(?!\w)", options) if known} <= known, captured.err
    if language is Language.ZH and "--lang" not in words:
        assert any("\u4e00" <= letter <= "\u9fff" for letter in captured.err)


def process(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "ms_tune", *words],
        env=environment,
        text=True,
        capture_output=True,
        check=False,
        **options,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("_home")
def test_a_full_disk() -> None:
    done = process(
        "memory", "run", "--html", "page.html",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )  # fmt: skip
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert "Traceback" not in done.stderr
    assert "page.html" in done.stderr


_HOSTILE = {
    "lint train.yaml --config x": (".toml", "a = [[[["),
    "lint train.yaml --baseline x": (".json", "deep"),
    "check x": (".sh", "["),
    "normalize-recompute x": (".sh", "$("),
    "lint x": (".py", "("),
    "fit --table x": (".json", "deep"),
    "memory x": (".csv", "["),
    "memory plan x": (".csv", "["),
    "metrics x": (".log", "["),
    "profile x": (".json", "deep"),
}


@pytest.mark.slow
@pytest.mark.drawn(4)
@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize("line", _HOSTILE)
def test_no_file_stops_a_command(line: str, tmp_path: Path) -> None:
    """A pipe that nobody writes to, /dev/zero, a number of 5,000 digits, 100,000 brackets, 2 GB of zeros: each is read or refused."""
    suffix, bracket = _HOSTILE[line]
    nested = '{"schema_version":1,"a":' + "[" * 100_000 if bracket == "deep" else bracket * 100_000
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"zero{suffix}").symlink_to("/dev/zero")
    (tmp_path / f"digits{suffix}").write_text("9" * 5_000)
    (tmp_path / f"nested{suffix}").write_text(nested)
    (tmp_path / f"large{suffix}").touch()
    os.truncate(tmp_path / f"large{suffix}", 2 * 1024**3)
    for name in ("pipe", "zero", "digits", "nested", "large"):
        done = process(*line.split()[:-1], f"{name}{suffix}", timeout=300)
        assert done.returncode in (ExitCode.OK, ExitCode.FINDINGS, ExitCode.USAGE), (name, done.stderr)
        assert "Traceback" not in done.stderr, (name, done.stderr)


@pytest.mark.slow
@pytest.mark.usefixtures("_home")
def test_no_input_and_no_terminal() -> None:
    done = process("lint", "-", stdin=subprocess.DEVNULL)
    assert (done.returncode, "Traceback" in done.stderr) == (ExitCode.USAGE, False)
    assert "ms-tune init" in done.stderr
