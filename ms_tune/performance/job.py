"""What a config, or a launch script, tells about a run that its log does not: operations, sizes, cards, stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.config.follow import followed
from ms_tune.config.source import load_source
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.estimate.flops import Attention, Widths
from ms_tune.estimate.widths import whole_number, widths_of
from ms_tune.frameworks.dialect import Dialect
from ms_tune.frameworks.models import model_of
from ms_tune.launch.options import command_of
from ms_tune.launch.read import read_launches
from ms_tune.layers.megatron.plan import normalize_megatron
from ms_tune.normalize.megatron import inputs_of
from ms_tune.normalize.script import release_of_scripts
from ms_tune.normalize.source import dialect_of, normalize_source
from ms_tune.performance.bubble import bubble
from ms_tune.performance.work import Layer, Work, layers_of, work_of
from ms_tune.planning.schedule import Schedule
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ms_tune.config.source import SourceFile
    from ms_tune.launch.options import Command
    from ms_tune.layers.plans import NormalizedPlan


_SCRIPTS = (".sh", ".bash")
_MOST = 10**9  # of any size that is multiplied


@dataclass(frozen=True, slots=True)
class Job:
    """What a config tells.

    Attributes:
        work: Operations of one token.
        tokens: Tokens of a sample.
        batch: Samples of a step; None where the config does not tell.
        cards: Devices; None likewise.
        bubble: Share of a step in which stages wait at least; None without stages, or where the schedule is not known.
        stages: Pipeline stages, chunks of each, and micro-batches of a step.
    """

    work: Work
    tokens: int
    batch: int | None
    cards: int | None
    bubble: float | None
    stages: tuple[int, int, int] | None


def read_job(path: Path, version: str | None = None) -> Job:
    """Read a config, or a launch script of Megatron's programs.

    Args:
        path: The file.
        version: The framework's release; None for the default.

    Raises:
        ConfigError: It cannot be read, its framework refuses it, or a size is missing that operations follow from.
        UnsupportedError: It is of no dialect whose models are known.
    """
    if path.suffix in _SCRIPTS:
        return _of_script(path, version)
    source = followed(load_source(path))
    plan = normalize_source(source, version, hints=False)
    _refuse(path, plan)
    dialect = dialect_of(source)
    model = model_of(source, dialect, plan.framework_version, source.beside)
    widths = widths_of(model)
    if widths is None:
        names = ("hidden_size", "num_attention_heads", "ffn_hidden_size", "vocab_size", "seq_length")
        missing = [name for name in names if not whole_number(model, name)]
        raise ConfigError(msg("metrics.config.sizes", missing=", ".join(missing)), path=path)
    count = sum(map(sum, plan.placement)) if plan.placement else len(plan.layers)
    dense = model.number("first_k_dense_replace") or 0
    layers = layers_of(plan.layers[:count], dense, experts=bool(widths.experts))
    ahead = min(whole_number(model, "mtp_num_layers") or 0, count)
    layers += (Layer(bool(widths.experts), prediction=True),) * ahead
    split = _split(source, dialect)
    return _job(widths, layers, split, plan.placement)


@dataclass(frozen=True, slots=True)
class _Split:
    """How a job is cut; None is not known."""

    cards: int | None
    batch: int | None
    micro_batches: int | None
    schedule: Schedule


def _job(widths: Widths, layers: tuple[Layer, ...], split: _Split, placement: Sequence[Sequence[int]] | None) -> Job:
    waits, stages = None, None
    if placement and len(placement[0]) > 1 and split.micro_batches:
        schedule = split.schedule if len(placement) > 1 else Schedule.ONE_FORWARD_ONE_BACKWARD
        waits = bubble(schedule, placement, split.micro_batches)
        stages = (len(placement[0]), len(placement), split.micro_batches)
    return Job(work_of(widths, layers), widths.tokens, split.batch, split.cards, waits, stages)


def _refuse(path: Path, plan: NormalizedPlan) -> None:
    if plan.failure is not None or not plan.layers:
        text = plan.failure.text if plan.failure else ""
        raise ConfigError(msg("metrics.config.refused", error=text), path=path)


def _split(source: SourceFile, dialect: Dialect) -> _Split:
    """Cards and batch, by the keys of the dialect."""
    parallel = _section(source.data, "parallel_config")
    if dialect is Dialect.MINDFORMERS:
        return _static(source.data, parallel)
    if dialect is Dialect.MINDSPEED_MS:
        micro = _number(_section(source.data, "dataset_config"), "micro_batch_num")
        return _Split(None, None, micro, Schedule.INTERLEAVED_FULL_WARM_UP)
    return _Split(None, None, None, Schedule.INTERLEAVED_SPREAD)


def _static(data: Mapping[object, object], parallel: Mapping[object, object]) -> _Split:
    """MindFormers' static graph: ``global batch = batch_size x data_parallel x micro_batch_num`` (with stages) ``x accumulation``."""
    ways = [_number(parallel, name) or 1 for name in ("data_parallel", "model_parallel", "pipeline_stage")]
    context = _number(parallel, "context_parallel") or 1
    runner = _section(data, "runner_config")
    micro = (_number(parallel, "micro_batch_num") or 1) if ways[2] > 1 else 1
    size = _number(runner, "batch_size")
    more = (_number(runner, "gradient_accumulation_steps") or 1) * (_number(data, "micro_batch_interleave_num") or 1)
    batch = size * ways[0] * micro * more if size else None
    cards = ways[0] * ways[1] * ways[2] * context
    given = bool(parallel)
    return _Split(cards if given else None, batch if given else None, micro, Schedule.INTERLEAVED)


def _of_script(path: Path, version: str | None) -> Job:
    release = release_of_scripts(path, version)
    launches = [command_of(launch, release) for launch in read_launches(path).launches]
    command = next((one for one in launches if one is not None), None)
    if command is None:
        raise UnsupportedError(msg("metrics.config.no-program"))
    inputs = inputs_of(command)
    plan = normalize_megatron(inputs)
    _refuse(path, plan)
    widths = _megatron(path, command)
    layers = layers_of(plan.layers, 0, experts=bool(widths.experts))
    batch = command.integer("global_batch_size")
    split = _Split(command.launch.processes, batch, inputs.micro_batches, Schedule.INTERLEAVED_FULL_WARM_UP)
    return _job(widths, layers, split, plan.placement)


def _megatron(path: Path, command: Command) -> Widths:
    """The sizes in a program's arguments, with the defaults of ``validate_args`` (megatron/training/arguments.py)."""

    def size(dest: str) -> int | None:
        found = command.integer(dest)
        return found if found is not None and 0 < found < _MOST else None

    hidden, heads, tokens = size("hidden_size"), size("num_attention_heads"), size("seq_length")
    words = size("padded_vocab_size") or size("vocab_size")
    if hidden is None or heads is None or tokens is None or words is None:
        told = {"--hidden-size": hidden, "--num-attention-heads": heads, "--seq-length": tokens}
        missing = [name for name, value in {**told, "--padded-vocab-size": words}.items() if value is None]
        raise ConfigError(msg("metrics.config.sizes", missing=", ".join(missing)), path=path)
    gated = command.value("swiglu") is True
    inner = size("ffn_hidden_size") or (int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden)
    experts = size("num_experts") or 0
    expert = size("moe_ffn_hidden_size") or inner
    shared = size("moe_shared_expert_intermediate_size") or (size("n_shared_experts") or 0) * expert
    return Widths(
        hidden,
        tokens,
        words,
        _heads(command, hidden, heads),
        inner,
        gated,
        experts=experts,
        chosen=(size("moe_router_topk") or 2) if experts else 0,
        expert=expert,
        shared=shared if experts else 0,
    )


def _heads(command: Command, hidden: int, heads: int) -> Attention:
    def size(*dests: str) -> int:
        return next((found for dest in dests if (found := command.integer(dest)) and 0 < found < _MOST), 0)

    head = size("kv_channels") or hidden // heads
    if command.value("multi_latent_attention") is True and size("kv_lora_rank"):
        rotary = size("qk_pos_emb_head_dim", "qk_rope_head_dim")
        wide = (size("qk_head_dim", "qk_nope_head_dim") or head) + rotary
        value = size("v_head_dim") or head
        return Attention(heads, heads, wide, value, size("q_lora_rank"), size("kv_lora_rank"), rotary)
    groups = size("num_query_groups") if command.value("group_query_attention") is True else 0
    return Attention(heads, groups or heads, head, head)


def _section(data: object, name: str) -> Mapping[object, object]:
    found = data.get(name) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}


def _number(section: Mapping[object, object], name: str) -> int | None:
    value = section.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST else None
