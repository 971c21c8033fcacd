"""List the layouts that a new job may have, and predict their steps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.estimate.flops import Attention, Widths
from ms_tune.estimate.memory import RankShare
from ms_tune.estimate.step_time import (
    SHARDED_WEIGHTS,
    PassTimes,
    Software,
    end_times,
    hand_over_seconds,
    head_times,
    layer_times,
    sharded_pass,
    stage_parameters,
)
from ms_tune.facts.devices import DEFAULT_SPEED, Speed, find_speed
from ms_tune.facts.new_models import NewModel
from ms_tune.facts.query import load
from ms_tune.fit.layouts import can_accumulate, split_evenly
from ms_tune.planning.layouts import Layout, LayoutSpace, list_layouts
from ms_tune.records import Record

NODE = 8  # NPUs of a machine
LONG = 32_768  # tokens of a sequence from which context parallelism is tried
_CHUNKS, _SIZES, _CONTEXTS = (1, 2, 4), (1, 2, 4, 8), (1, 2, 4, 8, 16)
_DOUBLINGS = 12


class JobSize(Record):
    """The request."""

    model: NewModel
    dialect: Dialect
    devices: int
    tokens: int  # per sequence
    samples: int  # of a step, the global batch
    chip: str | None = None

    @property
    def node(self) -> int:
        """Return the NPUs of a machine that the job uses: the most that divide them evenly."""
        return max(one for one in range(1, NODE + 1) if self.devices % one == 0)

    @property
    def widths(self) -> Widths:
        """Return the sizes of the model."""
        return widths_of_new(self.model, self.tokens)


def widths_of_new(model: NewModel, tokens: int) -> Widths:
    """Return the sizes of a model that determine its operations."""
    number = model.number
    heads = number("num_attention_heads")
    attention = Attention(heads, number("num_key_value_heads"), number("head_dim"), number("head_dim"))
    if model.has("latent"):
        rotary = number("qk_rope_head_dim")
        head = number("qk_nope_head_dim") + rotary
        ranks = (number("q_lora_rank"), number("kv_lora_rank"), rotary)
        attention = Attention(heads, heads, head, number("v_head_dim"), *ranks)
    return Widths(
        hidden=number("hidden_size"),
        tokens=tokens,
        vocabulary=number("vocab_size"),
        attention=attention,
        feed_forward=number("intermediate_size"),
        gated=True,
        experts=number("routed"),
        chosen=number("num_experts_per_tok"),
        expert=number("moe_intermediate_size"),
        shared=number("shared_width"),
    )


def list_candidates(size: JobSize) -> Iterator[Layout]:
    """Yield the layouts that the framework can run and that follow the rules: TP within a machine, CP for long sequences only.

    HyperParallel stops before the first step if the compute of CP or EP is not injected, which differs by model and generation.
    """
    model, injects = size.model, size.dialect is Dialect.HYPER_PARALLEL
    long = size.tokens >= LONG and not injects
    contexts = [one for one in _CONTEXTS if one == 1 or (long and size.tokens % (2 * one) == 0)]
    for context, chunks, samples in product(contexts, _CHUNKS, _SIZES):
        keep = {"cp": context, "vpp": chunks, "mbs": samples}
        keep |= {} if model.has("experts") and (not injects or model.has("expert_compute")) else {"ep": 1}
        if size.samples % samples or (chunks > 1 and not _has_stages(size)):
            continue
        space = LayoutSpace(
            now=Layout(micro_batches=size.samples),
            devices=size.devices,
            layers=model.number("num_hidden_layers"),
            heads=model.number("num_attention_heads"),
            groups=model.number("num_key_value_heads"),
            experts=model.number("routed") or 1,
            node=size.node,
            free=("dp", "tp", "pp", "ep"),
            keep=keep,
            samples=size.samples,
            tokens=size.tokens,
        )
        yield from (one for one in list_layouts(space).found if _is_possible(size, one))


def _has_stages(size: JobSize) -> bool:
    # Return whether the network can be cut into pipeline stages.
    if size.dialect is Dialect.HYPER_PARALLEL:
        return False
    pipelined = load("from_zero")["stages"].get(size.dialect.value)
    return pipelined is None or size.model.values["model_type"] in pipelined


def _is_possible(size: JobSize, one: Layout) -> bool:
    model, words = size.model, size.model.number("vocab_size")
    inner = (model.number("intermediate_size"), model.number("shared_width"))
    expert_ranks = one.data * one.tensor
    if size.dialect is Dialect.MEGATRON:  # it pads the vocabulary; ranks of TP share an expert
        words, expert_ranks = 0, one.data
    elif size.dialect is Dialect.HYPER_PARALLEL:
        expert_ranks = one.data
    accumulates = can_accumulate(size.dialect, one)
    return (
        not any(each % one.tensor for each in (words, *inner))
        and size.node % one.tensor == 0
        and (one.pipeline == 1 or _has_stages(size))
        and expert_ranks % one.expert == 0
        and (one.chunks == 1 or one.micro_batches % one.pipeline == 0)
        and accumulates
        and (one.size == 1 or (size.dialect is Dialect.MINDFORMERS and one.micro_batches == 1))
    )


def step_seconds(size: JobSize, layout: Layout, recomputed: float) -> float:
    """Predict the step of a layout; ``recomputed`` is the part of the layers that are recomputed in full.

    The pipeline is in closed form: all micro-batches on the slowest stage, and its bubble (Narayanan et al., 2021, section 2.2).
    """
    widths, experts, speed = size.widths, size.model.has("experts"), speed_of(size.chip)
    sharded = size.dialect in (Dialect.MINDFORMERS_PYNATIVE, Dialect.HYPER_PARALLEL)
    software = Software(shards=SHARDED_WEIGHTS if sharded else 1, overlaps=True)
    tokens = size.tokens * layout.size // layout.context
    share = RankShare(tokens, layout.tensor, layout.tensor > 1, layout.context, layout.expert, layout.data)
    times = layer_times(widths, share, speed, software, experts=experts)
    layer = times.forward + times.backward + recomputed * times.again[RecomputeMode.FULL]
    head, predictions = head_times(widths, share, speed), size.model.number("predictions")
    layers = [sum(column) for column in zip(*split_evenly(size.model.number("num_hidden_layers"), layout), strict=True)]
    moved = 2 * layout.chunks * hand_over_seconds(widths, share, speed, software) if layout.pipeline > 1 else 0.0
    last = (layers[-1] + predictions) * layer + (1 + predictions) * (head.forward + head.backward)
    slowest: float = max(last, max(layers) * layer) + moved
    parameters = stage_parameters(widths, share, 0 if experts else max(layers), max(layers) if experts else 0)
    if sharded:  # weights are gathered for each pass
        slowest = max(slowest, sum(sharded_pass(PassTimes(0, 0), parameters, share, speed)[:2]))
    bubble = (layout.pipeline - 1) / layout.chunks * max(layers) * layer
    stage = times._replace(forward=max(layers) * times.forward, backward=max(layers) * times.backward)
    after = end_times(parameters, share, speed, software).after(stage, software)
    return float(after + bubble + layout.micro_batches * slowest)


def speed_of(chip: str | None) -> Speed:
    """Return the speed of a device, or of a 910B2 if its links are unknown."""
    found = find_speed(chip or DEFAULT_SPEED) or find_speed(DEFAULT_SPEED)
    assert found is not None  # noqa: S101 - its links are known
    return found


def nearest_samples(size: JobSize) -> tuple[int, ...]:
    """Return the two nearest global batches that a layout divides; fewer if there are none."""
    shares = [one for one in range(1, size.node + 1) if size.node % one == 0]
    tried = {size.devices // one << doubled for one in shares for doubled in range(_DOUBLINGS)}
    good = [one for one in sorted(tried) if any(list_candidates(size._replace(samples=one)))]
    return tuple(sorted(good, key=lambda one: abs(one - size.samples))[:2])
