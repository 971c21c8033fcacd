"""Answer the questions of the page with the functions of ms-tune, in Pyodide; tests run it in CPython.

A question is a JSON object. Its ``ask`` is the name of a function below; the rest is the text, its file name, the language and the
settings, which are options of the commands. The answer has all of the command's ``--json``, and texts for people.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any

import ms_tune
from ms_tune.encode import as_json, json_text
from ms_tune.enums import Dialect
from ms_tune.errors import trace_of
from ms_tune.facts.query import data_folder, load, release_of, served
from ms_tune.job.script import ScriptJob
from ms_tune.lint.rules import RuleEntry, all_rules, readable
from ms_tune.normalize.script import normalize_script
from ms_tune.report.check import overviews_json, write_overviews
from ms_tune.report.console import Console
from ms_tune.report.lint_formats import failure_json, lint_json
from ms_tune.report.normalize_text import plan_json, programs_json
from ms_tune.source import SCRIPTS
from ms_tune.source.yaml import MAX_BYTES
from ms_tune.text import Language
from ms_tune.verdict.limit import device_of

_EXAMPLES = Path(__file__).resolve().parent / "examples"
_NAME = re.compile(r"[\w.+-]{1,100}")
_ASSIGNMENT = re.compile(r"\s*(?:#.*|(?:export\s+)?\w+=.*)?")
_MEANT_AS_CODE = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
_WIDE = "10000"  # columns: the page wraps lines itself

_rules: dict[str, RuleEntry] = {}


def answer(question: str) -> str:
    """Return the answer to a question, both as JSON; errors of the text are answers, too."""
    asked = json.loads(question)
    language = Language(asked["language"])
    try:
        found = _QUESTIONS[asked["ask"]](asked, Console(language))
    except ms_tune.MsTuneError as error:
        found = {"error": failure_json(error)}
    except Exception as error:  # noqa: BLE001 - the page shows a defect as one, and goes on
        found = {"defect": trace_of(error)}
    return json_text(as_json(found, language))


def describe_page(_asked: Mapping[str, Any], _console: Console) -> dict[str, object]:
    """Return the choices of the page: chips, releases, and templates as examples."""
    frameworks: dict[str, list[str]] = {}
    for dialect in Dialect:
        known = frameworks.setdefault(load("releases")[dialect.value]["framework"], [])
        known += [one for one in served(dialect) if one not in known]
    templates = sorted(data_folder("yaml_templates").rglob("*.yaml"))
    return {
        "version": ms_tune.__version__,
        "chips": list(load("devices")["chips"]),
        "frameworks": frameworks,
        "templates": {file.name: file.read_text("utf-8") for file in templates},
        "examples": {file.name: file.read_text("utf-8") for file in sorted(_EXAMPLES.iterdir())},
        "most_bytes": MAX_BYTES,
    }


def lint(asked: Mapping[str, Any], _console: Console) -> dict[str, object]:
    """Return the findings as ``ms-tune lint --json``, each with its help."""
    path = _written(asked)
    report = ms_tune.lint_files(path, request=_lint_request(asked))
    found: dict[str, Any] = lint_json(report)
    found["findings"] = [
        {**each, "help": one.help, "unfixable": one.unfixable}
        for each, one in zip(found["findings"], report.findings, strict=True)
    ]
    found["notes"] = [note for file in report.files for note in file.notes]
    found["skipped"] = [one.reason for one in report.skipped]
    found["name"] = path.name
    return found


def fix(asked: Mapping[str, Any], _console: Console) -> dict[str, object]:
    """Return the text with the fixes, and the changes as a diff."""
    request = _lint_request(asked)._replace(fix="unsafe" if asked.get("unsafe") else "safe")
    report = ms_tune.lint_files(_written(asked), request=request)
    for file in report.files:
        if file.original is not None:
            old, new = (text.splitlines(keepends=True) for text in (file.original, file.text))
            lines = [line.rstrip("\r\n") for line in unified_diff(old, new, file.path.name, file.path.name)]
            return {"text": file.text, "diff": lines, "count": file.fixed, "titles": file.fixes}
    return {"text": None, "diff": [], "count": 0, "titles": []}


def check(asked: Mapping[str, Any], console: Console) -> dict[str, object]:
    """Return the overview as ``ms-tune check --json``, and the lines of its screen."""
    job = ms_tune.DryrunRequest(devices=asked.get("devices") or None, chip=_chip_of(asked), fewest_layers=True)
    request = ms_tune.OverviewRequest(job=job, framework_version=_release(asked))
    overview = ms_tune.check_job(_written(asked), request)
    with _captured() as screen:
        write_overviews([overview], console)
    found: Any = overviews_json([overview], (), console)
    return {**found["files"][0], "screen": screen.getvalue().splitlines()}


def plan(asked: Mapping[str, Any], _console: Console) -> dict[str, object]:
    """Return the recomputation and swap of each layer, as ``ms-tune normalize-recompute --json``; of a script per program."""
    path = _written(asked)
    if path.suffix in SCRIPTS:
        return programs_json(normalize_script(ScriptJob(path, version=_release(asked)), supposing=True))
    found = ms_tune.normalize_recompute(ms_tune.load_job(path, framework_version=_release(asked)))
    return {"jobs": [{"program": None, "plan": plan_json(found, found.layers)}]}


def explain(asked: Mapping[str, Any], _console: Console) -> dict[str, object]:
    """Return why a check exists and how to fix its findings, as ``ms-tune rule NAME`` does."""
    if not _rules:
        _rules.update({one.name: one for one in all_rules()})
    rule = _rules[asked["rule"]]
    texts = {name: readable(getattr(rule, name)) for name in ("title", "why", "help")}
    return {**texts, **{name: getattr(rule, name) for name in ("id", "name", "severity", "bad", "good")}}


_QUESTIONS: dict[str, Callable[[Mapping[str, Any], Console], dict[str, object]]] = {
    one.__name__: one for one in (describe_page, lint, fix, check, plan, explain)
}


def _written(asked: Mapping[str, Any]) -> Path:
    """Write the text into the working folder, alone, under a name that decides how it is read."""
    for other in Path().iterdir():
        if other.is_file():
            other.unlink()
    name = asked.get("name") or ""
    path = Path(name if _NAME.fullmatch(name) and name.strip(".") else _guessed_name(asked["text"]))
    path.write_bytes(asked["text"].encode("utf-8", "surrogatepass"))
    return path


def _guessed_name(text: str) -> str:
    """Return a file name for a pasted text: of a script, of Python code, or else of a config."""
    lines = text.split("\n", 2000)
    if text.startswith("#!") or any(re.match(r"\s*(?:torchrun|msrun|bash|mpirun|python3?)\s", line) for line in lines):
        return "run.sh"
    if text.strip() and all(map(_ASSIGNMENT.fullmatch, lines)):
        return "run.sh"
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        if any(isinstance(one, _MEANT_AS_CODE) for one in ast.parse(text).body):
            return "train.py"
    return "train.yaml"


def _lint_request(asked: Mapping[str, Any]) -> ms_tune.LintRequest:
    return ms_tune.LintRequest(framework_version=_release(asked))


def _release(asked: Mapping[str, Any]) -> str | None:
    release = asked.get("release") or None
    if release is not None:
        release_of(release)
    return release


def _chip_of(asked: Mapping[str, Any]) -> str | None:
    chip = asked.get("chip") or None
    if chip is not None:
        device_of(chip)
    return chip


@contextlib.contextmanager
def _captured() -> Iterator[io.StringIO]:
    os.environ["COLUMNS"] = _WIDE
    with contextlib.redirect_stdout(io.StringIO()) as output:
        yield output
