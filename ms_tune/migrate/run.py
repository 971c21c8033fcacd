"""A migration from its config to its proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.config.follow import followed
from ms_tune.errors import UnsupportedError
from ms_tune.frameworks.dialect import Dialect
from ms_tune.frameworks.models import model_of
from ms_tune.frameworks.releases import release_for, served
from ms_tune.migrate.draft import Draft
from ms_tune.migrate.keys import apply_table
from ms_tune.migrate.model import apply_defaults, apply_model
from ms_tune.migrate.proof import prove
from ms_tune.migrate.result import Migration
from ms_tune.migrate.split import apply_split
from ms_tune.migrate.write import written
from ms_tune.normalize.source import dialect_of
from ms_tune.texts import Language, msg

if TYPE_CHECKING:
    from ms_tune.config.source import SourceFile


def migrate_source(  # noqa: PLR0913 - the questions a user can answer
    source: SourceFile,
    target: str | None = None,
    *,
    version: str | None = None,
    check: bool = True,
    language: Language = Language.EN,
) -> Migration:
    """A static-graph config of MindFormers as one of its dynamic graph.

    Args:
        source: The config.
        target: The release of the dynamic graph; None for the newest.
        version: The release that the config is for; None for the installed one or the default.
        check: Whether to prove it.
        language: The language of comments in the new file.

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
    entries = draft.entries()
    result = Migration(source.path, dialect, release, goal, entries, tuple(draft.added))
    if result.blocking:
        return result
    text = written(draft, entries, language)
    result = Migration(source.path, dialect, release, goal, entries, tuple(draft.added), text)
    if not check:
        return result
    return Migration(
        source.path, dialect, release, goal, entries, tuple(draft.added), text, prove(draft, text)
    )


def decide(draft: Draft) -> None:
    """Every key gets its fate: those that several decide together, the model's, those by the table, then defaults that differ."""
    apply_model_first = draft.model.known
    if apply_model_first:
        apply_split(draft)
    apply_model(draft)
    apply_table(draft)
    if apply_model_first:
        apply_defaults(draft)
