"""Test ``ms-tune`` itself: finding the command, languages, usage errors, exit codes."""

from __future__ import annotations

import errno
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType

import pytest

from ms_tune import __version__
from ms_tune.cli import COMMANDS
from ms_tune.cli import dryrun as dryrun_command
from ms_tune.cli import main as main_module
from ms_tune.cli.main import main
from ms_tune.cli.parser import language_from_arguments
from ms_tune.errors import ConfigError, ExitCode, RunError, StandInBuildError, UsageError
from ms_tune.facts.query import data_folder
from ms_tune.lint.settings import settings_for
from ms_tune.report.console import text_width
from ms_tune.text import Language, language_from_environment, msg

ROOT = Path(__file__).parents[2]
HELPED = (*COMMANDS, *(f"memory {one}" for one in ("what-if", "plan", "diff", "export", "import-memlog")))
LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")
# Without these a command behaves as in a user's terminal.
UNSET = (*LOCALE, "FORCE_COLOR", "NO_COLOR", "PYTHONUNBUFFERED", "PYTHONIOENCODING", "COLUMNS")


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)


def has_chinese(text: str) -> bool:
    return any("\u4e00" <= character <= "\u9fff" for character in text)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command; return exit code, standard output and standard error."""
    try:
        code = main(arguments)
    except SystemExit as end:  # argparse's own end, after help and version
        code = end.code if isinstance(end.code, int) else -1
    output = capsys.readouterr()
    return code, output.out, output.err


def process(
    *arguments: str,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    env: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[bytes]:
    """Run ``python -m ms_tune`` as a process."""
    return subprocess.run(
        [sys.executable, "-m", "ms_tune", *arguments],
        cwd=ROOT,
        env={**os.environ, **env},
        stdout=stdout,
        stderr=stderr,
        check=False,
    )


class TestHelp:
    def test_the_version_is_printed(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, err = run(capsys, "--version")
        assert (code, err) == (0, "")
        assert out.startswith(f"ms-tune {__version__} (Python 3.")

    @pytest.mark.parametrize("flag", ["--help", "-h"])
    def test_help_names_every_command_and_gives_examples(self, capsys: pytest.CaptureFixture[str], flag: str) -> None:
        code, out, err = run(capsys, flag)
        assert (code, err) == (0, "")
        assert out.startswith("usage: ms-tune")
        assert "examples:" in out
        for command in COMMANDS:
            assert f"\n  {command} " in out
        examples = [
            line.split() for line in out.partition("examples:\n")[2].splitlines() if line.startswith("  ms-tune")
        ]
        assert len(examples) > 2
        assert {example[1] for example in examples} <= COMMANDS.keys()

    def test_advice_names_commands_that_there_are(self) -> None:
        advice = [
            text
            for file in data_folder("checklists").rglob("*.yaml")
            for text in re.findall(r"help:\n +en: (.*)\n +zh: (.*)", file.read_text(encoding="utf-8"))
        ]
        in_english, in_chinese = (
            {*re.findall(r"ms-tune ([a-z-]+)", "\n".join(part))} for part in zip(*advice, strict=True)
        )
        assert in_english == in_chinese
        assert {"fit", "normalize-recompute"} <= in_english <= COMMANDS.keys()

    def test_help_is_chinese_on_request(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, _ = run(capsys, "--lang", "zh", "--help")
        assert code == 0
        assert out.startswith("用法：ms-tune")
        assert "示例：" in out
        for english in ("usage:", "options:", "positional arguments", "show this help", "examples:"):
            assert english not in out

    @pytest.mark.parametrize("command", HELPED)
    @pytest.mark.parametrize("language", Language)
    def test_help_of_every_command_in_both_languages(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, language: Language
    ) -> None:
        """Check that help fits one screen, names every option of ``--help-all``, and has examples that can be copied."""
        words = [*command.split(), "--lang", language.value]
        monkeypatch.setenv("COLUMNS", "100")
        code, brief, err = run(capsys, *words, "--help")
        assert (code, err) == (0, "")
        assert brief.startswith(f"usage: ms-tune {command}" if language is Language.EN else f"用法：ms-tune {command}")
        assert has_chinese(brief) is (language is Language.ZH)
        assert len(brief.splitlines()) <= 32
        if " " not in command:
            code, full, err = run(capsys, *words, "--help-all")
            assert (code, err) == (0, "")
            explained = set(re.findall(r"^  (?:-\w, )?(?:--[a-z-]+ \S+, )?(--[a-z-]+)", full, re.MULTILINE))
            assert len(explained) >= 3
            assert explained <= set(re.findall(r"--[a-z-]+", brief))
        monkeypatch.setenv("COLUMNS", "1000")
        whole = run(capsys, *words, "--help")[1]
        monkeypatch.setenv("COLUMNS", "80")
        reported = run(capsys, *words, "--help")[1]
        assert max(map(text_width, reported.splitlines())) <= 80
        joined = re.sub(r" \\\n +", " ", reported)
        for line in whole.splitlines():
            example = re.fullmatch(r" +(ms-tune .*?)(  .*)?", line)
            if example and not example[2]:
                assert example[1] in joined

    @pytest.mark.parametrize("language", Language)
    def test_help_lists_the_commands_by_task_and_shows_one_of_them(
        self, capsys: pytest.CaptureFixture[str], language: Language
    ) -> None:
        code, out, err = run(capsys, "help", "--lang", language.value)
        assert (code, err) == (0, "")
        listed = re.findall(r"^  ([a-z-]+) {2,}\S", out, re.MULTILINE)
        assert sorted(listed) == sorted(COMMANDS)
        page = out.splitlines()[-1].split()[0]
        assert (ROOT / page).is_file()
        assert (".zh." in page) is (language is Language.ZH)
        same = [
            ("lint", "lint --help"),
            ("memory plan", "memory plan --help"),
            ("help", "help --help"),
            ("MST402", "rule MST402"),
            ("negative-recompute", "rule negative-recompute"),
        ]
        for asked, meant in same:
            shown = run(capsys, "--lang", language.value, "help", *asked.split())
            assert shown == run(capsys, *meant.split(), "--lang", language.value)
            assert shown[0] == 0

    @pytest.mark.parametrize(
        ("word", "hint"),
        [("lnt", "did you mean lint?"), ("recompute", "ms-tune rule --search recompute"), ("zzzzzz", "ms-tune rule")],
    )
    def test_help_for_an_unknown_word_says_what_may_be_meant(
        self, capsys: pytest.CaptureFixture[str], word: str, hint: str
    ) -> None:
        code, out, err = run(capsys, "help", word)
        assert (code, out) == (ExitCode.USAGE, "")
        assert f"'{word}'" in err.splitlines()[0]
        assert hint in err.splitlines()[1]

    def test_without_a_command_it_says_what_to_do_first(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, err = run(capsys)
        assert (code, err) == (ExitCode.OK, "")
        assert "ms-tune check train.yaml" in out
        assert len(out.splitlines()) < 12


class TestUsageErrors:
    @pytest.mark.parametrize("command", ["lint", "check", "memory"])
    @pytest.mark.parametrize("file", ["--exit-zero", "--baseline=x.yaml", ""])
    def test_names_of_files_never_become_options_or_this_folder(
        self,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        file: str,
        command: str,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / (file or "x.yaml")).write_text("trainer: {type: A}\n", encoding="utf-8")
        code, out, err = run(capsys, command, "x.yaml", file)
        assert (code, out) == (ExitCode.USAGE, "")
        assert f"'{file}' is an option and also the name of a file here" in err or "file is empty" in err

    def test_an_option_before_the_command_is_moved_after_it_as_a_shell_takes_it(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "ms-tune lint --json 'my file.yaml'" in run(capsys, "--json", "lint", "my file.yaml")[2]


class TestLanguage:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (("--lang", "zh", "dryrun", "--layers", "0"), Language.ZH),
            (("--lang=zh", "dryrun", "--layers", "0"), Language.ZH),
            (("dryrun", "--lang", "zh", "--layers", "0"), Language.ZH),
            (("dryrun", "--layers", "0", "--lang=zh"), Language.ZH),
            (("--lang", "zh", "dryrun", "--lang", "en", "--layers", "0"), Language.EN),
            (("dryrun", "--layers", "0"), Language.EN),
        ],
    )
    def test_it_may_be_before_and_after_the_command(
        self, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: Language
    ) -> None:
        code, _, err = run(capsys, *arguments)
        assert code == ExitCode.USAGE
        assert err.startswith("错误" if expected is Language.ZH else "error")

    @pytest.mark.parametrize("language", Language)
    def test_it_beats_the_locale(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, language: Language
    ) -> None:
        monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8" if language is Language.EN else "en_US.UTF-8")
        err = run(capsys, "--lang", language.value, "nonsense")[2]
        assert has_chinese(err) is (language is Language.ZH)

    @pytest.mark.parametrize(
        ("variables", "expected"),
        [
            ({}, Language.EN),
            ({"LANG": "zh_CN.UTF-8"}, Language.ZH),
            ({"LANG": "zh_TW"}, Language.ZH),
            ({"LANG": "ZH"}, Language.ZH),
            ({"LANG": "en_US.UTF-8"}, Language.EN),
            ({"LANG": "C"}, Language.EN),
            ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, Language.EN),
            ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, Language.ZH),
            ({"LC_ALL": "zh_CN.UTF-8", "LC_MESSAGES": "C", "LANG": "C"}, Language.ZH),
            ({"LC_ALL": "", "LANG": "zh_CN.UTF-8"}, Language.ZH),
            ({"LANG": "fr_FR.UTF-8"}, Language.EN),
        ],
    )
    def test_the_locale_is_read_in_the_order_of_posix(
        self, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: Language
    ) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert language_from_environment() is expected

    @pytest.mark.parametrize(
        "arguments", [("lint", "--", "--lang", "zh"), ("--lang", "fr"), ("--lang",), ("zh",), ("--json", "zh")]
    )
    def test_only_a_real_option_sets_it(self, arguments: tuple[str, ...]) -> None:
        assert language_from_arguments(arguments, Language.EN) is Language.EN


class TestExitCodes:
    @pytest.fixture
    def ends(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., object]:
        """Return how ``ms-tune dryrun`` ends if its function returns or raises this."""

        def end(made: ExitCode | BaseException, *arguments: str) -> tuple[int, str, str]:
            def act(*_: object) -> ExitCode:
                if isinstance(made, BaseException):
                    raise made
                return made

            module = ModuleType("fake")
            module.build_parser = dryrun_command.build_parser  # type: ignore[attr-defined]
            module.run = act  # type: ignore[attr-defined]
            monkeypatch.setattr(main_module, "import_module", lambda _: module)
            return run(capsys, "dryrun", *arguments)

        return end

    @pytest.mark.parametrize("code", [ExitCode.OK, ExitCode.FINDINGS, ExitCode.USAGE])
    def test_what_the_command_returns_is_the_exit_code(self, ends: Callable[..., object], code: ExitCode) -> None:
        assert ends(code) == (code, "", "")

    def test_they_are_0_1_2_3(self) -> None:
        assert [ExitCode.OK, ExitCode.FINDINGS, ExitCode.USAGE, ExitCode.INTERNAL] == [0, 1, 2, 3]

    @pytest.mark.parametrize(
        ("error", "code", "outcome"),
        [
            *(
                (
                    kind(msg("cli.interrupted"), msg("cli.usage.hint", program="x")),
                    2,
                    "error: interrupted\n  hint: see 'x --help'\n",
                )
                for kind in (UsageError, RunError, StandInBuildError)
            ),
            (
                ConfigError(msg("cli.interrupted"), path="a.yaml", line=3, column=7),
                2,
                "a.yaml:3:7: error: interrupted\n",
            ),
            (
                PermissionError(errno.EACCES, "Permission denied", "locked/a.yaml"),
                2,
                "error: locked/a.yaml: permission denied\n",
            ),
            (KeyboardInterrupt(), 130, "interrupted\n"),
            (KeyboardInterrupt(15), 143, "interrupted\n"),  # SIGTERM, as a watched program's signals are raised
        ],
    )
    def test_what_is_no_defect_is_reported_without_a_traceback(
        self, ends: Callable[..., object], error: BaseException, code: int, outcome: str
    ) -> None:
        assert ends(error) == (code, "", outcome)

    def test_ctrl_c_in_chinese(self, ends: Callable[..., object]) -> None:
        assert ends(KeyboardInterrupt(), "--lang", "zh") == (130, "", "已中断\n")

    @pytest.mark.parametrize("error", [ZeroDivisionError("division by zero"), OSError(errno.EBADF, "Bad descriptor")])
    @pytest.mark.parametrize(("language", "words"), [("zh", "ms-tune 自身出错"), ("en", "ms-tune itself failed")])
    def test_a_defect_of_ms_tune_is_3_and_says_so(
        self, ends: Callable[..., tuple[int, str, str]], error: Exception, language: str, words: str
    ) -> None:
        code, out, err = ends(error, "--lang", language)
        assert (code, out) == (3, "")
        assert "Traceback (most recent call last):" in err
        assert f"{type(error).__name__}: {error}" in err
        assert words in err.splitlines()[-1]


class TestProcess:
    def test_python_m_ms_tune_is_the_command_line(self) -> None:
        done = process("--version")
        assert (done.returncode, done.stderr) == (0, b"")
        assert re.fullmatch(rf"ms-tune {__version__} \(Python 3\.\d+\.\d+.*\)\n", done.stdout.decode())

    @pytest.mark.drawn(2)
    @pytest.mark.parametrize("environment", [{}, {"PYTHONUNBUFFERED": "1"}])
    @pytest.mark.parametrize(
        ("arguments", "codes"),
        [
            (("--help",), {0}),
            (("--version",), {0}),
            (("dryrun", "--check"), {0, 2}),  # 2: without MindSpore
            (("lint", "examples/out_of_memory.yaml", "--fail-on", "info"), {ExitCode.FINDINGS}),
        ],
    )
    def test_a_reader_that_went_away_is_no_failure(
        self, arguments: tuple[str, ...], codes: set[int], environment: dict[str, str]
    ) -> None:
        # `ms-tune lint ... | head -1`: the pipe has no reader any more when ms-tune writes.
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = process(*arguments, stdout=writer, env=environment)
        finally:
            os.close(writer)
        assert done.stderr == b""
        assert done.returncode in codes

    @pytest.mark.slow
    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
    @pytest.mark.parametrize("arguments", [("--help",), ("rule", "--all")])
    def test_a_full_disk_is_reported_without_a_traceback(self, arguments: tuple[str, ...]) -> None:
        with Path("/dev/full").open("wb") as full:
            done = process(*arguments, stdout=full.fileno())
        assert (done.returncode, done.stderr) == (
            2,
            b"error: cannot write to standard output: no space left on the disk\n",
        )

    def test_without_a_standard_output_it_says_so(self) -> None:
        done = subprocess.run(
            ["sh", "-c", '"$0" -m ms_tune --version >&-', sys.executable],
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr == b"error: standard output is closed: the result cannot be written\n"

    @pytest.mark.drawn(2)
    @pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "gbk"])
    def test_chinese_on_a_terminal_of_any_encoding_is_no_failure(self, encoding: str) -> None:
        done = process("--lang", "zh", "--help", env={"PYTHONIOENCODING": encoding})
        assert (done.returncode, done.stderr) == (0, b"")
        if encoding in ("utf-8", "gbk"):
            assert "示例：" in done.stdout.decode(encoding)

    @pytest.mark.slow
    def test_importing_the_command_line_imports_nothing_heavy(self) -> None:
        code = (
            "import sys\n"
            "from importlib import import_module\n"
            "from ms_tune.cli import COMMANDS, main\n"
            "for module in COMMANDS.values():\n"
            "    import_module(f'ms_tune.cli.{module}')\n"
            "print(*{'jsonschema', 'numpy', 'polars', 'scipy', 'mindspore'} & set(sys.modules))"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == ""


RED = b"\033[1;31merror\033[0m: "


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("terminal", "environment", "begins"),
    [
        (True, {}, RED),
        (True, {"NO_COLOR": "1"}, b"error: "),
        (True, {"NO_COLOR": ""}, RED),  # counts as unset
        (True, {"TERM": "dumb"}, b"error: "),
        (False, {}, b"error: "),
        (False, {"FORCE_COLOR": "1"}, RED),
        (False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, b"error: "),
    ],
)
def test_colours_are_for_terminals(terminal: bool, environment: dict[str, str], begins: bytes) -> None:  # noqa: FBT001 - a column
    ours, theirs = pty.openpty()  # replaces a terminal
    try:
        done = process("nonsense", stderr=theirs if terminal else subprocess.PIPE, env={"TERM": "xterm", **environment})
        reported = os.read(ours, 65536) if terminal else done.stderr
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert reported.startswith(begins)
    assert (b"\033" in reported) is (begins == RED)


@pytest.mark.parametrize("line", ["lint .", "rule MST402"])
def test_a_working_folder_that_was_deleted(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    settings_for.cache_clear()
    code, _, error = run(capsys, *line.split())
    assert (code, error) == (ExitCode.USAGE, "error: the working folder was deleted\n")


class TestNumbersOfThousandsOfDigits:
    """Python refuses numbers of more than 4,300 digits with a ValueError."""

    DIGITS = "9" * 5000
    PYNATIVE = (
        "parallelism: {data_parallel_shard: 8}\ntraining: {steps: 10}\nlr_scheduler: {type: ConstantWarmUpLR}\n"
        "train_dataset: {dataloader: {type: HFDataLoader}}\nmodel: {model_type: deepseek_v3, num_hidden_layers: 6}\n"
    )
    SELECT = "recompute: {mode: select, select_module: {mlp.linear_fc1: ['0-%s']}}\n"
    SCRIPT = (
        "export MS_ALLOC_CONF=vmm_align_size:%sMB\nX=$((%s + 1))\n"
        "torchrun --nproc_per_node $X pretrain_gpt.py --num-layers %s --num-layer-list %s,1\n"
    )

    @pytest.mark.parametrize(
        "options",
        [
            *(("lint", "--jobs", "%s"), ("lint", "--framework-version", "2.%s"), ("dryrun", "--ranks", "%s")),
            *(("check", "--device-memory", "%sGB"), ("dryrun", "--set", "training.steps=%s")),
            *(("dryrun", "--set", "training.²=1"), ("dryrun", "--stages", "%s"), ("dryrun", "--timeout", "%s")),
        ],
        ids=" ".join,
    )
    def test_an_option(self, options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        config = tmp_path / "train.yaml"
        config.write_text(self.PYNATIVE, encoding="utf-8")
        code, _, error = run(capsys, *(option.replace("%s", self.DIGITS) for option in options), str(config))
        assert code == ExitCode.USAGE
        assert "convert" not in error  # argparse's name of the function that reads the number

    @pytest.mark.parametrize("command", ["lint", "normalize-recompute", "check"])
    @pytest.mark.parametrize("name", ["train.yaml", "train.sh"])
    def test_a_file(self, command: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / name
        text = self.SCRIPT if name.endswith(".sh") else self.PYNATIVE + self.SELECT
        file.write_text(text.replace("%s", self.DIGITS), encoding="utf-8")
        code, out, error = run(capsys, command, str(file))
        assert code in (ExitCode.FINDINGS, ExitCode.USAGE), error
        assert "itself failed" not in out + error


@pytest.mark.parametrize(
    "line",
    [
        "check examples/out_of_memory.yaml",
        "normalize-recompute examples/out_of_memory.yaml",
        "migrate yaml_templates/mindformers/qwen3_32b.yaml",
        "metrics examples/slow_run/after.log",
        "profile examples/slow_run/profile",
    ],
)
def test_quiet_is_one_line_and_verbose_is_more(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    shown = {}
    for option in ("", "-q", "-v"):
        main([*line.split(), *option.split(), "--lang", "en"])
        shown[option] = len(capsys.readouterr().out.splitlines())
    assert 1 == shown["-q"] < shown[""] < shown["-v"]


@pytest.mark.parametrize("line", ["rule MST402", "init --list", "schema mindformers", "fit --explain a.yaml"])
def test_quiet_is_refused_where_there_is_no_verdict(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*line.split(), "--quiet", "--lang", "en"]) == ExitCode.USAGE
    assert "--quiet" in capsys.readouterr().err
