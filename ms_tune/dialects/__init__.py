"""Implement the rules of each framework (dialect): reading a config, placing, recomputing and swapping layers, refusals and ignored settings.

This module defines the result that all dialects share, the plan of a job (:class:`LayerPlan`), so that reports and
conversions do not depend on the dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum

from ms_tune.diagnostics import Diagnostic, KeyPath, Severity
from ms_tune.enums import Dialect, LayerKind, RecomputeMode
from ms_tune.records import Any, NoReturn, Record
from ms_tune.text import Message, msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Protocol

    from ms_tune.facts.keys import Key
    from ms_tune.facts.models import Field, ModelConfig
    from ms_tune.facts.query import Release
    from ms_tune.source.yaml import SourceFile

    class CheckoutView(Protocol):
        """The parts of a repository checkout (:class:`ms_tune.job.checkout.Checkout`) that dialects use."""

        @property
        def arguments(self) -> Mapping[str, object]:
            """Map each argument of its training programs to its definitions."""

        def takes_value(self, name: str, value: str) -> bool:
            """Return whether an argument accepts a value: one of its choices, or one that is added elsewhere."""

        def registers_anew(self, name: str, release: str) -> bool:
            """Return whether the repository itself defines an argument that this release leaves to other packages."""

        @property
        def is_parser_known(self) -> bool:
            """Return whether an argument that neither the release nor this repository defines is certainly refused."""

        @property
        def classes(self) -> Mapping[str, Mapping[str, frozenset[str] | None]]:
            """Map each registered class, by kind and name, to its parameter names; None where they are unknown."""

        def has_class(self, name: str) -> bool:
            """Return whether a source of the repository defines a class of this name."""

        @property
        def root(self) -> Path:
            """Return the folder of the repository."""

        def read_target_arguments(self, target: str) -> frozenset[str] | None:
            """Return the arguments of a target of HyperParallel's Trainer; None if it takes any, or they are unknown."""

        @property
        def config_fields(self) -> Mapping[KeyPath, Mapping[str, Key]] | None:
            """Map the sections of HyperParallel's config classes to their fields; None if it has no such classes."""

    class JobView(Protocol):
        """The parts of a job (:class:`ms_tune.job.Job`) that dialects use."""

        @property
        def original(self) -> SourceFile:
            """Return the config as its author wrote it, without included files."""

        @property
        def dialect(self) -> Dialect:
            """Return the job's dialect."""

        @property
        def release(self) -> Release:
            """Return the framework and its release."""

        @property
        def source(self) -> SourceFile:
            """Return the config merged with everything that it includes from other files."""

        @property
        def model(self) -> ModelConfig:
            """Return the model, as the job's release defines it."""

        @property
        def checkout(self) -> CheckoutView | None:
            """Return the repository that contains the file, or None."""

        @property
        def layers(self) -> int | None:
            """Return the number of layers that the user gave on the command line, if the config lacks it."""

        @property
        def startup(self) -> Any:  # noqa: ANN401 - a record of that dialect
            """Return the settings of MindFormers' static graph that many checks need."""

        @property
        def plan(self) -> LayerPlan:
            """Return the plan of its layers."""

        def part(self, name: str) -> Any:  # noqa: ANN401 - the type depends on the part
            """Return one module (``read``, ``write`` ...) of its dialect."""

        def with_source(self, source: SourceFile) -> JobView:
            """Return the same job with another config."""


ENDLESS_LOOP = "endless-loop"


class PlanIssue(str, Enum):
    """Problems of plans and conversions that other code looks for; the value is the problem's ID."""

    ARGUMENTS_REJECTED = "arguments-rejected"  # the frameworks refuse a program's arguments
    AS_WRITTEN = "as-written"  # operators are shown as the config names them: the model's are unknown
    CELL_UNMATCHED = "cell-unmatched"  # a pattern matches operators, but none in some (chunk, stage) cells
    CONVERTED_NO_TREES = "convert-no-trees"
    CONVERTED_PREFETCH = "convert-prefetch"
    CONVERTED_STAND_IN = "convert-stand-in"
    CONVERTED_WIDER = "convert-wider"
    NO_MATCH = "no-match"
    OFFSET_REPEATED = "offset-repeated"
    ONE_CARD = "one-card"  # the config does not say that there is more than one device
    PATTERN_CELL = "pattern-cell"  # a pattern matches a module (MindSpore cell), not an operator
    PATTERN_EXCLUDED = "pattern-excluded"
    PATTERN_UNMATCHED = "pattern-unmatched"
    STAGE_EMPTY = "stage-empty"
    SWAP_DROPPED = "swap-dropped"
    SWAP_NO_STAGE = "swap-no-stage"


class Failure(Record):
    """A point where the framework stops."""

    exception: str  # class of the exception, or `ENDLESS_LOOP` when the framework never returns
    text: str  # the exception's own text
    layer: int | None = None  # the layer that it was about to set, if it got that far


class FrameworkStop(Exception):  # noqa: N818 - it represents an exception of the framework, not an error of ms-tune
    """An exception that the framework would raise, passed from the rule that predicts it to the plan or check that reports it."""

    def __init__(  # noqa: PLR0913, PLR0917 - the fields of the exception and of the check
        self,
        exception: str,
        text: str,
        why: Message | None = None,
        rule: str = "",
        path: KeyPath = (),
        message: str = "default",
        **params: object,
    ) -> None:
        super().__init__(f"{exception}: {text}")
        self.exception, self.text, self.why = exception, text, why
        self.rule, self.path, self.message, self.params = rule, path, message, params


def stop(exception: str, text: str, why: Message | None = None) -> NoReturn:
    """Raise the framework's exception as a :class:`FrameworkStop`."""
    raise FrameworkStop(exception, text, why)


def stop_at_first(refused: Iterable[FrameworkStop]) -> None:
    """Raise the first refusal, if there is any."""
    for refusal in refused:
        raise refusal


class Warned(str):
    """A line that the framework logs as a warning."""

    __slots__ = ()


class SwapPlan(Record):
    """One swap to the host (offload) that a layer performs."""

    target: str  # a pattern for its operators; empty for the whole layer
    prefetch: object  # how many operators before its use it is prefetched


class LayerSpec(Record):
    """The recomputation and swap of one layer.

    The patterns are those enabled (or excluded) for the layer; whether they match an operator depends on the model.
    ``overridden`` contains the patterns that would be enabled if the layer were not fully recomputed. ``kind`` is the
    kind of layer, if the arguments define it.
    """

    layer: int
    stage: int
    chunk: int
    recompute: RecomputeMode
    select_patterns: tuple[str, ...] = ()
    comm_patterns: tuple[str, ...] = ()
    select_excludes: tuple[str, ...] = ()
    comm_excludes: tuple[str, ...] = ()
    swap: tuple[SwapPlan, ...] = ()
    overridden: tuple[str, ...] = ()
    kind: LayerKind | None = None


MINDFORMERS = "mindformers"
MINDFORMERS_PYNATIVE = "mindformers-pynative"
MINDSPEED_MS = "mindspeed-ms"
MEGATRON = "megatron"


class LayerPlan(Record):
    """The placement, recomputation and swap of every layer of a config.

    Args:
        dialect: The dialect that the config is written in.
        framework_version: The release whose rules were applied.
        placement: Layer counts, chunks x stages. None when the framework refuses the placement.
        formative: The settings expanded to plain lists, by the dialect's own key names. None when the framework raises.
        layers: One entry per layer, in order; empty without ``formative``.
        problems: All findings, the framework's own failure first.
        log: Lines that the framework logs about it, as far as the config determines them.
        failure: Where the framework stops, if it does.
        matches: The operators that each pattern matches, if the model's operators are known and the layers use
            patterns.
        switched_on: The layers with all patterns enabled for them, while ``layers`` keeps only those that match
            something. Empty where the two are the same.
        read_from: Other files whose settings are part of the plan.
    """

    dialect: str
    framework_version: str
    placement: tuple[tuple[int, ...], ...] | None
    formative: Mapping[str, Any] | None
    layers: tuple[LayerSpec, ...]
    problems: tuple[Diagnostic, ...]
    log: tuple[str, ...] = ()
    failure: Failure | None = None
    matches: Mapping[str, tuple[str, ...]] | None = None
    switched_on: tuple[LayerSpec, ...] = ()
    read_from: tuple[str, ...] = ()


def recomputes(dialect: str, devices: int) -> bool:
    """Return whether a framework applies recompute and swap settings in a job with ``devices`` devices.

    MindFormers' dynamic graph does not on a single device: ``Trainer.__init__`` skips ``parallelize_model``, which
    applies both (mindformers/pynative/trainer/trainer.py, 2.0 and 2.1).
    """
    return dialect != MINDFORMERS_PYNATIVE or devices != 1


def on_devices(plan: LayerPlan, devices: int) -> LayerPlan:
    """Return the plan as it applies to a job with ``devices`` devices."""
    if recomputes(plan.dialect, devices):
        return plan
    idle = (LayerSpec(one.layer, one.stage, one.chunk, RecomputeMode.NONE, kind=one.kind) for one in plan.layers)
    return plan._replace(layers=tuple(idle), switched_on=())


def unmatched_cells(
    key: str, pattern: str, found: Mapping[tuple[int, int, int], bool], *, everywhere: bool
) -> Diagnostic | None:
    """Report the (chunk, stage) cells for whose layers a pattern is set but matches nothing, if any.

    If the pattern is set ``everywhere``, it probably targets only layers with the operator (severity info).
    """
    missed: dict[tuple[int, int], list[int]] = {}
    for chunk, stage, layer in found:
        missed.setdefault((chunk, stage), []).append(layer)
    hit = {(chunk, stage) for (chunk, stage, _), one in found.items() if one}
    cells = "; ".join(
        f"chunk {chunk}, stage {stage}, layer {', '.join(write_specs(layers))}"
        for (chunk, stage), layers in sorted(missed.items())
        if (chunk, stage) not in hit
    )
    if not cells:
        return None
    severity = Severity.INFO if everywhere else Severity.WARNING
    return Diagnostic("cell-unmatched", severity, msg("plans.cell-unmatched", key=key, pattern=pattern, cells=cells))


def report_literals(layers: Iterable[LayerSpec], known: Callable[[str], bool] | None = None) -> Iterator[Diagnostic]:
    """Report that patterns of the layers are shown as written, except those for which ``known`` is true."""
    patterns = dict.fromkeys(
        pattern
        for layer in layers
        for pattern in (
            *layer.select_patterns,
            *layer.comm_patterns,
            *layer.select_excludes,
            *layer.comm_excludes,
            *layer.overridden,
            *(swap.target for swap in layer.swap),
        )
        if pattern and not (known and known(pattern))
    )
    if patterns:
        yield Diagnostic(
            PlanIssue.AS_WRITTEN.value, Severity.INFO, msg("plans.as-written", patterns=", ".join(patterns))
        )


def failure_of(stop: FrameworkStop, layer: int | None = None) -> Failure:
    """Convert a framework's exception into a :class:`Failure`."""
    return Failure(stop.exception, stop.text, layer)


def failure_problem(step: str, framework: str, stop: FrameworkStop, remark: Message | None = None) -> Diagnostic:
    """Build the problem that reports a failure.

    ``step`` is the last part of the text ID ``plans.step.*``, and the prefix of the problem's ID.
    """
    what = f"{stop.exception}: {stop.text}" if stop.text else stop.exception
    if stop.exception == ENDLESS_LOOP:
        what = ENDLESS_LOOP
    where = msg(f"plans.step.{step}")
    why = remark or stop.why
    if why is None:
        message = msg("plans.rejected", framework=framework, where=where, what=what)
    else:
        message = msg("plans.rejected-why", framework=framework, where=where, what=what, why=why)
    return Diagnostic(f"{step}-rejected", Severity.ERROR, message)


def make_problem(name: str, severity: Severity = Severity.WARNING, /, **params: object) -> Diagnostic:
    """Report something that the framework silently accepts; the message is the text ``plans.NAME``."""
    return Diagnostic(name, severity, msg(f"plans.{name}", **params))


def second_name(own: str, field: Field) -> Diagnostic:
    """Report a second name for a number of layers: the framework stops when it converts the model's config.

    No layers are placed by then; the plan that would follow is reported all the same. Seen in MindFormers 1.7 to 2.1
    (``parallel_core/config_converter.py``): 'Mapping Conflicts', up to 1.8 'Multiple Config'.
    """
    message = msg("normalize.second-name", own=own, second=(field.path or (field.name,))[-1])
    return Diagnostic("second-name", Severity.ERROR, message, msg("normalize.second-name.hint", own=own))


MOST_LAYERS = 100_000  # upper bound for layer numbers when a range is expanded


def parse_specs(specs: Any) -> list[int]:  # noqa: ANN401 - the unchecked value of the config
    """Return the layers of a possibly unchecked list such as ``['0-2', 5]``, in ascending order."""
    found: set[int] = set()
    for spec in specs or ():
        first, last = _parse_spec(str(spec).strip())
        # Layers beyond the model are dropped later, so large ranges can be cut here.
        found.update(range(max(first, -MOST_LAYERS), min(last, MOST_LAYERS) + 1))
    return sorted(found)


def _parse_spec(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    try:
        return int(first.strip()), int((last if dash else first).strip())
    except ValueError as error:
        stop("ValueError", str(error))


def write_specs(layers: Iterable[int]) -> list[str]:
    """Return the shortest list for these layers: ``[0, 1, 2, 5]`` becomes ``['0-2', '5']``."""
    runs: list[list[int]] = []
    for layer in sorted(set(layers)):
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]
