"""Show the outcome of ``ms-tune migrate`` for every training config of MindFormers' source repository, as a table.

``python benchmarks/migrate.py REPOSITORY [--to RELEASE] [--model-config PATH] [--tag TAG ...]``: REPOSITORY is a clone
of MindFormers with its tags (default: v1.6.0, v1.7.0, v1.8.0 and v1.9.0). Every YAML with ``run_mode: train`` or
``finetune`` in ``configs``, ``research`` and ``tests`` counts; a text in several tags counts once, for the first of
them. PATH is a ``config.json`` for configs whose model is in a folder.

Groups of configs with the same outcome are one table row; ``--each`` prints a row per config.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from ms_tune.errors import MsTuneError
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, render
from tests.jobs import migrate_source

if TYPE_CHECKING:
    from ms_tune.workflows.migrate.result import Migration

TAGS = ("v1.6.0", "v1.7.0", "v1.8.0", "v1.9.0")
TRAINING = ("train", "finetune")
SHOWN = 2
ROOMS = ("configs", "research", "tests")


def git(repository: Path, *words: str) -> str:
    """Return the output of a git command."""
    program = shutil.which("git") or "git"
    done = subprocess.run([program, "-C", str(repository), *words], check=False, capture_output=True)
    if done.returncode:
        msg = f"{repository}: {done.stderr.decode(errors='replace').strip()}; --tag names the tags to look at"
        raise SystemExit(msg)
    return done.stdout.decode()


def configs(repository: Path, tags: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield every training config once: its tag, its path and its text."""
    seen: set[str] = set()
    for tag in tags:
        for path in git(repository, "ls-tree", "-r", "--name-only", tag, *ROOMS).splitlines():
            if not path.endswith((".yaml", ".yml")):
                continue
            text = git(repository, "show", f"{tag}:{path}")
            data = yaml.safe_load(text)
            if isinstance(data, dict) and data.get("run_mode") in TRAINING and text not in seen:
                seen.add(text)
                yield tag, path, text


def outcome(found: Migration) -> str:
    """Describe in a few words how a config was migrated."""
    hanging = [one for one in found.questions if one.why and one.why.id == "migrate.why.hangs"]
    if hanging:
        return "written with questions: the model stands in `pretrained_model_dir`, which is not here"
    if not found.refused:
        failed = [one.name for one in found.proof if one.holds is False]
        if failed:
            return f"migrated; not the same: {', '.join(failed)}"
        asked = ", ".join(f"`{one.name}`" for one in found.questions)
        open_parts = ", ".join(one.name for one in found.proof if one.holds is None and one.name != "loads")
        return (
            "migrated and proved"
            if found.exit_code == 0
            else f"migrated; asked: {asked or '-'}; open: {open_parts or '-'}"
        )
    keys = [f"`{one.name}: {one.value}`" for one in found.blocking]
    return f"refused: {', '.join(keys) or ', '.join(render(one, Language.EN) for one in found.missing)}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("repository", type=Path)
    parser.add_argument("--to", default=None, metavar="RELEASE")
    parser.add_argument("--model-config", type=Path)
    parser.add_argument("--tag", action="append")
    parser.add_argument("--each", action="store_true")
    arguments = parser.parse_args()
    rows: dict[str, list[str]] = defaultdict(list)
    for tag, path, text in configs(arguments.repository, arguments.tag or list(TAGS)):
        source, release = parse_source(text, Path(path)), ".".join(tag.lstrip("v").split(".")[:2])
        named = bool(source.get(("pretrained_model_dir",)) or source.get(("model", "pretrained_model_dir")))
        beside = arguments.model_config if named else None
        try:
            said = outcome(migrate_source(source, arguments.to, version=release, model_config=beside))
        except MsTuneError as error:
            said = f"error: {render(error.message, Language.EN)}"
        rows[said].append(f"{tag} `{path}`")
    print("| configs | outcome | which |\n| ---: | --- | --- |")
    for said, names in sorted(rows.items(), key=lambda one: (-len(one[1]), one[0])):
        shown = names if arguments.each else [*names[:SHOWN], *(["..."] if len(names) > SHOWN else [])]
        print(f"| {len(names)} | {said} | {'; '.join(shown)} |")
    print(f"\n{sum(map(len, rows.values()))} configs")


if __name__ == "__main__":
    main()
