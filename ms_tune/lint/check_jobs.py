"""Check jobs: a launch script together with its arguments and the config that they name.

Anything that is only known at run time is reported (``not-evaluable``) and not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ms_tune.diagnostics import Location
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.enums import Dialect
from ms_tune.job.detect import recognise
from ms_tune.job.script import TrainingJob
from ms_tune.lint.environment.settings import EnvironmentSource
from ms_tune.source.shell.read import is_to_be_filled_in
from ms_tune.source.shell.syntax import ScriptPlace
from ms_tune.source.shell.values import Argument
from ms_tune.source.yaml import SourceFile, is_same
from ms_tune.source.yaml_nodes import Document

_SIZES = ("data_parallel", "model_parallel", "context_parallel", "pipeline_stage")
_DYNAMIC = (
    *("data_parallel_replicate", "data_parallel_shard"),
    *("tensor_parallel", "context_parallel", "pipeline_parallel"),
)
_LAZY = "ENABLE_LAZY_INLINE_NO_PIPELINE"


def unevaluable(context: CheckContext) -> Iterator[Violation]:
    """Report a config or number of processes that is only known at run time."""
    for job in _jobs(context):
        if job.unknown and job.unknown != _named(job):
            yield Violation((), params={"name": job.unknown}, span=_span(context, job.place))


def absent(context: CheckContext) -> Iterator[Violation]:
    """Report a config that exists neither in the script's folder nor in those above."""
    for job in _jobs(context):
        if job.path is None and not job.unknown and not is_to_be_filled_in(_named(job)):
            yield Violation((), params={"file": _named(job)}, span=_word(context, job, job.config))


def processes(context: CheckContext) -> Iterator[Violation]:
    """Report parallel sizes whose product is not the number of processes (``check_rules._check_parallel``, ``parallel_dims.py``)."""
    for job, source, dialect in _read(context):
        if job.processes is None:
            continue
        if dialect is Dialect.MINDFORMERS:
            on = job.value(source, "use_parallel", default=False) is True
            sizes = [job.value(source, f"parallel_config.{name}", 1) for name in _SIZES] if on else []
        else:
            sizes = [job.value(source, f"parallelism.{name}", 1) for name in _DYNAMIC]
        whole = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0]
        if sizes and len(whole) == len(sizes) and prod(whole) != job.processes:
            params = {"processes": job.processes, "product": prod(whole), "sizes": " x ".join(map(str, whole))}
            yield Violation((), params={**params, "file": source.path.name}, span=_span(context, job.place))


def overridden(context: CheckContext) -> Iterator[Violation]:
    """Report a value of the config that the command line overrides."""
    for job, source, dialect in _read(context):
        for path, (value, word) in job.overrides.items() if dialect is Dialect.MINDFORMERS else ():
            written = source.get(path)
            if written is not None and not isinstance(written, (dict, list)) and not is_same(written, value):
                params = {"name": ".".join(path), "given": value, "written": written, "file": source.path.name}
                yield Violation((), params=params, span=_word(context, job, word))


def swap_without_lazy_inline(context: CheckContext) -> Iterator[Violation]:
    """Report swap in a single stage without the variable that keeps lazy inline on (MindFormers 1.6, ``version_control.py``)."""
    for job, source, dialect in _read(context):
        on = dialect is Dialect.MINDFORMERS and job.value(source, "swap_config.swap") is True
        stages = job.value(source, "parallel_config.pipeline_stage", 1)
        if on and stages == 1 and job.variable(_LAZY) != "1" and _LAZY not in context.source.text:
            yield Violation((), params={"variable": _LAZY, "file": source.path.name}, span=_span(context, job.place))


def _jobs(context: CheckContext) -> tuple[TrainingJob, ...]:
    source = context.source
    return source.script.config_jobs if isinstance(source, EnvironmentSource) and source.script is not None else ()


def _read(context: CheckContext) -> Iterator[tuple[TrainingJob, SourceFile, Dialect]]:
    """Yield the jobs whose config can be read and belongs to MindFormers; skip configs that build on others."""
    for job in _jobs(context):
        source = job.source()
        if source is None or "base_config" in source.data:
            continue
        dialect = recognise(source.data).dialect
        if dialect in (Dialect.MINDFORMERS, Dialect.MINDFORMERS_PYNATIVE):
            yield job, source, dialect


def _named(job: TrainingJob) -> str:
    text = "".join(piece.text for piece in job.config.pieces)
    return next((word for word in text.split() if word.endswith((".yaml", ".yml"))), text[:60])


def _word(context: CheckContext, job: TrainingJob, word: Argument) -> Location:
    return _span(context, word.place if word.place.file is job.script else job.place)


def _span(context: CheckContext, place: ScriptPlace) -> Location:
    source = context.source
    lines = source.lines if isinstance(source, EnvironmentSource) else Document(source.text, source.path)
    return lines.span(*((place.start, place.end) if place.file.path == source.path else (0, 0)))
