"""Read published training steps (``data/step_times.json``), and predict each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.estimate.flops import Attention, Widths, head_flops, layer_flops
from ms_tune.estimate.step_time import Software
from ms_tune.facts.devices import Speed, find_speed
from ms_tune.fit.step_time import StepModel, StepTime
from ms_tune.planning.layouts import Layout
from ms_tune.planning.schedule import Schedule
from tests.files import read_data

DATA = read_data("step_times.json")


@dataclass(frozen=True)
class PublishedStep:
    """A published step, with its source and whether it calibrates the model."""

    values: dict[str, Any]
    source: dict[str, Any]
    fitted: bool

    @cached_property
    def _sizes(self) -> dict[str, int]:
        return dict(zip(DATA["model_columns"], DATA["models"][self.values["model"]], strict=True))

    @property
    def widths(self) -> Widths:
        """Return the sizes of the model."""
        sizes = self._sizes
        head = sizes["hidden"] // sizes["heads"]
        attention = Attention(sizes["heads"], sizes["groups"], head, head)
        rest = (sizes["ffn"], bool(sizes["gated"]))
        return Widths(sizes["hidden"], self.values["seq"], sizes["vocab"], attention, *rest)

    @property
    def layout(self) -> Layout:
        """Return the layout."""
        one = self.values
        data = one["devices"] // (one["tp"] * one["pp"] * one["cp"])
        count = max(one["gbs"] // (data * one["mbs"]), 1)
        return Layout(one["tp"], one["pp"], one["vpp"], one["cp"], 1, one["mbs"], data, count)

    @property
    def seconds(self) -> float:
        """Return the published time, converted from throughput or operations per second if these were published."""
        figure, tokens = self.values["figure"], self.values["gbs"] * self.values["seq"] / self.values["devices"]
        if self.source["unit"] == "seconds":
            return float(figure)
        if self.source["unit"] == "tokens/s":
            return float(tokens / figure)
        layers = 4 if self.source["unit"] == "hardware-tflops" else 3
        flops = layers * self._sizes["layers"] * layer_flops(self.widths, experts=False) + 3 * head_flops(self.widths)
        return float(flops * tokens / figure / 1e12)

    def predict(self, speed: Speed | None = None) -> StepTime:
        """Predict the step."""
        one, layout = self.values, self.layout
        speed = speed or find_speed(one["device"])
        assert speed is not None
        speed = speed._replace(between_gbs=self.source.get("between_gbs", speed.between_gbs))
        named = [
            *self.source.get("software", ()),
            *(self.source.get("recomputed", ()) if one["recompute"] == "full" else ()),
        ]
        software = Software(bool(one["flash"]), 4, one["zero"], bool(one["overlap"]), fused=bool(one["tp_overlap"]))
        software = software._replace(**dict.fromkeys(named, True))
        each, rest = divmod(self._sizes["layers"], layout.pipeline * layout.chunks)
        cells = [
            {RecomputeMode(one["recompute"]): each + (cell < rest)} for cell in range(layout.pipeline * layout.chunks)
        ]
        schedule = Schedule.INTERLEAVED if layout.chunks > 1 else Schedule.ONE_FORWARD_ONE_BACKWARD
        model = StepModel(self.widths, [LayerKind.DENSE] * self._sizes["layers"], speed)
        return model.predict(layout, schedule, cells, software, sequence=bool(one["sp"]))


def published_steps() -> Iterator[PublishedStep]:
    """Yield all steps; of each source and device, every second model calibrates."""
    order: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for row in DATA["points"]:
        values = dict(zip(DATA["columns"], row, strict=True))
        models = order.setdefault((values["source"], values["device"]), [])
        model = (values["model"], values["seq"])
        if model not in models:
            models.append(model)
        yield PublishedStep(values, DATA["sources"][values["source"]], models.index(model) % 2 == 0)
