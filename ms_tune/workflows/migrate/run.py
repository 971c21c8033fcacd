"""A migration from its config to its proof."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, UnsupportedError, UsageError
from ms_tune.facts.keys import BASE
from ms_tune.facts.query import Release, release_for, served
from ms_tune.job import Job, load_job
from ms_tune.job.script import ScriptJob
from ms_tune.source import SCRIPTS
from ms_tune.source.shell.read import comments
from ms_tune.source.yaml import source_of, yaml_text
from ms_tune.text import Language, msg
from ms_tune.workflows.migrate.draft import MigrationDraft
from ms_tune.workflows.migrate.foreign import arguments_of, decide_megatron, decide_mindspeed
from ms_tune.workflows.migrate.keys import apply_table
from ms_tune.workflows.migrate.model import (
    apply_defaults,
    apply_model,
    ask_model,
    folder_not_here,
    is_served,
    refuse_model,
)
from ms_tune.workflows.migrate.proof import prove, with_folder
from ms_tune.workflows.migrate.result import Migration
from ms_tune.workflows.migrate.split import apply_split
from ms_tune.workflows.migrate.write import written

if TYPE_CHECKING:
    from ms_tune.dialects.megatron.arguments import ProgramArguments


def migrate_config(  # noqa: PLR0913 - settings with defaults
    config: str | Path,
    to: str = Dialect.MINDFORMERS_PYNATIVE.value,
    *,
    framework_version: str | None = None,
    model_config: str | Path | None = None,
    check: bool = True,
    language: Language | None = None,
) -> Migration:
    """A config of MindFormers' static graph (or of MindSpeed-Core-MS, or a script) for its dynamic graph, with the fate of every key and the proof.

    Nothing is written: ``text`` of the result is the new file, empty where keys stand in the way.

    Args:
        config: The file.
        to: ``mindformers-pynative``, with ``@2.0`` or ``@2.1`` behind it for that release; else the newest.
        framework_version: The release that the config is for; None for the installed one or the default.
        model_config: The model's ``config.json``, or its folder, where ``pretrained_model_dir`` is not here.
        check: Whether to prove it.
        language: The language of the comments in the new file; English if none is given.

    Raises:
        ConfigError: The file cannot be read, or is of no dialect that is served.
        UnsupportedError: It is of a dialect that cannot be migrated, or a release is not served.
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
        raise UsageError(msg("config.model-json.legacy", file=path), msg("config.model-json.legacy.hint"))
    return migrate_script(path, release, version=framework_version, check=check, language=language)


def migrate_job(
    job: Job, target: str | None = None, *, check: bool = True, language: Language | None = None
) -> Migration:
    """The config of a job; the target is a release of the dynamic graph, None for the newest."""
    source, dialect, base = job.source, job.dialect, job.written.data.get(BASE)
    if dialect not in (Dialect.MINDFORMERS, Dialect.MINDSPEED_MS):
        raise UnsupportedError(msg("migrate.dialect", dialect=dialect.value), msg("migrate.dialect.hint"))
    draft = MigrationDraft(job, _goal(target))
    if base is not None:
        draft.merged((BASE,), base)
    if dialect is Dialect.MINDSPEED_MS:
        decide_mindspeed(draft)
    else:
        decide(draft)
    found = _finished(draft, dialect, check=check, language=language or Language.EN)
    if not job.has_named_model_config:
        return found
    return replace(found, merged=yaml_text(with_folder(source.data, source.beside or {})))


def migrate_script(
    path: Path,
    target: str | None = None,
    *,
    version: str | None = None,
    check: bool = True,
    language: Language | None = None,
) -> Migration:
    """The program of MindSpeed-LLM that a launch script starts; without a version by the release that takes the most of its arguments."""
    script = ScriptJob(path, version=version)
    values, lines = arguments_of(_only_program(script))
    # The arguments have the names of MindSpeed-Core-MS.
    job = Job(source_of(values, path), dialect=Dialect.MINDSPEED_MS, release=Release("", script.release))
    found = comments(script.launches.file.text)
    draft = MigrationDraft(job, _goal(target), script, lines=lines, comments=found)
    decide_megatron(draft, script)
    return _finished(draft, Dialect.MEGATRON, check=check, language=language or Language.EN)


def _only_program(script: ScriptJob) -> ProgramArguments:
    """The one program of MindSpeed-LLM that a script starts.

    Raises:
        ConfigError: It starts none.
        UnsupportedError: It starts several.
    """
    if not script.commands:
        raise ConfigError(msg("megatron_layers.no-program"), msg("megatron_layers.no-program.hint"), path=script.path)
    if len(script.commands) > 1:
        raise UnsupportedError(msg("migrate.several", count=len(script.commands)), msg("migrate.several.hint"))
    return script.commands[0]


def _goal(target: str | None) -> str:
    return release_for(Dialect.MINDFORMERS_PYNATIVE, target or served(Dialect.MINDFORMERS_PYNATIVE)[-1]).version


def _finished(draft: MigrationDraft, dialect: Dialect, *, check: bool, language: Language) -> Migration:
    """The new file and its proof."""
    source = draft.source
    result = Migration(
        source.path,
        dialect,
        draft.release,
        draft.target,
        draft.entries(),
        tuple(draft.added),
        original=source.text,
        missing=tuple(draft.missing),
    )
    if result.blocking or result.missing:
        return result
    text = written(draft, result.entries, language)
    return replace(result, text=text, proof=prove(draft, text, dialect) if check else ())


def parse_target(to: str) -> str | None:
    """The release of the dynamic graph in ``mindformers-pynative[@RELEASE]``; a colon does as well. None if it names none.

    Raises:
        UsageError: It names another dialect.
    """
    name, _, release = to.replace(":", "@", 1).partition("@")
    if name != Dialect.MINDFORMERS_PYNATIVE.value:
        raise UsageError(msg("migrate.target", target=name))
    return release or None


def decide(draft: MigrationDraft) -> None:
    """Every key gets its fate: those that several decide together, the model's, those by the table, then defaults that differ."""
    served, folder = is_served(draft), folder_not_here(draft)
    apply_split(draft, served=served)
    if served:
        apply_model(draft)
    elif folder is not None:
        ask_model(draft, folder)
    else:
        refuse_model(draft)
    apply_table(draft)
    if served:
        apply_defaults(draft)
