"""A migration from its config to its proof."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.config.follow import followed
from ms_tune.errors import UnsupportedError, UsageError
from ms_tune.frameworks.dialect import Dialect
from ms_tune.frameworks.models import model_of
from ms_tune.frameworks.releases import release_for, served
from ms_tune.migrate.draft import Draft
from ms_tune.migrate.keys import apply_table
from ms_tune.migrate.model import apply_defaults, apply_model, is_served, refuse_model
from ms_tune.migrate.proof import prove
from ms_tune.migrate.result import Migration
from ms_tune.migrate.split import apply_split
from ms_tune.migrate.write import written
from ms_tune.normalize.source import dialect_of
from ms_tune.texts import Language, msg

if TYPE_CHECKING:
    from ms_tune.config.source import SourceFile


def migrate_source(
    source: SourceFile,
    target: str | None = None,
    *,
    version: str | None = None,
    check: bool = True,
    language: Language | None = None,
) -> Migration:
    """A static-graph config of MindFormers as one of its dynamic graph.

    Args:
        source: The config.
        target: The release of the dynamic graph; None for the newest.
        version: The release that the config is for; None for the installed one or the default.
        check: Whether to prove it.
        language: The language of comments in the new file; None for English.

    Raises:
        ConfigError: The config cannot be read, or is of no dialect that is served.
        UnsupportedError: It is of a dialect that cannot be migrated yet, or a release is not served.
    """
    source = followed(source)
    dialect = dialect_of(source)
    if dialect is not Dialect.MINDFORMERS:
        raise UnsupportedError(msg("migrate.dialect", dialect=dialect.value), msg("migrate.dialect.hint"))
    release = release_for(dialect, version).version
    goal = release_for(Dialect.MINDFORMERS_PYNATIVE, target or served(Dialect.MINDFORMERS_PYNATIVE)[-1]).version
    draft = Draft(source, release, goal, model_of(source, dialect, release, source.beside))
    decide(draft)
    result = Migration(source.path, dialect, release, goal, draft.entries(), tuple(draft.added), original=source.text)
    if result.blocking:
        return result
    text = written(draft, result.entries, language or Language.EN)
    return replace(result, text=text, proof=prove(draft, text) if check else ())


def goal_of(to: str) -> str | None:
    """The release of the dynamic graph in ``mindformers-pynative[@RELEASE]``; a colon does as well. None if it names none.

    Raises:
        UsageError: It names another dialect.
    """
    name, _, release = to.replace(":", "@", 1).partition("@")
    if name != Dialect.MINDFORMERS_PYNATIVE.value:
        raise UsageError(msg("migrate.target", target=name))
    return release or None


def decide(draft: Draft) -> None:
    """Every key gets its fate: those that several decide together, the model's, those by the table, then defaults that differ."""
    served = is_served(draft)
    apply_split(draft, served=served)
    (apply_model if served else refuse_model)(draft)
    apply_table(draft)
    if served:
        apply_defaults(draft)
