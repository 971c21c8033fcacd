"""Test ``ms-tune server`` through a client of its own, compared with ``ms-tune lint`` and ``check`` on the same text."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ms_tune.cli.main import main
from ms_tune.facts.query import data_folder
from ms_tune.workflows.editor import section_above
from tests.lsp import Editor

pytest.importorskip("pygls")

TEMPLATE = (data_folder("yaml_templates") / "mindformers/qwen3_32b.yaml").read_text(encoding="utf-8")
SCRIPT = """CONFIG=configs/train.yaml
msrun --worker_num 8 run_mindformer.py --config $CONFIG
"""
PIECES = (
    "\t",
    ": ",
    "[",
    "{",
    "- ",
    "'",
    "#",
    "键: 值\n",
    "😀",
    "use_paralel: True\n",
    "\r\n",
    "\u2028",
    "\f",
    "  seed: 0\n",
    "&a",
    "*a",
)
UNITS = {"utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4), "utf-8": ("utf-8", 1)}


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    with Editor(tmp_path_factory.mktemp("project")) as started:
        yield started


def lint(
    file: Path, text: str, capsys: pytest.CaptureFixture[str], encoding: str = "utf-16"
) -> list[tuple[object, ...]]:
    """Return what ``ms-tune lint`` reports about a text on the disk: check, place and message, in positions of LSP."""
    file.write_bytes(text.encode())
    main(["lint", str(file), "--json", "--skip-unknown", "--lang", "en"])
    report = json.loads(capsys.readouterr().out)
    lines = re.split("\r\n|\r|\n", text)
    codec, size = UNITS[encoding]

    def place(line: int, column: int) -> tuple[int, int]:
        return line - 1, len(lines[line - 1][: column - 1].encode(codec)) // size

    found: list[tuple[object, ...]] = [
        (
            one["id"],
            *place(one["line"], one["column"]),
            *place(one["end_line"], one["end_column"]),
            one["message"],
        )
        for one in report["findings"]
    ]
    return [*found, *((one["message"],) for one in report["failed"])]


def shown(diagnostics: list[dict[str, Any]], expected: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return diagnostics in the form of :func:`lint`; of texts only as much as is expected."""
    found: list[tuple[object, ...]] = []
    for one, wanted in zip(diagnostics, expected, strict=False):
        text = str(wanted[-1])
        message = text if one["message"].startswith(text) else one["message"]
        start, end = one["range"]["start"], one["range"]["end"]
        place = (start["line"], start["character"], end["line"], end["character"])
        found.append((one["code"], *place, message) if "code" in one else (message,))
    return found + [(one["message"],) for one in diagnostics[len(expected) :]]


@pytest.mark.slow
class TestDiagnostics:
    def test_random_edits_are_answered_like_lint(
        self, editor: Editor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source, uri, text = random.Random(7), (tmp_path / "unsaved.yaml").as_uri(), TEMPLATE  # noqa: S311
        reported = 0
        for number in range(200):
            at = source.randrange(len(text) + 1)
            piece = "" if source.random() < 0.3 else source.choice(PIECES)
            text = text[:at] + piece + text[at + source.choice((0, 0, 1, 3, 30)) :]
            expected = lint(tmp_path / "saved.yaml", text, capsys)
            assert shown(editor.show(uri, text, save=number % 20 > 0), expected) == expected, (number, text)
            reported += len(expected)
            if number % 10 == 9:
                text = TEMPLATE
        assert reported > 150
        assert [one.name for one in tmp_path.iterdir()] == ["saved.yaml"]

    @pytest.mark.parametrize("encoding", UNITS)
    def test_columns_count_in_the_agreed_units(
        self, encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = TEMPLATE.replace("use_parallel: True", "'键😀': {a: '😀é', use_paralel: 1, use_paralel: 2}\u2028", 1)
        expected = lint(tmp_path / "saved.yaml", text, capsys, encoding)
        with Editor(tmp_path, encodings=(encoding,)) as editor:
            assert editor.capabilities["positionEncoding"] == encoding
            assert shown(editor.show((tmp_path / "a.yaml").as_uri(), text), expected) == expected
        assert len({one[2] for one in expected}) > 1

    def test_a_file_of_other_programs_has_none(self, editor: Editor, tmp_path: Path) -> None:
        for number, text in enumerate(("services: {db: {image: x}}\n", "services: [\n", "", "\ud83d: 1\n")):
            assert editor.show((tmp_path / f"{number}.yaml").as_uri(), text) == []

    def test_settings_of_the_folder_apply_and_are_read_again(self, tmp_path: Path) -> None:
        text, uri = TEMPLATE.replace("use_parallel", "use_paralel", 1), (tmp_path / "a.yaml").as_uri()
        with Editor(tmp_path) as editor:
            assert [one["code"] for one in editor.show(uri, text)] == ["MST201"]
            (tmp_path / "ms-tune.toml").write_text('ignore = ["MST201"]\n', encoding="utf-8")
            assert editor.show(uri, f"{text}\n", save=True) == []


@pytest.mark.slow
class TestFixes:
    def test_the_safe_fixes_are_those_of_lint(
        self, editor: Editor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = TEMPLATE.replace("use_parallel: True", "use_paralel: True", 1)
        text = text.replace("recompute_config:", "recompute_config: # 😀 # ms-tune: ignore[MST101] old", 1)
        file, uri = tmp_path / "a.yaml", (tmp_path / "a.yaml").as_uri()
        editor.show(uri, text)
        whole = {"start": {"line": 0, "character": 0}, "end": {"line": 999, "character": 0}}
        ask = {"textDocument": {"uri": uri}, "range": whole}
        actions = editor.ask("textDocument/codeAction", **ask, context={"diagnostics": []})
        assert {one["isPreferred"] for one in actions if one["kind"] == "quickfix"} == {False, True}
        renamed = next(one for one in actions if "use_paralel" in one["title"])
        assert apply(text, renamed["edit"]["changes"][uri]) == text.replace("use_paralel:", "use_parallel:")
        every = editor.ask("textDocument/codeAction", **ask, context={"diagnostics": [], "only": ["source.fixAll"]})
        file.write_text(text, encoding="utf-8")
        main(["lint", "--fix", str(file)])
        capsys.readouterr()
        assert (
            [apply(text, one["edit"]["changes"][uri]) for one in every] == [file.read_text(encoding="utf-8")] != [text]
        )


def apply(text: str, edits: list[dict[str, Any]]) -> str:
    """Return a text with edits of LSP in UTF-16."""
    lines = text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines) + 1)]

    def offset(place: dict[str, int]) -> int:
        before = (
            lines[place["line"]].encode("utf-16-le")[: 2 * place["character"]] if place["line"] < len(lines) else b""
        )
        return starts[place["line"]] + len(before.decode("utf-16-le"))

    for one in sorted(edits, key=lambda edit: -offset(edit["range"]["start"])):
        text = text[: offset(one["range"]["start"])] + one["newText"] + text[offset(one["range"]["end"]) :]
    return text


@pytest.mark.slow
class TestKeys:
    def at(self, text: str) -> tuple[str, int, int]:
        """Return a text without its cursor ``|``, and the cursor's line and column."""
        before, after = text.split("|")
        return before + after, before.count("\n"), len(before) - before.rfind("\n") - 1

    def test_hover_shows_a_key_and_the_checks_that_report_it(self, editor: Editor, tmp_path: Path) -> None:
        uri = (tmp_path / "h.yaml").as_uri()
        text, *place = self.at(TEMPLATE.replace("  recompute:", "  recom|pute:", 1))
        editor.show(uri, text)
        value = editor.at("hover", uri, *place)["contents"]["value"]
        assert "`recompute_config.recompute`" in value
        assert "`False`" in value
        text, *place = self.at(TEMPLATE.replace("use_parallel", "use_p|aralel", 1))
        editor.show(uri, text)
        assert "MST201" in editor.at("hover", uri, *place)["contents"]["value"]
        assert editor.at("hover", uri, 0, 0) is None

    @pytest.mark.parametrize(
        ("written", "expected", "missing"),
        [
            ("recompute_config:\n  mp_|\n  recompute: True\n", "mp_comm_recompute", "recompute"),
            ("recompute_config:\n  recompute: |\n", "True", "recompute"),
            ("trainer:\n  type: C|\n", "CausalLanguageModelingTrainer", "type"),
            ("optimizer:\n  type: AdamW\n  be|\n", "betas", "type"),
            ("callbacks:\n  - type: CheckpointMonitor\n    |\n", "directory", "type"),
            ("# se|\n", None, "seed"),
        ],
    )
    def test_completion_knows_the_section_of_a_broken_text(
        self, written: str, expected: str | None, missing: str, editor: Editor, tmp_path: Path
    ) -> None:
        uri = (tmp_path / "c.yaml").as_uri()
        editor.show(uri, TEMPLATE)
        text, *place = self.at(f"seed: 1\n{written}")
        editor.show(uri, text)
        words = [one["label"] for one in editor.at("completion", uri, *place)]
        assert expected in words if expected is not None else words == []
        assert missing not in words

    def test_arguments_of_a_launch_script(self, editor: Editor, tmp_path: Path) -> None:
        uri = (tmp_path / "run.sh").as_uri()
        text, *place = self.at("torchrun pretrain_gpt.py --num-layers 4 --recompute-gra|nularity full\n")
        editor.show(uri, text)
        value = editor.at("hover", uri, *place)["contents"]["value"]
        assert "`selective`" in value
        assert "--recompute-method" in [one["label"] for one in editor.at("completion", uri, *place)]


@pytest.mark.slow
class TestPlaces:
    @pytest.mark.parametrize("cursor", ["conf|igs/train.yaml\n", "--config $CON|FIG"])
    def test_the_yaml_of_a_script_opens(self, cursor: str, editor: Editor, tmp_path: Path) -> None:
        (tmp_path / "configs").mkdir()
        (tmp_path / "configs/train.yaml").write_text(TEMPLATE, encoding="utf-8")
        uri = (tmp_path / "run.sh").as_uri()
        text, *place = TestKeys().at(SCRIPT.replace(cursor.replace("|", ""), cursor))
        editor.show(uri, text)
        assert editor.at("definition", uri, *place)["uri"] == (tmp_path / "configs/train.yaml").as_uri()
        assert editor.at("definition", uri, 0, 0) is None

    def test_lenses_show_the_sentence_of_check_and_the_layers(
        self, editor: Editor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "a.yaml"
        editor.show(file.as_uri(), TEMPLATE)
        first, second = editor.ask("textDocument/codeLens", textDocument={"uri": file.as_uri()})
        file.write_text(TEMPLATE, encoding="utf-8")
        main(["check", str(file), "-q", "--lang", "en"])
        assert first["command"]["title"].removeprefix("ms-tune: ") in capsys.readouterr().out
        # 64 layers on 4 stages in two chunks of 8; `recompute: [[8, 6, 4, 2], [8, 6, 4, 2]]` of the template
        assert second["command"]["title"].endswith("64 layers; recomputed per stage: 16/16 12/16 8/16 4/16")
        assert TEMPLATE.splitlines()[second["range"]["start"]["line"]] == "recompute_config:"

    def test_nothing_listens(self, editor: Editor) -> None:
        links = [str(one.readlink()) for one in Path(f"/proc/{editor.process.pid}/fd").iterdir() if one.is_symlink()]
        sockets = {one.partition("[")[2].rstrip("]") for one in links if one.startswith("socket:")}
        tables = [Path(f"/proc/{editor.process.pid}/net/{name}").read_text("ascii") for name in ("tcp", "tcp6", "udp")]
        assert sockets.isdisjoint(line.split()[9] for table in tables for line in table.splitlines()[1:])


@pytest.mark.parametrize(
    ("above", "lead", "section"),
    [
        ("a:\n  b:\n", "    ", ("a", "b")),
        ("a:\n  b:\n    c: 1\n", "  ", ("a",)),
        ("a:\n- b: 1\n", "  ", ("a", "*")),
        ("a:\n- b: 1\n- c: 1\n", "- ", ("a", "*")),
        ("a:\n  - b: 1\n    c:\n", "      ", ("a", "*", "c")),
        ("a:\n  - b: {\n", "    ", ("a", "*")),
        ("a: 1\nb:\n", "", ()),
    ],
)
def test_sections_are_found_by_indentation(above: str, lead: str, section: tuple[str, ...]) -> None:
    assert section_above(above, lead) == section
