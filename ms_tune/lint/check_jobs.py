"""Check jobs: a launch script together with its arguments and the config that they name.

Anything that is only known at run time is reported (``not-evaluable``) and not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ms_tune.diagnostics import Location
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.hyper_parallel.read import TARGET, declared_fields
from ms_tune.enums import Dialect
from ms_tune.errors import closest
from ms_tune.job import Job
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


def find_uneven_ranks(context: CheckContext) -> Iterator[Violation]:
    """Report numbers of ranks that HyperParallel's Trainer cannot divide (``parallelism.py`` at 3c464416, ``base.py`` at 0016d837)."""
    for job, source, _ in _read(context, Dialect.HYPER_PARALLEL):
        names = {name: f"accelerator.{name}_size" for name in ("tp", "cp", "pp", "ep")}
        names |= {name: f"fsdp_config.{name}" for name in ("dp_shard_size", "edp_shard_size")}
        names |= {"batch": "training.global_batch_size", "micro": "training.micro_batch_size"}
        sizes = {name: job.value(source, key, 8 if name == "batch" else 1) for name, key in names.items()}
        if job.processes is None or not all(type(size) is int for size in sizes.values()):
            continue
        size = {name: max(int(str(size)), 1) for name, size in sizes.items()}
        model = size["tp"] * size["cp"] * size["pp"]
        data = job.processes // model
        experts = data * size["cp"] * size["tp"]
        divisions = (
            (job.processes, model, "world_size", "tp_size x cp_size x pp_size"),
            (experts, size["ep"], "dp x cp_size x tp_size", "ep_size"),
            (data * size["cp"], size["dp_shard_size"], "dp x cp_size", "dp_shard_size"),
            (
                experts // size["ep"],
                size["edp_shard_size"] if size["ep"] > 1 else 1,
                "dp x cp x tp / ep",
                "edp_shard_size",
            ),
            (size["batch"], size["micro"] * data, "global_batch_size", "micro_batch_size x dp"),
        )
        for whole, part, what, by in divisions:
            if whole % part:
                params = {"processes": job.processes, "what": what, "whole": whole, "by": by, "part": part}
                yield Violation((), params={**params, "file": source.path.name}, span=_span(context, job.place))
                break  # the Trainer stops at the first


def find_refused_arguments(context: CheckContext) -> Iterator[Violation]:
    """Report arguments that HyperParallel's Trainer refuses: ``--a.b value``, or no field (``config/manager.py`` at 643fe63c)."""
    for job, source, _ in _read(context, Dialect.HYPER_PARALLEL):
        tables = declared_fields(Job(source))
        for path, (_, word) in job.overrides.items():
            section, name = tables.sections.get(path[:-1], {}), ".".join(path)
            is_open = path[:-1] in tables.open_sections or source.get((*path[:-1], TARGET)) is not None
            span, similar = _word(context, job, word), closest(path[-1], section)
            if not "".join(piece.text for piece in word.pieces).startswith("--"):
                yield Violation((), "space", {"name": name}, span=span)
            elif section and not is_open and path[-1] not in section:
                params = {"name": name, "similar": ".".join((*path[:-1], similar)) if similar else ""}
                message = "similar" if similar else "default"
                yield Violation((), message, params, span=span, is_certain=tables.is_certain)


def _jobs(context: CheckContext) -> tuple[TrainingJob, ...]:
    source = context.source
    return source.script.config_jobs if isinstance(source, EnvironmentSource) and source.script is not None else ()


def _read(context: CheckContext, *dialects: Dialect) -> Iterator[tuple[TrainingJob, SourceFile, Dialect]]:
    """Yield the jobs whose config can be read and is of one of the dialects (default: MindFormers); skip those that build on others."""
    for job in _jobs(context):
        source = job.source()
        if source is None or "base_config" in source.data:
            continue
        dialect = recognise(source.data).dialect
        if dialect in (dialects or (Dialect.MINDFORMERS, Dialect.MINDFORMERS_PYNATIVE)):
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
