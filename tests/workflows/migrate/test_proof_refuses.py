"""Check that the proof fails for files that differ from the source, each by the correct part."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ms_tune.job import Job
from ms_tune.source.yaml import parse_source
from ms_tune.workflows.migrate.draft import MigrationDraft
from ms_tune.workflows.migrate.from_mindformers import decide_mindformers
from ms_tune.workflows.migrate.proof import prove
from tests.jobs import migrate_source
from tests.workflows.migrate.test_migrate import SOURCE


@pytest.fixture(scope="module")
def draft() -> MigrationDraft:
    made = MigrationDraft(Job(parse_source(SOURCE, Path("train.yaml")), version="2.1"), "2.1")
    decide_mindformers(made)
    return made


@pytest.fixture(scope="module")
def migrated() -> str:
    return migrate_source(parse_source(SOURCE, Path("train.yaml")), "2.1", check=False).text or ""


def refused(draft: MigrationDraft, text: str) -> set[str]:
    """Return the parts of the proof that fail, except those that need an installed framework."""
    return {one.name for one in prove(draft, text) if one.holds is False} - {"loads"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "parts"),
    [
        ("training.global_batch_size", 16, {"batch"}),
        ("parallelism.pipeline_parallel_layers_per_stage", ["0-2", "3-5"], {"layers", "weights"}),
        ("model.intermediate_size", 999, {"weights"}),
        ("training.local_batch_size", "two", {"lints"}),
    ],
)
def test_a_file_that_says_something_else(
    draft: MigrationDraft, migrated: str, key: str, value: object, parts: set[str]
) -> None:
    assert refused(draft, migrated) == set()
    data = yaml.safe_load(migrated)
    section, _, name = key.partition(".")
    assert name in data[section]
    data[section][name] = value
    assert refused(draft, yaml.safe_dump(data)) == parts


def test_a_field_that_the_other_class_would_get_otherwise(migrated: str) -> None:
    made = MigrationDraft(Job(parse_source(SOURCE, Path("train.yaml")), version="2.1"), "2.1")
    decide_mindformers(made)
    made.values["model", "hidden_size"] = 1
    assert refused(made, migrated) == {"fields"}
