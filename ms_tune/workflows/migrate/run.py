"""Run a migration, from reading the config to the proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ms_tune.enums import CHECKED_ONLY, Dialect
from ms_tune.errors import UnsupportedError, UsageError
from ms_tune.facts.keys import BASE
from ms_tune.facts.query import Release
from ms_tune.job import Job, load_job, no_model_config, not_simulated
from ms_tune.job.script import ScriptJob
from ms_tune.normalize.convert import release_of
from ms_tune.normalize.script import no_program_error
from ms_tune.source import SCRIPTS
from ms_tune.source.shell.read import comments
from ms_tune.source.yaml import source_of, yaml_text
from ms_tune.text import Language, msg
from ms_tune.workflows.migrate.draft import MigrationDraft
from ms_tune.workflows.migrate.from_mindformers import decide_mindformers
from ms_tune.workflows.migrate.from_mindspeed import arguments_of, decide_megatron, decide_mindspeed
from ms_tune.workflows.migrate.proof import prove, with_folder
from ms_tune.workflows.migrate.result import Migration
from ms_tune.workflows.migrate.write import write_text

_DECIDES: Mapping[Dialect, Callable[[MigrationDraft], None]] = {
    Dialect.MINDFORMERS: decide_mindformers,
    Dialect.MINDSPEED_MS: decide_mindspeed,
    Dialect.MEGATRON: decide_megatron,
}


def migrate_config(  # noqa: PLR0913 - settings with defaults
    config: str | Path,
    to: str = Dialect.MINDFORMERS_PYNATIVE.value,
    *,
    framework_version: str | None = None,
    model_config: str | Path | None = None,
    check: bool = True,
    language: Language | None = None,
) -> Migration:
    """Migrate a static-graph MindFormers, a MindSpeed-Core-MS or a script job to MindFormers' dynamic graph, with a proof.

    No file is written: ``text`` of the result is the new file, empty if keys prevent the migration.

    Args:
        config: The file.
        to: ``mindformers-pynative``, optionally followed by the release, ``@2.0`` or ``@2.1``; default: the newest.
        framework_version: The release that the config is for; None for the installed one or the default.
        model_config: The model's ``config.json``, or its folder, if ``pretrained_model_dir`` does not exist here.
        check: Whether to prove it.
        language: The language of the comments in the new file; English by default.

    Raises:
        ConfigError: The file cannot be read, or its dialect is not supported.
        UnsupportedError: Its dialect cannot be migrated, or a release is not supported.
        UsageError: There is no such target, or a ``model_config`` is given that the config does not read.

    Example::

        migration = ms_tune.migrate_config("train.yaml", "mindformers-pynative@2.1")
        print(migration.proved, [entry.name for entry in migration.questions])
    """
    release, path = parse_target(to), Path(config)
    if path.suffix not in SCRIPTS:
        model = Path(model_config) if model_config is not None else None
        job = load_job(path, framework_version=framework_version, model_config=model)
        return migrate_job(job, release, check=check, language=language)
    if model_config is not None:
        raise no_model_config(path)
    return migrate_script(path, release, version=framework_version, check=check, language=language)


def migrate_job(
    job: Job, target: str | None = None, *, check: bool = True, language: Language | None = None
) -> Migration:
    """Migrate the config of a job; the target is a release of the dynamic graph, None for the newest."""
    source, dialect, base = job.source, job.dialect, job.original.data.get(BASE)
    if dialect in CHECKED_ONLY:
        raise not_simulated(dialect, source.path)
    if dialect not in (Dialect.MINDFORMERS, Dialect.MINDSPEED_MS):
        raise UnsupportedError(msg("migrate.dialect", dialect=dialect.value), msg("migrate.dialect.hint"))
    draft = MigrationDraft(job, release_of(Dialect.MINDFORMERS_PYNATIVE, target))
    if base is not None:
        draft.add_base(base)
    result = _migrate(draft, check=check, language=language)
    if job.sizes_from.path is None:
        return result
    return replace(result, merged=yaml_text(with_folder(source.data, source.model_config or {})))


def migrate_script(
    path: Path,
    target: str | None = None,
    *,
    version: str | None = None,
    check: bool = True,
    language: Language | None = None,
) -> Migration:
    """Migrate the MindSpeed-LLM program of a launch script; the default version is the release that accepts most arguments."""
    script = ScriptJob(path, version=version)
    if not script.commands:
        raise no_program_error(script)
    if len(script.commands) > 1:
        raise UnsupportedError(msg("migrate.several", count=len(script.commands)), msg("migrate.several.hint"))
    values, lines = arguments_of(script.commands[0])
    # The arguments have the same names as in MindSpeed-Core-MS.
    job = Job(source_of(values, path), dialect=Dialect.MINDSPEED_MS, release=Release("", script.release))
    release, notes = release_of(Dialect.MINDFORMERS_PYNATIVE, target), comments(script.launches.file.text)
    draft = MigrationDraft(job, release, script, lines=lines, comments=notes)
    return _migrate(draft, check=check, language=language)


def _migrate(draft: MigrationDraft, *, check: bool, language: Language | None) -> Migration:
    _DECIDES[draft.dialect](draft)
    source = draft.source
    result = Migration(
        source.path,
        draft.dialect,
        draft.release,
        draft.target,
        draft.entries(),
        tuple(draft.added),
        original=source.text,
        missing=tuple(draft.missing),
    )
    if result.blocking or result.missing:
        return result
    text = write_text(draft, result.entries, language or Language.EN)
    return replace(result, text=text, proof=prove(draft, text) if check else ())


def parse_target(to: str) -> str | None:
    """Return the dynamic graph release in ``mindformers-pynative[@RELEASE]`` (a colon also works), or None if not given."""
    name, _, release = to.replace(":", "@", 1).partition("@")
    if name != Dialect.MINDFORMERS_PYNATIVE.value:
        raise UsageError(msg("migrate.target", target=name))
    return release or None
