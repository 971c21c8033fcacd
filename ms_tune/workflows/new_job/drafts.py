"""Write a new job's config in one layout, with as many recomputed layers as its memory needs by the estimate.

Lines of a template that begin with ``?NAME`` are written if the value is true, with ``?!NAME`` if not; ``<<NAME>>`` is a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ms_tune.dryrun.prepare import limit_before, limit_of_script, load_config
from ms_tune.dryrun.request import DryrunRequest, Split
from ms_tune.enums import Dialect
from ms_tune.errors import UnsupportedError
from ms_tune.estimate.flops import layer_parameters
from ms_tune.estimate.memory import Estimate, LiveLayers, RankShare, estimate_stage, logits_bytes, megatron_activations
from ms_tune.facts.devices import pool_of
from ms_tune.facts.query import data_folder, default_release
from ms_tune.fit.job import PlannedJob, layer_offset_or_none, read_job, write_lists
from ms_tune.fit.layouts import split_evenly
from ms_tune.job import Job
from ms_tune.job.script import ScriptJob
from ms_tune.normalize.sapp_lists import SappLists
from ms_tune.planning.layouts import Layout
from ms_tune.records import Any, Record
from ms_tune.source.edit import spell
from ms_tune.source.yaml import parse_source
from ms_tune.text import msg
from ms_tune.units import GIB
from ms_tune.verdict.limit import device_of, limit_of_torch
from ms_tune.workflows.check.config import OverviewRequest
from ms_tune.workflows.check.estimate import estimate_parts, read_stages
from ms_tune.workflows.check.program import ProgramEstimate, estimate_program
from ms_tune.workflows.new_job.layouts import LONG, JobSize

TEMPLATES = {
    Dialect.MINDFORMERS: "mindformers",
    Dialect.MINDFORMERS_PYNATIVE: "mindformers_pynative",
    Dialect.MEGATRON: "megatron",
    Dialect.HYPER_PARALLEL: "hyper_parallel",
}
_WHEN = re.compile(r"\?(!?)(\w+) (.*)", re.DOTALL)
_VALUE = re.compile(r"<<(\w+)>>")
# Above the estimate, the memory to leave free: programs are estimated within a wider range than a layout can be chosen by.
_MARGIN = 1.25
# HyperParallel with FSDP2: bfloat16 weights, float32 gradients, main weights and two moments, all sharded (`fp32_main_params`).
_SHARDED, _GATHERED = 18, 6
_NO_RATIOS = (0.7, 1.4)  # of HyperParallel no peak was compared


class Draft(Record):
    """A config in one layout."""

    layout: Layout
    text: str
    estimate: Estimate
    layers: tuple[int, ...]  # layers of each stage
    recomputed: tuple[int, ...]  # those of them that are recomputed in full
    fits: bool  # whether it is estimated to fit, with a margin

    @property
    def share(self) -> float:
        """Return the share of recomputed layers in the stage that recomputes most."""
        return max(again / count for again, count in zip(self.recomputed, self.layers, strict=True))


class DraftRequest(Record):
    """The files to write."""

    size: JobSize
    job: DryrunRequest  # the device; `config` is the file to write
    notes: tuple[str, ...] = ()  # remarks at the top of the file
    margin: float | None = None  # ratio of the memory to leave to the estimate; None for that of such jobs

    @property
    def path(self) -> Path:
        """Return the file to write."""
        return self.job.config or Path("train.yaml")

    def is_below(self, estimate: Estimate) -> bool:
        """Return whether the fullest stage fits even if it needs more than its estimate by the usual error."""
        margin = self.margin or min(estimate.ratio_range[1], _MARGIN)
        return estimate.fullest.peak_bytes * margin <= estimate.room_bytes

    @property
    def launch(self) -> Path:
        """Return the launch script, next to the config."""
        return self.path.with_suffix(".sh")


def write_draft(request: DraftRequest, layout: Layout) -> Draft:
    """Return the config for a layout, with the fewest recomputed layers that fit; with all of them if none fits."""
    return {Dialect.MEGATRON: _write_script, Dialect.HYPER_PARALLEL: _write_hyper}.get(
        request.size.dialect, _write_config
    )(request, layout)


def fill_template(name: str, values: dict[str, Any]) -> str:
    """Return the text of a template with these values."""
    text = (data_folder("yaml_templates") / "from_zero" / f"{name}.txt").read_text(encoding="utf-8")
    return "".join(_fill_lines(text.splitlines(keepends=True), values))


def _fill_lines(lines: Sequence[str], values: dict[str, Any]) -> Iterator[str]:
    for line in lines:
        when = _WHEN.fullmatch(line)
        if when is None or bool(values.get(when[2])) is not bool(when[1]):
            yield _VALUE.sub(lambda match: _spell(values[match[1]]), line if when is None else when[3])


def _spell(value: object) -> str:
    return value if isinstance(value, str) else spell(value)


def values_of(request: DraftRequest, layout: Layout, **more: object) -> dict[str, Any]:
    """Return the values of the templates."""
    size, model = request.size, request.size.model
    return {
        **model.values_for(size.tokens),
        "name": model.name,
        "release": default_release(size.dialect),
        "chip": size.chip or "910B",
        "memory": pool_of(device_of(request.job.chip, request.job.device_bytes).free_bytes) // GIB,
        "file": request.path.name,
        "launch": request.launch.name,
        "padded_vocab": -(-model.number("vocab_size") // layout.tensor) * layout.tensor,
        "notes": "\n".join(f"# {one}" for one in request.notes) or "#",
        "devices": size.devices,
        "node": size.node,
        "nodes": size.devices // size.node,
        "per_node": size.node,
        "seq": size.tokens,
        "gbs": size.samples,
        "dp": layout.data,
        "tp": layout.tensor,
        "pp": layout.pipeline,
        "vpp": layout.chunks,
        "cp": layout.context,
        "ep": layout.expert,
        "mbs": layout.size,
        "micro_batches": layout.micro_batches,
        "sequence": layout.tensor > 1,
        "long": size.tokens >= LONG,
        "context": layout.context > 1,
        "interleaved": layout.chunks > 1,
        "own_experts": model.number("routed") // layout.expert,
        **more,
    }


def _write_config(request: DraftRequest, layout: Layout) -> Draft:
    # Of MindFormers: recomputed layers are counted stage by stage.
    text = fill_template(TEMPLATES[request.size.dialect], values_of(request, layout))
    loaded = load_config(request.job, Job(parse_source(text, request.path)))
    cells = split_evenly(request.size.model.number("num_hidden_layers"), layout)
    nothing = [[0] * layout.pipeline for _ in cells]
    if layer_offset_or_none(cells):
        loaded = write_lists(loaded, SappLists(layer_offset_or_none(cells), nothing, None, None))
    job = read_job(request.job, loaded)
    parts = read_stages(job)
    limit, reserve = limit_before(request.job, job.first)
    base = estimate_parts(job, parts, limit, reserve)
    layers = tuple(map(sum, zip(*cells, strict=True)))
    again = []
    for part, count in zip(parts, layers, strict=True):
        tries = (base._replace(stages=(part.estimate(more),)) for more in range(count + 1))
        again.append(next((more for more, one in enumerate(tries) if request.is_below(one)), count))
    draft = _with_recomputed(request, job, cells, tuple(again))
    if not draft.fits and any(again):  # the layers for multi-token prediction are recomputed like the last layer
        draft = _with_recomputed(request, job, cells, layers)
    return draft._replace(layout=layout)


def _with_recomputed(request: DraftRequest, job: PlannedJob, cells: list[list[int]], again: tuple[int, ...]) -> Draft:
    lists, left = [], list(again)
    for row in cells:
        lists.append([min(count, rest) for count, rest in zip(row, left, strict=True)])
        left = [rest - taken for rest, taken in zip(left, lists[-1], strict=True)]
    loaded = job.loaded
    if any(again):
        loaded = write_lists(loaded, SappLists(layer_offset_or_none(cells), lists, None, None))
    job = read_job(request.job, loaded)
    limit, reserve = limit_before(request.job, job.first)
    estimate = estimate_parts(job, read_stages(job), limit, reserve)
    layers = tuple(map(sum, zip(*cells, strict=True)))
    return Draft(Layout(), loaded.source.text, estimate, layers, again, request.is_below(estimate))


def _write_script(request: DraftRequest, layout: Layout) -> Draft:
    # Of MindSpeed-LLM: as many layers of each chunk of each stage (`--recompute-method block`).
    cells = split_evenly(request.size.model.number("num_hidden_layers"), layout)
    layers = tuple(map(sum, zip(*cells, strict=True)))
    most = max(map(max, cells))
    overview, release = OverviewRequest(request.job), default_release(Dialect.MEGATRON)

    def attempt(count: int) -> Draft:
        listed = ",".join(map(str, layers)) if len(set(layers)) > 1 else ""
        values = values_of(request, layout, full_layers=count, cell_layers=most, layer_list=listed)
        text = fill_template("megatron", values)
        found = estimate_program(overview, ScriptJob(request.path, text, version=release))
        if not isinstance(found, ProgramEstimate):
            raise found
        estimate = found.estimate
        if estimate is None:
            raise found.error or UnsupportedError(msg("check.script.no-estimate"))
        again = tuple(min(each, count * layout.chunks) for each in layers)
        return Draft(layout, text, estimate, layers, again, request.is_below(estimate))

    low, high, best = 0, most, attempt(0)
    if best.fits:
        return best
    best = attempt(most)
    while best.fits and high - low > 1:  # fewer recomputed layers need more memory
        middle = (low + high) // 2
        tried = attempt(middle)
        low, high, best = (low, middle, tried) if tried.fits else (middle, high, best)
    return best


def _write_hyper(request: DraftRequest, layout: Layout) -> Draft:
    # All layers are recomputed, or none: HyperParallel's ``activation_checkpoint.mode``.
    size, widths = request.size, request.size.widths
    layers, experts = size.model.number("num_hidden_layers"), bool(widths.experts)
    tokens = size.tokens * layout.size // layout.context
    share = RankShare(tokens, layout.tensor, layout.tensor > 1, layout.context, layout.expert, layout.data)
    each = layer_parameters(widths, layout.tensor, layout.expert, experts=experts)
    whole = layer_parameters(widths, layout.tensor, 1, experts=experts) * layers
    ends = 2 * widths.hidden * widths.vocabulary // layout.tensor  # embedding and head
    lasting = _SHARDED * (whole + ends) // (layout.data * layout.context)
    split = Split(layout.data, layout.tensor, layout.pipeline, layout.context, layout.expert)
    limit, reserve = limit_of_script(request.job, split)
    limit = limit_of_torch(limit.device)
    activations = megatron_activations(widths, share, experts=experts, fused=False)
    found = []
    for full in (False, True):
        live = [LiveLayers(activations, 1, full=full, layers=layers)]
        stage = estimate_stage(0, layers, lasting, live, logits_bytes(widths, share))
        stage = stage._replace(transient_bytes=stage.transient_bytes + _GATHERED * 2 * each)
        estimate = Estimate((stage,), limit, reserve, _NO_RATIOS)
        text = fill_template("hyper_parallel", values_of(request, layout, recomputes=full))
        again = layers if full else 0
        found.append(Draft(layout, text, estimate, (layers,), (again,), request.is_below(estimate)))
    return found[0] if found[0].fits else found[1]
