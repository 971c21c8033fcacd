"""Write the facts about frameworks in ``ms_tune/facts/data``, from the wheels of MindFormers.

``python -m tests.oracle.make_frameworks [models] ...`` writes the named files, or all of them (``keys_mindformers`` and
``keys_mindformers-pynative`` keep the texts of keys in the files, and date the keys again). To add a release, add it to
``served`` in ``releases.json``; the script does the rest, and ``git diff`` shows the changes of the release. Every fact
has a history: ``{"1.6": 3, "1.9": 4}`` is 3 from 1.6 on and 4 from 1.9 on, :data:`REMOVED` where the release no longer
knows it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ms_tune.enums import Dialect
from ms_tune.facts.query import all_at, served
from tests.oracle import make_keys, make_needed, make_taken, make_trees, wheels

_ROOT = Path(__file__).parents[2]
DATA = _ROOT / "ms_tune" / "facts" / "data"
GONE = {"gone": True}


def history(by_release: Mapping[str, Any]) -> dict[str, Any]:
    """Return the history of a fact; releases are in order, and a release without the fact has :data:`REMOVED`."""
    found: dict[str, Any] = {}
    last: object = GONE
    for release, value in by_release.items():
        if value != last or type(value) is not type(last):
            found[release] = last = value
    return found


def histories(by_release: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the history of each item of several releases' mappings."""
    names = sorted({name for values in by_release.values() for name in values})
    return {
        name: history({release: values.get(name, GONE) for release, values in by_release.items()}) for name in names
    }


def trees() -> dict[str, Any]:
    """Return the cells and operators of one layer of every model; needs MindSpore and a quarter of an hour."""
    parts, known = make_trees.trees({release: _wheel(release) for release in wheels.RELEASES})
    releases = list(wheels.RELEASES)
    return {"parts": parts} | {
        kind: {
            model: {
                variant: history({release: numbers.get(release, GONE) for release in releases})
                for variant, numbers in variants.items()
            }
            for model, variants in models.items()
        }
        for kind, models in known.items()
    }


def _wheel(release: str) -> Path:
    found = wheels.wheel(release)
    if isinstance(found, str):
        raise SystemExit(found)
    return found


def registries() -> dict[str, Any]:
    """Return the class names that the registry and the dynamic graph's builders accept; needs MindSpore and two minutes."""
    found = {release: _registries(release) for release in wheels.RELEASES}
    made: dict[str, Any] = {}
    for mode in ("static", "dynamic"):
        kinds = sorted({kind for one in found.values() for kind in one[mode]})
        made[mode] = {
            kind: histories({release: dict.fromkeys(one[mode].get(kind, ()), True) for release, one in found.items()})
            for kind in kinds
        }
    return made


def needed() -> dict[str, Any]:
    """Return the required arguments of schedules; takes a second."""
    for release in wheels.RELEASES:
        _wheel(release)
    return {"lr_schedule": histories({release: make_needed.needed(release) for release in wheels.RELEASES})}


def _registries(release: str) -> dict[str, dict[str, list[str]]]:
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(_wheel(release)) as archive:
            archive.extractall(folder)
        command = [sys.executable, str(Path(__file__).with_name("registries_child.py"))]
        environment = os.environ | {"PYTHONPATH": folder}
        done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, dict[str, list[str]]] = json.loads(done.stdout.splitlines()[-1])
    return found


def read_release(release: str) -> dict[str, Any]:
    """Return the facts of a release about models."""
    command = [sys.executable, "-m", "tests.oracle.facts_child", str(_wheel(release))]
    answer = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(answer)
    return found


def models() -> dict[str, Any]:
    """Return classes of models, their aliases and defaults."""
    found = {release: read_release(release) for release in wheels.RELEASES}

    def general(part: str) -> dict[str, Any]:
        return histories({release: one[part] for release, one in found.items()})

    classes: dict[str, dict[str, Any]] = {}
    for name in sorted({name for one in found.values() for name in one["classes"]}):
        about = {release: one["classes"].get(name) for release, one in found.items()}
        known = [one for one in about.values() if one]
        classes[name] = {
            "class": known[-1]["class"],
            "legacy": known[-1]["legacy"],
            **{
                part: history({release: one[part] if one else GONE for release, one in about.items()})
                for part in (
                    "names",
                    "architectures",
                    "modes",
                    "stages",
                    "ties",
                    "says",
                    "latent",
                    "ignored",
                    "twice",
                    "renamed",
                    "fills",
                    "derived",
                )
            },
            **{
                part: histories({release: one.get(part, {}) if one else {} for release, one in about.items()})
                for part in ("defaults", "aliases")
            },
        }
    return {
        "releases": list(found),
        "fields": general("fields"),
        "latent": general("latent"),
        "aliases": general("aliases"),
        "white": histories({release: dict.fromkeys(one["white"], True) for release, one in found.items()}),
        "experts": general("experts"),
        "classes": classes,
    }


def read_parameters() -> dict[str, Any]:
    """Return the keyword arguments of the registered classes."""
    registered = json.loads((DATA / "registries.json").read_bytes())["static"]
    found = {
        release: make_taken.arguments(
            _wheel(release), {kind: frozenset(all_at(registered[kind], release)) for kind in make_taken.KINDS}
        )
        for release in wheels.RELEASES
    }
    classes = {kind: histories({release: one[kind] for release, one in found.items()}) for kind in make_taken.KINDS}
    words = {
        release: {"": {"takes": make_taken.dataset_words(_wheel(release)), "free": True, "switches": []}}
        for release in wheels.RELEASES
    }
    return classes | {"dataset": histories(words)}


def keys(dialect: Dialect) -> dict[str, Any]:
    """Return a key table, with ``since`` and ``until`` of the keys that the wheels contain."""
    name = f"keys_{dialect.value}"
    content: dict[str, Any] = json.loads((DATA / f"{name}.json").read_bytes())
    return make_keys.dated(name, content, {release: _wheel(release) for release in served(dialect)})


def text(value: object, depth: int = 0) -> str:
    """Return JSON with one fact per line: a mapping of mappings of mappings is expanded, others are not."""
    if _spread(value, depth):
        assert isinstance(value, list)
        return "[\n  " + ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in value) + "\n ]"
    inside = isinstance(value, dict) and (depth == 0 or any(isinstance(one, dict) for one in value.values()))
    if not inside or value == GONE or _is_history(value):
        return json.dumps(value, ensure_ascii=False)
    assert isinstance(value, dict)
    indent = " " * (depth + 1)
    lines = (f"{indent}{json.dumps(key)}: {text(one, depth + 1)}" for key, one in value.items())
    return "{\n" + ",\n".join(lines) + "\n" + " " * depth + "}"


def _spread(value: object, depth: int) -> bool:
    """Return whether a list has a line for each item."""
    return isinstance(value, list) and depth == 1 and len(value) > 10


def _is_history(value: object) -> bool:
    return isinstance(value, dict) and all(key[:1].isdigit() for key in value)


MAKERS: dict[str, Callable[[], dict[str, Any]]] = {
    "models": models,
    "registries": registries,
    "needed": needed,
    "taken": read_parameters,
    "trees": trees,
    "keys_mindformers": partial(keys, Dialect.MINDFORMERS),
    "keys_mindformers-pynative": partial(keys, Dialect.MINDFORMERS_PYNATIVE),
}


def main(names: Iterable[str]) -> None:
    """Write the files of these names, or all."""
    DATA.mkdir(exist_ok=True)
    for name in names or MAKERS:
        (DATA / f"{name}.json").write_text(text(MAKERS[name]()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
