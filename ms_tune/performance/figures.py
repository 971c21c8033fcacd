"""Throughput and utilisation of a run, from its median step: what they take, and where each input came from."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ms_tune.performance.result import Figure
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.performance.request import MetricsRequest
    from ms_tune.texts import Message
    from ms_tune.trace.logged_steps import RankSteps

_EXACT = 1e15  # below, whole numbers are whole as floats too


@dataclass(frozen=True, slots=True)
class Known:
    """A number and where it came from.

    Attributes:
        name: What it is: the last part of its text's id.
        value: The number; None where nobody tells.
        source: Where it came from.
        option: What would tell it.
    """

    name: str
    value: float | None
    source: Message | None = None
    option: str = ""

    def told(self) -> Message:
        """As a line for the user."""
        return msg(f"metrics.input.{self.name}", value=shown(self.value), source=self.source or "")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the figures of a run are made of: see the texts of their names."""

    step: Known
    batch: Known
    tokens: Known
    step_tokens: Known
    cards: Known
    peak: Known
    rate: Known
    logged: Known
    counted: Known
    hardware: Known


def shown(value: float | None) -> str:
    """A number as people write it."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) < _EXACT and value == int(value) else f"{value:,.6g}"


def inputs_of(
    steps: RankSteps, request: MetricsRequest, step_seconds: float | None, peak: tuple[float, Message] | None
) -> Inputs:
    """Collect the inputs of one run's figures.

    Args:
        steps: The run's steps.
        request: What the user says, which comes before the log.
        step_seconds: Its median step.
        peak: Peak of a device in TFLOP/s, and where it came from.
    """
    log, option = msg("metrics.source.log"), msg("metrics.source.option")
    batches = {one for one in steps.batch if one}
    batch = float(batches.pop()) if len(batches) == 1 else None

    def first(name: str, option_name: str, said: float | None, logged: float | None) -> Known:
        if said is not None:
            return Known(name, said, option, option_name)
        return Known(name, logged, log if logged is not None else None, option_name)

    return Inputs(
        step=first("step", "", None, step_seconds),
        batch=first("batch", "--gbs", request.batch, batch),
        tokens=first("tokens", "--seq", request.tokens, None),
        step_tokens=first("step-tokens", "", None, _tokens_of_a_step(steps)),
        cards=first("cards", "--cards", request.cards, None),
        peak=Known("peak", peak[0] if peak else None, peak[1] if peak else None, "--chip"),
        rate=first("rate", "", None, _middle(steps.rate)),
        logged=first("logged", "", None, _middle(steps.tflops)),
        counted=first("counted", "", None, _middle(steps.counted)),
        hardware=first("hardware", "", None, _middle(steps.hardware)),
    )


def throughput(inputs: Inputs) -> Iterator[Figure]:
    """Samples and tokens a second, of all cards and of one."""
    step, batch, cards, tokens = inputs.step, inputs.batch, inputs.cards, inputs.tokens
    yield _quotient("samples_per_second", "metrics.formula.samples", [batch], [step])
    if inputs.rate.value is not None and (batch.value is None or cards.value is None):
        yield Figure(
            "samples_per_second_per_card", inputs.rate.value, msg("metrics.formula.rate"), (inputs.rate.told(),)
        )
    else:
        yield _quotient("samples_per_second_per_card", "metrics.formula.samples-card", [batch], [cards, step])
    if inputs.step_tokens.value is not None and tokens.value is None:
        top, formula = [inputs.step_tokens], "metrics.formula.step-tokens"
    else:
        top, formula = [batch, tokens], "metrics.formula.tokens"
    yield _quotient("tokens_per_second", formula, top, [step])
    if inputs.rate.value is not None and tokens.value is not None and (batch.value is None or cards.value is None):
        yield _quotient("tokens_per_second_per_card", "metrics.formula.tokens-rate", [inputs.rate, tokens], [])
    else:
        yield _quotient("tokens_per_second_per_card", f"{formula}-card", top, [cards, step])


def utilisation(inputs: Inputs) -> Iterator[Figure]:
    """Operations a second and card, and their share of the peak, by what the log says.

    What counts the operations that ran comes before a formula. Above the peak there is no share.
    """
    of = inputs.counted if inputs.counted.value is not None else inputs.logged
    formula = msg(f"metrics.formula.{of.name}")
    known = of.value is not None
    yield Figure("tflops_per_card", of.value, formula, (of.told(),) if known else ())
    yield share("mfu", of, inputs.peak)
    if inputs.hardware.value is not None:
        yield share("hfu", inputs.hardware, inputs.peak)


def share(name: str, of: Known, peak: Known) -> Figure:
    """A part of the peak; none where it would be more than all of it."""
    formula = msg(f"metrics.formula.{name}")
    if of.value is None or peak.value is None:
        return Figure(name, None, formula, (), (peak.option,) if peak.value is None else ())
    value = of.value / peak.value
    return Figure(name, value if value <= 1 else None, formula, (of.told(), peak.told()))


def _quotient(name: str, formula: str, top: Sequence[Known], bottom: Sequence[Known]) -> Figure:
    parts = [*top, *bottom]
    missing = tuple(part.option for part in parts if part.value is None and part.option)
    if any(not part.value for part in parts):
        return Figure(name, None, msg(formula), (), missing)
    value = 1.0
    for part in top:
        value *= part.value or 1
    for part in bottom:
        value /= part.value or 1
    return Figure(name, value, msg(formula), tuple(part.told() for part in parts))


def _middle(column: Sequence[float]) -> float | None:
    """The median of what is logged, without the first step; of that if there is no other."""
    values = [value for value in column[1:] if value == value]  # noqa: PLR0124 - NaN is what is not logged
    values = values or [value for value in column[:1] if value == value]  # noqa: PLR0124 - as above
    return median(values) if values else None


def _tokens_of_a_step(steps: RankSteps) -> float | None:
    """Tokens that a step consumes, where the log counts them."""
    pairs = zip(steps.tokens, steps.tokens[1:], steps.number, steps.number[1:], strict=False)
    rises = [(after - before) / (n - m) for before, after, m, n in pairs if 0 < before < after and n > m]
    return median(rises) if rises else None
