"""Load files that are not configs: environment settings, launch scripts with their programs, Python training code."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ms_tune.diagnostics import Diagnostic, Fix
from ms_tune.dialects.check_context import CodeSource, FixRule, Violation
from ms_tune.dialects.megatron.commands import commands_in, findings_of
from ms_tune.dialects.megatron.detect import release_taking, starts_pytorch
from ms_tune.dialects.megatron.read import SERVED
from ms_tune.dialects.mindspeed_mm.read import multimodal_commands
from ms_tune.enums import Dialect
from ms_tune.errors import UnsupportedError
from ms_tune.facts.query import Release, default_release, release_for
from ms_tune.job import Job
from ms_tune.job.checkout import Checkout
from ms_tune.job.detect import recognise
from ms_tune.job.script import ScriptJob
from ms_tune.lint.checklist import Check, built_in, built_in_code
from ms_tune.lint.engine import job_of, run_checks
from ms_tune.lint.environment.settings import (
    MS_NAMES,
    Assignment,
    Environment,
    EnvironmentSource,
    from_process,
    parse_env,
    parse_shell,
)
from ms_tune.lint.python_code.module import FUNCTIONS, LOOPS, Module, module_of
from ms_tune.lint.python_code.rewrites import REWRITES, leads_to
from ms_tune.lint.python_code.syntax import assigned
from ms_tune.records import Record
from ms_tune.source.edit import EditRefusedError, apply_edits
from ms_tune.source.files import read_bytes
from ms_tune.source.yaml import MAX_BYTES, SourceFile, read_text
from ms_tune.source.yaml_nodes import Document, Node
from ms_tune.text import Message, msg

ENVIRONMENT, PYTHON = "environment", "python"  # also the names of their checklists
FRAMEWORK, VERSION = "MindSpore", "2.9"  # the newest version that the checks were verified with

_ENV_FILE = ".env"
# The checks that do not depend on MindSpore.
_OF_ANY_SCRIPT = (
    *("script-not-readable", "program-unknown"),
    *("environment-variable-misspelt", "environment-value-out-of-range"),
    *("ranks-that-the-trainer-cannot-divide", "argument-that-the-trainer-refuses"),
)
_OF_ANY_PARSER = "ms_tune.dialects.megatron.refusals_script"  # the module with the checks of shell and launcher
# Checks of variables that checks of Python code report themselves.
_REPORTED_IN_CODE = frozenset(("setting-without-colon", "memory-tracker-on"))
_WORDS = (b"mindspore", b"msadapter")  # a Python file without any of them is not parsed


class CodeFile(Record):
    """A file that is not a config, prepared for checks."""

    job: Job
    checks: tuple[Check, ...]  # the built-in ones for it
    release: Release  # the release to check for: that of its programs, if it starts any
    notes: tuple[Message, ...] = ()  # remarks for the user about how it was read
    programs: tuple[SourceFile, ...] = ()  # the programs that a launch script starts
    of_programs: Dialect = Dialect.MEGATRON
    own_parser: bool = False  # whether a parser of the repository reads their arguments, whose rules are unknown

    def with_source(self, source: SourceFile) -> CodeFile:
        """Return the file with another text."""
        return self._replace(
            job=job_of(source, self.job.dialect, VERSION),
            programs=programs_in(source, self.of_programs, self._version) if self.programs else (),
        )

    @property
    def _version(self) -> str:
        return (release_for(self.of_programs) if self.own_parser else self.release).version

    def find(
        self, choose: Callable[[tuple[Check, ...], Dialect, str], tuple[Check, ...]]
    ) -> tuple[tuple[Diagnostic, ...], tuple[Check, ...]]:
        """Return the findings in the file, its programs and the variables it sets; and the checks that ran."""
        dialect, source = self.job.dialect, self.job.original
        chosen = choose(self.checks, dialect, VERSION)
        found = run_checks(chosen, self.job)
        if self.programs:
            checks = choose(built_in(self.of_programs), self.of_programs, self._version)
            if self.own_parser:
                checks = tuple(check for check in checks if check.function and check.function[0] == _OF_ANY_PARSER)
            look = partial(_look_at, checks=checks, dialect=self.of_programs, version=self._version)
            return _merge_findings(found, findings_of(self.programs, look)), chosen + checks
        if source.path.suffix != ".py" or ("environ" not in source.text and "putenv" not in source.text):
            return found, chosen

        variables = variables_in(source)
        if variables is None:
            return found, chosen
        checks = choose(built_in_code()[ENVIRONMENT], dialect, VERSION)
        checks = tuple(one for one in checks if one.name not in _REPORTED_IN_CODE)
        return _merge_findings(found, _look_at(variables, checks, dialect, VERSION)), chosen + checks


def _look_at(source: SourceFile, checks: tuple[Check, ...], dialect: Dialect, version: str) -> tuple[Diagnostic, ...]:
    return run_checks(checks, job_of(source, dialect, version))


def _merge_findings(found: Iterable[Diagnostic], further: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return all findings in text order, each once: two commands of a script may have the same one."""
    every = {(one.id, one.location, str(one.message)): one for one in (*found, *further)}
    return tuple(sorted(every.values(), key=lambda finding: (finding.location.start, finding.id)))


def load_code(path: Path | None, text: str | None, *, named: bool, version: str | None) -> CodeFile | Message:
    """Read a file whose name shows that it is not a config; return a message if ms-tune does not check it.

    Without a path, it reads the settings of the process that ms-tune runs in.
    """
    if path is None:
        return _code_of(from_process(os.environ).source(), built_in_code()[ENVIRONMENT])
    if path.suffix == ".py":
        if text is None and not named and not any(word in read_bytes(path, MAX_BYTES) for word in _WORDS):
            return msg("lint.not-training-code")
        return _load_python(path, read_text(path) if text is None else text)
    text = read_text(path) if text is None else text
    if _ENV_FILE not in (path.suffix, path.name):
        return _load_script(path, text, named=named, version=version)
    environment = parse_env(text, path)
    if named or _sets_known(environment):
        return _code_of(environment.source(), built_in_code()[ENVIRONMENT])
    return msg("lint.not-an-environment")


def _load_python(path: Path, text: str) -> CodeFile | Message:

    source = parse_python(text, path)
    if module_of(source).uses_mindspore:
        return _code_of(source, built_in_code()[PYTHON])
    return msg("lint.not-training-code")


def _load_script(path: Path, text: str, *, named: bool, version: str | None) -> CodeFile | Message:

    environment = parse_shell(text, path)
    source, checks = environment.source(), built_in_code()[ENVIRONMENT]
    script = source.script or ScriptJob(path, source.text)
    has_programs = any(
        programs_in(source, one, default_release(one)) for one in (Dialect.MEGATRON, Dialect.MINDSPEED_MM)
    )
    if script.launches.launches and starts_pytorch(script.launches):
        is_foreign = script.checkout is None or script.checkout.framework is None  # those of a framework are its users'
        if is_foreign and not has_programs and not script.config_jobs:
            return msg("lint.pytorch-script")
        checks = tuple(check for check in checks if check.name in _OF_ANY_SCRIPT)
        trainer = next((job.source() for job in script.config_jobs), None)
        if trainer is not None and recognise(trainer.data).dialect is Dialect.HYPER_PARALLEL:
            return _code_of(source, checks)._replace(release=Job(trainer).release)
    is_ours = named or has_programs or _sets_known(environment)
    if is_ours or any(one.launcher.name == "msrun" for one in script.launches.launches):
        return _with_programs(_code_of(source, checks), script, version)
    return msg("lint.not-an-environment")


def _sets_known(environment: Environment) -> bool:
    return any(one.name in MS_NAMES for one in environment.assignments)


def _code_of(source: SourceFile, checks: tuple[Check, ...]) -> CodeFile:
    # These checks are about MindSpore itself and apply with any framework, so any dialect will do.
    return CodeFile(job_of(source, Dialect.MINDFORMERS, VERSION), checks, Release(FRAMEWORK, VERSION))


def programs_in(source: SourceFile, dialect: Dialect, release: str) -> tuple[SourceFile, ...]:
    """Return the programs of MindSpeed-LLM or MindSpeed-MM that a script starts, prepared for checks."""
    if not isinstance(source, EnvironmentSource) or source.script is None:
        return ()
    if dialect is Dialect.MEGATRON:
        return commands_in(source.script.launches, source.text, release)
    return multimodal_commands(source.script.launches, source.text)


def _with_programs(file: CodeFile, script: ScriptJob, named: str | None) -> CodeFile:
    """Return a script with the programs it starts, their release, and remarks about it."""
    source, checkout = file.job.original, file.job.checkout
    release, notes = _release_of_programs(script, checkout, named)
    programs = programs_in(source, Dialect.MEGATRON, release.version)
    parser = checkout.own_parser if programs and checkout else None
    if programs and parser is None:
        if release.version not in SERVED:  # for these the rules for layers are known
            params = {"file": script.path, "release": release.version, "served": ", ".join(SERVED)}
            notes += (msg("lint.layers-not-known", **params),)
        return file._replace(release=release, notes=notes, programs=programs)
    if parser is not None:
        note = msg("lint.own-parser", file=script.path, parser=parser)
        return file._replace(notes=(note,), programs=programs, own_parser=True)
    programs = programs_in(source, Dialect.MINDSPEED_MM, "")
    if not programs:
        return file
    release = _find_release(Dialect.MINDSPEED_MM, named) or release_for(Dialect.MINDSPEED_MM)
    return file._replace(release=release, programs=programs, of_programs=Dialect.MINDSPEED_MM)


def _release_of_programs(
    script: ScriptJob, checkout: Checkout | None, named: str | None
) -> tuple[Release, tuple[Message, ...]]:
    """Return the release of MindSpeed-LLM that a script is for, and remarks about it.

    If none is named and no sources surround the script, it is the release whose parser accepts most of the arguments.
    """
    release = _find_release(Dialect.MEGATRON, named)
    if release is not None:
        return release, ()
    around, default = checkout.releases_of("MindSpeed-LLM") if checkout else (), release_for(Dialect.MEGATRON)
    fitting = release_taking(script.launches, around or None)
    if around or fitting == default.version:
        return default._replace(version=fitting), ()
    note = msg("lint.script-release", file=script.path, release=fitting, default=default.version)
    return default._replace(version=fitting), (note,)


def _find_release(dialect: Dialect, named: str | None) -> Release | None:
    """Return the named release, or None if the version belongs to another framework."""
    try:
        return release_for(dialect, named) if named is not None else None
    except UnsupportedError:
        return None


class PythonSource(CodeSource):
    """A Python file. Its fixes are verified by comparing syntax trees."""

    def with_text(self, text: str) -> PythonSource:
        """Return the same file with another text."""
        return parse_python(text, self.path)

    def fix(self, rule: FixRule, violation: Violation) -> Fix:
        """Return the fix that the checklist's rewrite makes at the violation."""
        if rule.rewrite not in REWRITES:
            raise EditRefusedError(msg("edits.not-here"))
        made = REWRITES[rule.rewrite](module_of(self), violation)
        return Fix(rule.safe, made.title, made.swaps, made.edits)

    def proves(self, fixes: Sequence[Fix]) -> bool:
        """Return whether the fixed text parses to exactly the old syntax tree with the swaps applied."""
        # Two fixes may add the same import: this counts as one edit.
        edits = dict.fromkeys(edit for fix in fixes for edit in fix.edits)
        swaps = dict.fromkeys(swap for fix in fixes for swap in fix.changes)
        try:
            text = apply_edits(self.text, edits)
        except ValueError:
            return False
        return leads_to(module_of(self).tree, swaps, text)

    def quoted(self) -> list[tuple[int, int]]:
        """Return the ranges of strings."""
        module = module_of(self)
        spans = (
            module.span(node)
            for node in module.of(ast.JoinedStr, ast.Constant)
            if isinstance(getattr(node, "value", ""), str)
        )
        return [(span.start, span.end) for span in spans]


def parse_python(text: str, path: Path) -> PythonSource:
    """Parse a Python file from its text."""
    text = text.removeprefix("\ufeff")
    lines = Document(text, path)
    root = Node(lines.span(0, len(text)))
    source = PythonSource(path, text, {}, (), root)
    module_of(source)
    return source


# Conditions that show that the user of the code requests a setting.
_OPT_IN = re.compile(r"debug|sync|block|simul|dry_?run|determin|reprod|profil|track", re.IGNORECASE)
_BLOCKS = (*FUNCTIONS, *LOOPS, ast.If, ast.Try, ast.With, ast.AsyncWith, ast.ClassDef)


class CodeVariables(EnvironmentSource):
    """Variables that code sets. Fixes of them, which would be fixes of code, are not supported yet."""

    def fix(self, rule: FixRule, violation: Violation) -> Fix:  # noqa: ARG002 - as the others have it
        """Raise an error, because such fixes are not supported."""
        raise EditRefusedError(msg("edits.not-here"))

    def proves(self, fixes: Sequence[Fix]) -> bool:
        """Return False for any fix: none can be verified."""
        return not fixes


def variables_in(source: SourceFile) -> CodeVariables | None:
    """Return the variables that a Python file sets, with ``os.environ`` or ``os.putenv``; None if it sets none."""
    module = module_of(source)
    found = sorted(_assignments(module), key=lambda one: one.key.start)
    if not found:
        return None
    return Environment(source.path, source.text, tuple(found)).source_as(CodeVariables)


def _assignments(module: Module) -> Iterator[Assignment]:
    for node in module.of(ast.Assign, ast.Call):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and module.name(target.value) == "os.environ":
                    yield from _assignment(module, target.slice, node.value)
        elif isinstance(node, ast.Call):
            yield from _called(module, node)


def _called(module: Module, call: ast.Call) -> Iterator[Assignment]:
    name = module.name(call.func)
    if name in ("os.putenv", "os.environ.setdefault") and len(call.args) > 1:
        yield from _assignment(module, call.args[0], call.args[1])
    elif name == "os.environ.update":
        for given in call.args[:1]:
            if isinstance(given, ast.Dict):
                for key, value in zip(given.keys, given.values, strict=True):
                    yield from _assignment(module, key, value)
        for keyword in call.keywords:
            if keyword.arg:
                yield from _assignment(module, ast.copy_location(ast.Constant(keyword.arg), keyword), keyword.value)


def _assignment(module: Module, key: ast.expr | None, value: ast.expr) -> Iterator[Assignment]:
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str) or module.is_opt_in(value, _OPT_IN):
        return
    block = tuple(id(one) for one in reversed([*module.around(value)]) if isinstance(one, _BLOCKS))
    extends = any(isinstance(one, ast.Constant) and one.value == key.value for one in ast.walk(value))
    yield Assignment(key.value, _text(module, value), module.span(key), module.span(value), block, extends)


def _text(module: Module, value: ast.expr) -> str | None:
    if isinstance(value, ast.Name):
        given = list(assigned(module, value))
        value = given[0] if len(given) == 1 and given[0] is not None else value
    if isinstance(value, ast.Call) and module.name(value.func) == "?str" and len(value.args) == 1:
        value = value.args[0]
    return str(value.value) if isinstance(value, ast.Constant) and isinstance(value.value, (str, int)) else None
