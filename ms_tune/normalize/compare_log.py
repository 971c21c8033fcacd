"""Compare a layer plan with the log of a job: differing, damaged and missing lines, and lines that cannot be predicted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from ms_tune.dialects import MINDFORMERS, MINDSPEED_MS, LayerPlan, LayerSpec
from ms_tune.enums import RecomputeMode
from ms_tune.errors import MsTuneError, TraceError, UnsupportedError
from ms_tune.facts.query import VERSIONS
from ms_tune.job import Job
from ms_tune.normalize.run import normalize_recompute
from ms_tune.readers.lines import find_logs
from ms_tune.readers.recompute_log import (
    PLACEMENT,
    LoggedRecompute,
    LogLine,
    RecomputeLog,
    read_lines,
    read_recompute_log,
)
from ms_tune.records import Record
from ms_tune.text import Message, msg

ANY = object()  # matches any logged value or none: unpredictable, because the model's modules are unknown
COMM = "select comm recompute"
Wanted: TypeAlias = "dict[tuple[str, int], list[object]]"


class LogDifference(Record):
    """One difference between the plan and a log."""

    log: Path
    line: int | None  # the line, from 1; None if a line is missing
    what: str  # the name of the log line: `Formative select_recompute`, `full recompute`
    layer: int | None  # the layer, for settings of single layers
    # The predicted log text; None for no line, empty if only the line's existence is known.
    planned: str | None
    logged: str | None  # the text in the log; None for no line


class RecomputeComparison:
    """Comparison of a plan with one log."""

    def __init__(self, plan: LayerPlan, expected: LoggedRecompute, wanted: Wanted, log: RecomputeLog) -> None:
        self._plan, self._expected, self._wanted, self._log = plan, expected, wanted, log
        self._run = log.runs[-1] if log.runs else LoggedRecompute()
        self._is_static = plan.dialect == MINDFORMERS  # in the static graph, every rank sets up all layers
        self.layers = self._layers_of_rank()
        self.unreadable = [(log.path, number) for number in self._run.damaged]
        self.unknown: set[tuple[str, int]] = set()

    def _layers_of_rank(self) -> set[int]:
        """Return the layers that the rank of this log has, as far as the log shows."""
        every = {layer.layer for layer in self._plan.layers}
        if self._is_static or not self._plan.placement or len(self._plan.placement[0]) == 1:
            return every if self._log.runs or not self._wanted else set()
        spoken = {layer for _, layer in self._run.layers}
        for stage in range(len(self._plan.placement[0])):
            own = {layer.layer for layer in self._plan.layers if layer.stage == stage}
            if spoken and spoken <= own:
                return own
        return spoken

    def differences(self) -> list[LogDifference]:
        """Return the differences, in the order in which the framework logs."""
        if not self._log.runs:
            return []
        found = [*self._compare_lists(), *self._compare_layers()]
        missing = [one for one in found if one.line is None]
        last = max((layer for _, layer in self._run.layers), default=-1)
        trailing = [one for one in missing if last <= (-1 if one.layer is None else one.layer)]
        if self._log.cut_off and trailing and trailing == found[-len(trailing) :]:
            # The log ends early, and agrees up to there: the rest is unknown.
            self.unreadable.append((self._log.path, self._log.lines))
            found = found[: -len(trailing)]
            self.layers -= {one.layer for one in trailing if one.layer is not None}
        if missing and self._run.damaged and len(missing) == len(found):
            found = []  # the missing line may be a damaged one
        return found

    def _compare_lists(self) -> Iterator[LogDifference]:
        for name in dict.fromkeys((*self._expected.lists, *(self._run.lists if self._is_static else ()))):
            planned, logged = self._expected.lists.get(name, ()), self._run.lists.get(name, ())
            values = [line.value for line in planned]
            wrong = next((line for line in logged if not line.damaged and line.value not in values), None)
            if wrong is not None or (planned and not logged):
                yield self._difference(name, None, str(values[0]) if values else None, wrong)
            elif planned and all(line.value not in values for line in logged):
                self.unreadable.append((self._log.path, logged[0].number))

    def _compare_layers(self) -> Iterator[LogDifference]:
        last = max((key[1] for key in (*self._wanted, *self._run.layers)), default=-1)
        names = dict.fromkeys(key[0] for key in (*self._wanted, *self._run.layers))
        for layer in range(last + 1):
            for what in names:
                if layer in self.layers or (what, layer) in self._run.layers:
                    yield from self._compare_setting(what, layer)

    def _compare_setting(self, what: str, layer: int) -> Iterator[LogDifference]:
        planned, lines = self._wanted.get((what, layer), []), self._run.layers.get((what, layer), ())
        free = not self._is_static and what == COMM  # unpredictable
        if free or ANY in planned:
            self.unknown |= set() if free or lines else {(what, layer)}
            return
        others = [line for line in lines if line.value not in planned]
        wrong = next((line for line in others if not line.damaged), None)
        if wrong is None and others:
            self.unreadable.append((self._log.path, others[0].number))
        elif wrong is not None or any(value not in [line.value for line in lines] for value in planned):
            yield self._difference(what, layer, ", ".join(map(str, planned)) if planned else None, wrong)

    def _difference(self, what: str, layer: int | None, planned: str | None, wrong: LogLine | None) -> LogDifference:
        number, logged = (None, None) if wrong is None else (wrong.number, str(wrong.value))
        return LogDifference(self._log.path, number, what, layer, planned, logged)


_SECTIONS = ("parallel_config", "recompute_config", "swap_config")
_WHOLE_LAYERS = {"full recompute", "layer swap"}


class LogVerdict(str, Enum):
    """Result of comparing a job's logs with its config."""

    SAME = "same"
    DIFFERS = "differs"
    UNREADABLE = "unreadable"  # the readable lines agree, but some lines are unreadable
    UNKNOWN = "unknown"  # the log agrees, but it does not show whether operators that it does not name exist


_AGREES = (LogVerdict.SAME, LogVerdict.UNKNOWN)


class LayerState(Record):
    """One layer: its plan and its log lines."""

    plan: LayerSpec
    planned: tuple[str, ...]  # the lines that its plan causes
    logged: tuple[str, ...]  # the lines in the logs
    agrees: bool | None  # whether they are the same; None if unknown, or if no log covers its stage
    known: bool = True  # false if a line is missing for an operator that the model may not have


class Compared(Record):
    """Comparison of a plan with the logs of a job."""

    plan: LayerPlan
    logs: tuple[RecomputeLog, ...]  # the logs that were read
    verdict: LogVerdict  # the result
    differences: tuple[LogDifference, ...]  # in the order in which the framework logs
    # Damaged lines and early ends of logs: the file, and the line from 1.
    unreadable: tuple[tuple[Path, int], ...]
    why: tuple[Message, ...]  # explanations of the first difference, as far as known
    layers: tuple[LayerState, ...]  # every layer of the plan
    # Lines, by name and layer, that are missing but may be optional: the model's modules are unknown, and an operator
    # that the model does not have is not logged.
    unknown: tuple[tuple[str, int], ...] = ()


def compare_logs(job: Job, paths: Sequence[Path]) -> Compared:
    """Compare the plan of a config with logs."""
    plan = normalize_recompute(job)
    if plan.dialect == MINDSPEED_MS:
        raise UnsupportedError(msg("against.dialect", dialect=plan.dialect))
    logs = tuple(read_recompute_log(path) for path in chain.from_iterable(map(find_logs, paths)))
    result = compare_plan(plan, logs)
    if result.verdict is LogVerdict.DIFFERS:
        why = tuple(_explain_difference(result, job))
        result = result._replace(why=why)
    return result


def compare_plan(plan: LayerPlan, logs: Sequence[RecomputeLog]) -> Compared:
    """Compare a plan with logs that have been read."""
    expected = read_lines(plan.log)
    wanted = _expected_lines(plan, expected)
    if (expected.lists or wanted) and not any(log.runs for log in logs):
        silent = [log for log in logs if expected.lists or not log.framework]
        if silent:
            raise TraceError(
                msg("against.nothing"), msg("against.nothing.hint"), path=silent[0].path, line=silent[0].lines
            )
    found: list[LogDifference] = []
    unreadable: list[tuple[Path, int]] = []
    unknown: set[tuple[str, int]] = set()
    covered: set[int] = set()
    for log in logs:
        one = RecomputeComparison(plan, expected, wanted, log)
        found += one.differences()
        covered |= one.layers
        unreadable += one.unreadable
        unknown |= one.unknown
    if not covered:
        covered = {layer.layer for layer in plan.layers}
        unknown = {key for key, values in wanted.items() if ANY in values}
        found += (
            [LogDifference(logs[0].path, None, *key, "", None) for key in wanted if key not in unknown] if logs else []
        )
    unknown -= {
        key for log in logs for run in log.runs[-1:] for key in run.layers
    }  # known from the log of another rank
    states = tuple(_layer_states(plan, wanted, logs, covered, found, {layer for _, layer in unknown}))
    verdict = LogVerdict.UNKNOWN if unknown else LogVerdict.SAME
    verdict = LogVerdict.DIFFERS if found else LogVerdict.UNREADABLE if unreadable else verdict
    left = tuple(sorted(unknown, key=lambda key: (key[1], key[0])))
    return Compared(plan, tuple(logs), verdict, tuple(found), tuple(dict.fromkeys(unreadable)), (), states, left)


def _expected_lines(plan: LayerPlan, expected: LoggedRecompute) -> Wanted:
    """Return the required log lines by name and layer: exact values if they follow from the config, else ``ANY``."""
    wanted: Wanted = {key: [line.value for line in lines] for key, lines in expected.layers.items()}
    static = plan.dialect == MINDFORMERS
    exact = {what for what, _ in wanted}
    if plan.matches is not None or exact - _WHOLE_LAYERS:
        return wanted  # the model's modules are known
    known = _WHOLE_LAYERS if exact or not static else set()
    by_flag = static and (plan.formative or {}).get("layer_recompute") is True  # with swap on, it logs nothing
    for layer in plan.layers:
        for what, patterns in _logged_settings(layer, static=static):
            if patterns and what not in known and not (by_flag and what == "full recompute"):
                wanted[what, layer.layer] = [patterns[0] if what == "layer swap" else ANY if patterns[0] else ""]
    return wanted


def _logged_settings(layer: LayerSpec, *, static: bool) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the names and patterns of the lines that the framework logs for a layer's plan."""
    full = layer.recompute is RecomputeMode.FULL
    yield "full recompute", [""] if full else []
    if not full or not static:
        yield "select recompute", layer.select_patterns
        if static:  # the dynamic graph logs it only if the model is split
            yield COMM, layer.comm_patterns
    yield "select recompute exclude" if static else "exclude recompute", layer.select_excludes
    yield f"{COMM} exclude", layer.comm_excludes
    yield "layer swap", [str(swap.prefetch) if static else "" for swap in layer.swap if not swap.target]
    yield "op_swap" if static else "select swap", [swap.target for swap in layer.swap if swap.target]


def _layer_states(  # noqa: PLR0913, PLR0917 - planned and logged values
    plan: LayerPlan,
    wanted: Wanted,
    logs: Sequence[RecomputeLog],
    covered: set[int],
    found: Iterable[LogDifference],
    unknown: set[int],
) -> Iterator[LayerState]:
    wrong = {one.layer for one in found}
    planned: dict[int, list[str]] = {}
    logged: dict[int, dict[str, None]] = {}
    for (what, layer), values in wanted.items():
        planned.setdefault(layer, []).append(_spell_line(what, [value for value in values if value is not ANY]))
    for log in logs:
        for (what, layer), lines in (log.runs[-1].layers if log.runs else {}).items():
            logged.setdefault(layer, {})[_spell_line(what, [line.value for line in lines])] = None
    for one in plan.layers:
        number = one.layer
        known = number not in unknown
        agrees = False if number in wrong else True if known and number in covered else None
        yield LayerState(one, tuple(planned.get(number, ())), tuple(logged.get(number, ())), agrees, known)


def _spell_line(what: str, values: Sequence[object]) -> str:
    texts = [str(value) for value in values if value != ""]
    return f"{what}: {' | '.join(texts)}" if texts else what


def _explain_difference(result: Compared, job: Job) -> Iterator[Message]:
    first = result.differences[0]
    log = next(one for one in result.logs if one.path == first.log)
    run = log.runs[-1] if log.runs else LoggedRecompute()
    if result.plan.failure is not None:
        yield msg("against.why.refused", version=result.plan.framework_version)
    yield from _explain_values(run, job.original.data)
    yield from _explain_placement(result.plan, run)
    if len(run.layers.get((first.what, -1 if first.layer is None else first.layer), ())) > 1:
        yield msg("against.why.twice", what=first.what, layer=first.layer)
    for number, earlier in enumerate(log.runs[:-1], start=1):
        before = type(log)(log.path, log.rank, (earlier,), log.lines, log.framework)
        if compare_plan(result.plan, [before]).verdict in _AGREES:
            yield msg("against.why.earlier", number=number, count=len(log.runs), line=min(earlier.numbers))
            break
    for version in VERSIONS:
        if version != result.plan.framework_version and _agrees_with(job.for_release(version), result):
            yield msg("against.why.release", version=version, planned=result.plan.framework_version)
            break
    if first.layer is not None and run.lists and first.what != "full recompute":
        yield msg("against.why.modules")
    if not log.runs:
        yield msg("against.why.silent")


def _agrees_with(job: Job, result: Compared) -> bool:
    try:
        return compare_plan(job.plan, result.logs).verdict in _AGREES
    except MsTuneError:
        return False


def _explain_values(run: LoggedRecompute, data: Mapping[object, object]) -> Iterator[Message]:
    """Yield values of the config that the job received differently, from another file or its command line."""
    for section in _SECTIONS:
        line, written = run.sections.get(section), data.get(section)
        if line is None or not isinstance(line.value, dict) or not isinstance(written, dict):
            continue
        for key, value in written.items():
            if key in line.value and line.value[key] != value:
                given = line.value[key]
                yield msg("against.why.given", key=f"{section}.{key}", given=given, written=value, line=line.number)


def _explain_placement(plan: LayerPlan, run: LoggedRecompute) -> Iterator[Message]:
    lines = run.lists.get(PLACEMENT, ())
    rows = next((line.value for line in lines if not line.damaged), None)
    if plan.placement is None:
        return
    if rows is None:
        spoken = {layer for _, layer in run.layers}
        if spoken and max(spoken) >= len(plan.layers):
            yield msg("against.why.layers", logged=max(spoken) + 1, planned=len(plan.layers))
        return
    if not _is_table(rows) or rows == [list(row) for row in plan.placement]:
        return
    assert isinstance(rows, list)  # noqa: S101 - checked above
    logged, planned = sum(map(sum, rows)), sum(map(sum, plan.placement))
    if logged != planned:
        yield msg("against.why.layers", logged=logged, planned=planned)
    if (len(rows), len(rows[0])) != (len(plan.placement), len(plan.placement[0])):
        names = {"stages": len(rows[0]), "chunks": len(rows)}
        yield msg("against.why.stages", **names, planned=len(plan.placement[0]), planned_chunks=len(plan.placement))
    else:
        base = logged // (len(rows) * len(rows[0]))
        yield msg("against.why.offset", offset=[[count - base for count in row] for row in rows])


def _is_table(rows: object) -> bool:
    return (
        isinstance(rows, list)
        and bool(rows)
        and all(isinstance(row, list) and row and all(isinstance(one, int) for one in row) for row in rows)
        and len({len(row) for row in rows}) == 1
    )
