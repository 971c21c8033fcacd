"""Write ``ms_tune/facts/data/megatron.json``: the arguments of MindSpeed-LLM's parsers, release by release.

Run by hand, with ``MS_TUNE_MEGATRON_SOURCES`` naming a folder that has ``RELEASE/Megatron-LM``, ``RELEASE/MindSpeed`` and
``RELEASE/MindSpeed-LLM`` for every release of :data:`RELEASES`: ``python -m tests.oracle.make_megatron``.

The sources are parsed, not run: every ``add_argument`` that may build the parser of a training program. Which of two
definitions of one argument applies depends on the enabled features, so all are kept.
"""

from __future__ import annotations

import ast
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ms_tune.facts import query
from tests.oracle.megatron_cases import ALWAYS
from tests.oracle.megatron_layers import answers, parser_names

# MindSpeed-LLM's releases, each with the tags of the versions that it is documented for.
RELEASES = {
    "2.0": {"MindSpeed-LLM": "v2.0.0", "MindSpeed": "v2.0.0_core_r0.8.0", "Megatron-LM": "core_r0.8.0"},
    "2.1": {"MindSpeed-LLM": "v2.1.0", "MindSpeed": "v2.1.0_core_r0.8.0", "Megatron-LM": "core_r0.8.0"},
    "2.2": {"MindSpeed-LLM": "v2.2.0", "MindSpeed": "v2.2.0_core_r0.12.1", "Megatron-LM": "core_v0.12.1"},
    "2.3": {"MindSpeed-LLM": "v2.3.0", "MindSpeed": "v2.3.0_core_r0.12.1", "Megatron-LM": "core_v0.12.1"},
    "26.0": {"MindSpeed-LLM": "v26.0.0", "MindSpeed": "v26.0.0_core_r0.12.1", "Megatron-LM": "core_v0.12.1"},
    "26.1": {"MindSpeed-LLM": "v26.1.0", "MindSpeed": "26.1.0_core_r0.12.1", "Megatron-LM": "core_v0.12.1"},
}
# Its programs whose parser this is.
PROGRAMS = [
    "pretrain_gpt.py",
    "posttrain_gpt.py",
    "inference.py",
    "evaluation.py",
    "pretrain_mamba.py",
    "pretrain_deepseek4.py",
]
SOURCES = "MS_TUNE_MEGATRON_SOURCES"
# Code that builds the parser, by repository; programs with their own parsers are left out.
_PLACES = {
    "Megatron-LM": ("megatron/training/arguments.py",),
    "MindSpeed": ("mindspeed/arguments.py", "mindspeed/features_manager", "mindspeed/mindspore"),
    "MindSpeed-LLM": ("mindspeed_llm", *PROGRAMS),
}
_OWN_PARSERS = (
    "checkpoint",
    "convert_ckpt",
    "rejection_sampling",
    "preprocess",
    "fsdp2",
    "data_handler",
    "scripts",
    "tools",
)
_UNREAD = object()


def make_facts(sources: Path) -> dict[str, Any]:
    """Return the content of the data file."""
    arguments: dict[str, list[dict[str, Any]]] = {}
    for release in RELEASES:
        for name, row in _definitions(sources / release):
            rows = arguments.setdefault(name, [])
            same = next((one for one in rows if {**one, "releases": []} == {**row, "releases": []}), None)
            if same is None:
                rows.append({**row, "releases": [release]})
            elif release not in same["releases"]:
                same["releases"].append(release)
    return {
        "programs": PROGRAMS,
        "releases": RELEASES,
        "arguments": {name: arguments[name] for name in sorted(arguments)},
        "unregistered": _unregistered(sources, arguments),
    }


def _unregistered(sources: Path, arguments: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return arguments in the sources that the parser of ``pretrain_gpt.py`` does not know, or only with MindSpore.

    Some are removed from the arguments before parsing, others are registered where they are needed.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for release in _RUN:
        known = {
            one: parser_names(sources / release, [*ALWAYS, "--num-layers", "2", "--ai-framework", one])
            for one in ("pytorch", "mindspore")
        }
        missing = [
            (name, next(row for row in rows if release in row["releases"]))
            for name, rows in arguments.items()
            if any(release in row["releases"] for row in rows) and name not in known["pytorch"]
        ]
        cases = [[*ALWAYS, "--num-layers", "2", name, *([] if row.get("action") else ["1"])] for name, row in missing]
        for (name, _), (answer, *_) in zip(missing, answers(sources / release, cases), strict=True):
            if f"unrecognized arguments: {name}" in answer:
                found.setdefault((name, "mindspore" if name in known["mindspore"] else ""), []).append(release)
    return [
        {"name": name, **({"unless": unless} if unless else {}), "releases": releases}
        for (name, unless), releases in sorted(found.items())
    ]


# Releases whose code is run by the oracle of layers.
_RUN = ("2.2", "2.3", "26.0", "26.1")


def text_of(part: str, version: str, file: str) -> str | None:
    """Return a file of a repository at a version such as ``0.12.1``; None if the sources are not available."""
    if SOURCES not in os.environ:
        return None
    for release, tags in RELEASES.items():
        path = Path(os.environ[SOURCES], release, part, file)
        if version in tags[part].replace("_", " v").replace("r0", "0") and path.is_file():
            return path.read_text("utf-8")
    return None


def _definitions(tree: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    further: dict[str, list[Any]] = {}
    found = []
    for part, places in _PLACES.items():
        for file in _files(tree / part, places):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # their backslashes
                module = ast.parse(file.read_text("utf-8"))
            for call in (node for node in ast.walk(module) if isinstance(node, ast.Call)):
                called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
                if called == "add_argument":
                    found += [(name, row) for name, row in _rows(call, part)]
                elif called in ("add_parser_argument_choices_value", "_add_choice"):
                    *_, name, value = map(_value, [*call.args, *(word.value for word in call.keywords)])
                    further.setdefault(str(name), []).append(value)
    for name, row in found:
        if "choices" in row:
            more = [one for one in further.get(name, ()) if one not in row["choices"]]
            row["choices"] = [*row["choices"], *dict.fromkeys(more)]
        yield name, row


def _files(tree: Path, places: tuple[str, ...]) -> Iterator[Path]:
    for place in places:
        path = tree / place
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.is_file() else []
        for file in files:
            name = str(file.relative_to(tree))
            if "features_manager" in name or not any(word in name for word in _OWN_PARSERS):
                yield file


def _rows(call: ast.Call, part: str) -> Iterator[tuple[str, dict[str, Any]]]:
    names = [str(_value(one)) for one in call.args if _value(one) is not _UNREAD]
    names = [name for name in names if name.startswith("--")]
    given = {word.arg: word.value for word in call.keywords if word.arg}
    row: dict[str, Any] = {"part": part}
    if "action" in given:
        row["action"] = _value(given["action"])
    if "type" in given:
        kind = given["type"]
        row["type"] = kind.id if isinstance(kind, ast.Name) and kind.id in ("int", "float", "str", "bool") else "other"
    if "nargs" in given:
        row["nargs"] = _value(given["nargs"])
    if "choices" in given:
        choices = _value(given["choices"])
        if isinstance(choices, list | tuple) and all(isinstance(one, str | int | float) for one in choices):
            row["choices"] = list(choices)
        else:
            row["unread_choices"] = True
    if "default" in given:
        default = _value(given["default"])
        row["default"] = (
            "**unread**" if default is _UNREAD else list(default) if isinstance(default, tuple) else default
        )
    if "required" in given and _value(given["required"]) is True:
        row["required"] = True
    dest = _value(given["dest"]) if "dest" in given else names[0][2:].replace("-", "_") if names else ""
    for name in names:
        yield name, {**row, "dest": dest}


def _value(node: ast.expr) -> Any:  # noqa: ANN401 - whatever the source says
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return _UNREAD
    try:
        json.dumps(value)
    except TypeError:
        return _UNREAD
    return value


def written(content: dict[str, Any]) -> str:
    """Return the data file's text: one argument per line."""
    head = json.dumps(content["releases"], indent=1).replace("\n", "\n ")
    rows = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(rows, ensure_ascii=False)}" for name, rows in content["arguments"].items()
    )
    programs = json.dumps(content["programs"])
    unregistered = ",\n".join(f"  {json.dumps(row)}" for row in content["unregistered"])
    arguments = f'"arguments": {{\n{rows}\n }},\n "unregistered": [\n{unregistered}\n ]'
    return f'{{\n "programs": {programs},\n "releases": {head},\n {arguments}\n}}\n'


if __name__ == "__main__":
    (Path(query.__file__).with_name("data") / "megatron.json").write_text(
        written(make_facts(Path(os.environ[SOURCES]))), "utf-8"
    )
