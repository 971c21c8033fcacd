"""What each framework makes of a job: how its config is read, where layers lie, what they recompute and swap, what it refuses and ignores.

Here is what comes of that in every dialect alike, the plan of the job (:class:`LayerPlan`): a report or a conversion need not know
where a plan came from.
"""

from __future__ import annotations

from enum import Enum

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.enums import RecomputeMode
from ms_tune.records import Record
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, NoReturn, Protocol

    from ms_tune.diagnostics import KeyPath
    from ms_tune.enums import Dialect, LayerKind
    from ms_tune.facts.models import Field, ModelConfig
    from ms_tune.facts.query import Release
    from ms_tune.source.yaml import SourceFile
    from ms_tune.text import Message

    class CheckoutView(Protocol):
        """What of the repository around a file (:class:`ms_tune.job.checkout.Checkout`) the parts of a dialect look at."""

        @property
        def arguments(self) -> Mapping[str, tuple[str, ...] | None]:
            """The arguments that its training programs define, with their choices; None for one that takes any value."""

        def takes_value(self, name: str, value: str) -> bool:
            """Whether a value is one that it lets an argument have, which need not be its own."""

        @property
        def classes(self) -> Mapping[str, Mapping[str, frozenset[str] | None]]:
            """The classes that it registers: by kind and name, the parameters of each; None where they are not known."""

    class JobView(Protocol):
        """What of a job (:class:`ms_tune.job.Job`) the parts of a dialect look at."""

        @property
        def written(self) -> SourceFile:
            """The config as its author wrote it."""

        @property
        def dialect(self) -> Dialect:
            """Its dialect."""

        @property
        def release(self) -> Release:
            """The framework and its release."""

        @property
        def source(self) -> SourceFile:
            """The config with everything that it takes from other files."""

        @property
        def model(self) -> ModelConfig:
            """Its model, in the release that the job is read for."""

        @property
        def checkout(self) -> CheckoutView | None:
            """The repository around the file; None where there is none."""

        @property
        def layers(self) -> int | None:
            """The number of layers that the user adds to a config that does not tell it."""

        @property
        def startup(self) -> Any:  # noqa: ANN401 - a record of that dialect
            """What MindFormers' static graph makes of the settings that many checks ask for."""

        @property
        def plan(self) -> LayerPlan:
            """What each layer does."""

        def part(self, name: str) -> Any:  # noqa: ANN401 - what a part has is for the caller to know
            """One part (``read``, ``write`` ...) of its dialect."""

        def with_source(self, source: SourceFile) -> JobView:
            """The same job of another config."""


ENDLESS_LOOP = "endless-loop"


class PlanIssue(str, Enum):
    """What plans and conversions tell that others ask for again; a problem has its value for an id."""

    ARGUMENTS_REJECTED = "arguments-rejected"  # the frameworks refuse a program's arguments
    AS_WRITTEN = "as-written"  # operators are told as the config has them: the model's are not known
    CELL_UNMATCHED = "cell-unmatched"  # a pattern finds operators, but none in some cells
    CONVERTED_NO_TREES = "convert-no-trees"
    CONVERTED_PREFETCH = "convert-prefetch"
    CONVERTED_STAND_IN = "convert-stand-in"
    CONVERTED_WIDER = "convert-wider"
    NO_MATCH = "no-match"
    OFFSET_REPEATED = "offset-repeated"
    ONE_CARD = "one-card"  # nothing says that there are more devices than one
    PATTERN_CELL = "pattern-cell"  # a pattern finds a cell where an operator is wanted
    PATTERN_EXCLUDED = "pattern-excluded"
    PATTERN_UNMATCHED = "pattern-unmatched"
    STAGE_EMPTY = "stage-empty"
    SWAP_DROPPED = "swap-dropped"
    SWAP_NO_STAGE = "swap-no-stage"


class Failure(Record):
    """Where the framework does not go on."""

    exception: str  # the class of what it raises, or `ENDLESS_LOOP` when it never comes back
    text: str  # the exception's own text
    layer: int | None = None  # the layer it was about to set, if it got that far


class FrameworkStop(Exception):  # noqa: N818 - it stands for an exception of the framework, and is none of ours
    """Carries what the framework raises from the rule that knows it to whoever reports it: a plan, or the check that tells of it.

    Args:
        exception: The class of what it raises, or :data:`ENDLESS_LOOP`.
        text: The exception's own text.
        why: What the text leaves unsaid.
        rule: The id of the check that tells of it; empty if none does.
        path: The setting at fault.
        message: Which of that check's messages says so.
        params: The message's parameters.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what the framework says, and what a check does
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
    """The framework raises this exception here."""
    raise FrameworkStop(exception, text, why)


def stop_at_first(refused: Iterable[FrameworkStop]) -> None:
    """The framework raises the first of what it refuses, if there is any."""
    for refusal in refused:
        raise refusal


class Warned(str):
    """A line that the framework logs as a warning."""

    __slots__ = ()


class SwapPlan(Record):
    """What one layer offloads to the host."""

    target: str  # a pattern for its operators; empty for the whole layer
    prefetch: object  # how many operators ahead of its use it is fetched back


class LayerSpec(Record):
    """What one layer recomputes and swaps.

    The patterns are those switched on (or excluded) for the layer. Whether an operator of the model matches one is
    for the model to say. ``overridden`` are the patterns that would be on if the layer were not recomputed in full.
    ``kind`` is what the layer is, if the arguments tell.
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
    """What every layer of a config does, and how its framework spells that out.

    Args:
        dialect: The dialect that the config is written in.
        framework_version: The release whose rules were applied.
        placement: Layers of each cell: chunks x stages. None when the framework refuses the placement.
        formative: The values spelled out in full, as plain lists, by the dialect's own key names. None when the
            framework raises.
        layers: One entry a layer, in order; empty when ``formative`` is None.
        problems: Everything worth saying, the framework's own failure first.
        log: What the framework logs about it, as far as that follows from the config.
        failure: Where the framework stops, if it does.
        matches: What each pattern of the layers finds in them, if the model's operators are known and the layers name
            patterns.
        switched_on: The layers with all patterns that the lists switch on for them, where ``layers`` has only those
            that find something. Empty where the two are the same.
        read_from: The files beside the config whose settings are in the plan.
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
    """Whether a framework looks at settings of recompute and swap in a job with so many devices.

    MindFormers' dynamic graph does not on one: ``Trainer.__init__`` leaves ``parallelize_model`` out, which does both
    (mindformers/pynative/trainer/trainer.py, 2.0 and 2.1).
    """
    return dialect != MINDFORMERS_PYNATIVE or devices != 1


def on_devices(plan: LayerPlan, devices: int) -> LayerPlan:
    """What the layers of a plan do in a job with so many devices."""
    if recomputes(plan.dialect, devices):
        return plan
    idle = (LayerSpec(one.layer, one.stage, one.chunk, RecomputeMode.NONE, kind=one.kind) for one in plan.layers)
    return plan._replace(layers=tuple(idle), switched_on=())


def unmatched_cells(
    key: str, pattern: str, found: Mapping[tuple[int, int, int], bool], *, everywhere: bool
) -> Diagnostic | None:
    """The problem that tells in which cells a pattern finds nothing, although it is for layers of theirs.

    Args:
        key: The setting.
        pattern: The pattern.
        found: Whether it finds anything, for each (chunk, stage, layer) that it is for.
        everywhere: Whether it is for all layers: then it is meant for those that have the operator, most likely.
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


def as_written(layers: Iterable[LayerSpec], known: Callable[[str], bool] | None = None) -> Iterator[Diagnostic]:
    """The note that patterns of the layers are shown as written; ``known`` tells those that are not."""
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
    """The failure that a framework's exception amounts to."""
    return Failure(stop.exception, stop.text, layer)


def failure_problem(step: str, framework: str, stop: FrameworkStop, remark: Message | None = None) -> Diagnostic:
    """The problem that tells of a failure.

    Args:
        step: What the framework was doing; the last part of a text ``plans.step.*`` and of the problem's id.
        framework: The framework's name.
        stop: What it raised.
        remark: What its author should know beyond the exception.
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


def tell_trap(name: str, severity: Severity = Severity.WARNING, /, **params: object) -> Diagnostic:
    """The problem that tells of something which the framework accepts without a word; its words are the text ``plans.NAME``."""
    return Diagnostic(name, severity, msg(f"plans.{name}", **params))


def second_name(own: str, field: Field) -> Diagnostic:
    """A second name for a number of layers that the class has in any case: the framework stops when it converts the model's config.

    It has placed nothing by then, so that what layers would do is told all the same. Seen in 1.7 to 2.1 of MindFormers
    (``parallel_core/config_converter.py``): 'Mapping Conflicts', up to 1.8 'Multiple Config'.

    Args:
        own: The name that the class has for it.
        field: What is written, see :meth:`ms_tune.facts.models.ModelConfig.clashes`.
    """
    message = msg("normalize.second-name", own=own, second=(field.path or (field.name,))[-1])
    return Diagnostic("second-name", Severity.ERROR, message, msg("normalize.second-name.hint", own=own))


MOST_LAYERS = 100_000  # a range is spread out only up to here


def parse_specs(specs: Any) -> list[int]:  # noqa: ANN401 - as the config has it
    """The layers of a list that may not have been checked, in ascending order.

    Raises:
        FrameworkStop: The framework raises.
    """
    found: set[int] = set()
    for spec in specs or ():
        first, last = _parse_spec(str(spec).strip())
        # Layers that no model has are dropped later, so there is no need to count up to them.
        found.update(range(max(first, -MOST_LAYERS), min(last, MOST_LAYERS) + 1))
    return sorted(found)


def _parse_spec(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    try:
        return int(first.strip()), int((last if dash else first).strip())
    except ValueError as error:
        stop("ValueError", str(error))


def write_specs(layers: Iterable[int]) -> list[str]:
    """The shortest list for these layers: ``[0, 1, 2, 5]`` is ``['0-2', '5']``."""
    runs: list[list[int]] = []
    for layer in sorted(set(layers)):
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]
