"""Estimate the memory of the stages of a program that a launch script starts, from its arguments."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from ms_tune.dialects import LayerPlan
from ms_tune.dialects.job_parts import DType, MicroBatches, Optimizer, Parallelism, Precision, Sharding, TrainingConfig
from ms_tune.dialects.megatron.arguments import ProgramArguments, command_in, without_unset
from ms_tune.dialects.megatron.placement import DESTINATIONS
from ms_tune.dialects.megatron.read import (
    ONLY_BUILT,
    OVERLAPS,
    ArgumentReader,
    NotEvaluableError,
    find_vocabulary,
    inputs_of,
    own_spec,
    shape_of,
    size_in,
)
from ms_tune.dialects.megatron.recompute import normalize_megatron
from ms_tune.dialects.stage import StageLayer, stage_of
from ms_tune.dryrun.prepare import limit_of_script
from ms_tune.dryrun.request import DryrunRequest, Pipeline, Split
from ms_tune.enums import LayerKind, RecomputeMode, SizeOrigin
from ms_tune.errors import MsTuneError, UnsupportedError
from ms_tune.estimate.megatron import LoraAdapter, MegatronOptions, PartRatios, megatron_stage
from ms_tune.estimate.memory import Estimate
from ms_tune.facts.sizes import bound_vocabulary
from ms_tune.job import ModelSizes
from ms_tune.job.script import ScriptJob
from ms_tune.planning.schedule import Schedule
from ms_tune.records import Record
from ms_tune.source.shell.read import Launches
from ms_tune.source.shell.values import Reason
from ms_tune.text import msg
from ms_tune.verdict.limit import limit_of_torch
from ms_tune.workflows.check.config import OverviewRequest
from ms_tune.workflows.check.result import Assumptions

_NODE = 8  # NPUs of one machine, assumed if their number is only known at run time
# Options whose memory the estimate does not model.
_OTHERWISE = (
    *("tp_2d", "use_custom_fsdp", "qlora"),
    *("o2_optimizer", "o2_gradient", "quant_states", "quant_grads"),
)
# Evaluation and inference have the same arguments, but neither gradients nor optimizer state.
_TRAINS = re.compile("train|tun(?:e|ing)|sft|dpo")  # in the name of a program
# Samples are not padded to the sequence length, or experts keep fewer activations.
_LESS = ("no_pad_to_seq_lengths", "variable_seq_lengths", "moe_zero_memory")
# Layers of a spec of its own are taken for ordinary ones; sparse attention keeps the scores of its index; FSDP2 was compared with few runs; some reward models have no head for logits.
_UNCOUNTED, _WIDEST = ("enable_dsa_indexer", "experimental_attention_variant", "use_torch_fsdp2"), (0.75, 2.5)
_SCORE, _DROPPED_SCORE = 2, 5  # bytes that attention keeps per score, without and with dropout
# Stages of posttrain_gpt.py with one trained model, and their samples: some have a chosen and a rejected answer.
_TUNED = {"sft": 1, "prm": 1, "orm": 2, "dpo": 2, "simpo": 2}


def estimate_arguments(
    command: ProgramArguments, plan: LayerPlan, split: Split, request: DryrunRequest, words: int | None = None
) -> tuple[Estimate, int]:
    """Estimate the memory of every stage; also return the number of micro-batches.

    ``words`` is the size of the vocabulary if no argument gives it.
    """
    read = ArgumentReader(command)
    name = command.launch.name
    if name and not _TRAINS.search(name):
        raise UnsupportedError(msg("check.script.not-training", program=name))
    for dest in _OTHERWISE:
        if _has(read, (dest,)):
            raise UnsupportedError(msg("check.script.otherwise", argument=read.argument_name(dest)))
    if read.value("stage") not in (None, *_TUNED):
        raise UnsupportedError(msg("check.script.otherwise", argument=read.argument_name("stage")))
    config = _training_config(read, split, len(plan.layers), words)
    micro_batches = _count_micro_batches(read, split)
    chunks = len(plan.placement or ()) or 1
    # Of Megatron-LM (core/pipeline_parallel/schedules.py); with one chunk it is 1F1B.
    pipeline = Pipeline(Schedule.INTERLEAVED_FULL_WARM_UP, split.pipeline, chunks, micro_batches)
    layers = list(_stage_layers(read, plan))
    options = _read_options(read, gated=config.shape.gated)
    stages = []
    for number in range(split.pipeline):
        in_flight = pipeline.in_flight(number)
        if read.value("schedules_method") == "dualpipev":
            # DualPipeV fills the pipeline twice: forth through the first chunks, back through the second ones.
            in_flight = (min(2 * split.pipeline - number, micro_batches), min(number + 1, micro_batches))
        elif in_flight is not None and chunks > 1 and read.switch(OVERLAPS):  # one more forward pass at the beginning
            in_flight = (min(in_flight[0] + 1, micro_batches), *in_flight[1:])
        if in_flight is None:
            raise UnsupportedError(msg("fitting.schedule"))
        stage = stage_of(layers, number, pipeline.stages, pipeline.chunks)
        stages.append(megatron_stage(config, stage, in_flight, options))
    limit, reserve = limit_of_script(request, split)
    if read.value("ai_framework") != "mindspore":
        limit = limit_of_torch(limit.device)
    less = _has(read, _LESS)
    ratios = (
        _WIDEST
        if _has(read, _UNCOUNTED) or read.value("stage") == "orm" or own_spec(read)
        else _choose_ratios(read, config).peak_ratios(stages)
    )
    return Estimate(tuple(stages), limit, reserve, ratios, less=less), micro_batches


def _count_micro_batches(read: ArgumentReader, split: Split) -> int:
    each = size_in(read, "micro_batch_size") * split.data
    try:
        return max(1, size_in(read, "global_batch_size", each) // each)
    except NotEvaluableError:  # enough to fill the pipeline
        return split.pipeline


def _choose_ratios(read: ArgumentReader, config: TrainingConfig) -> PartRatios:
    # Tokens are not spread evenly over experts; the loss of pairs, or of ranks that share a sequence, keeps more copies of logits.
    ratios = PartRatios()
    if config.shape.experts is not None:
        ratios = ratios._replace(lowest=0.7, activations=2.5)
    elif read.switch("post_norm"):
        ratios = ratios._replace(activations=2.5)
    if config.parallelism.context > 1 or _TUNED.get(read.text("stage") or "", 1) > 1:
        ratios = ratios._replace(loss=4.5)
    return ratios


def _has(read: ArgumentReader, names: Iterable[str]) -> bool:
    return any(read.value(name) not in (None, False, 0, [], "", "disable") for name in names)


def _read_options(read: ArgumentReader, *, gated: bool) -> MegatronOptions:
    targets = read.value("lora_target_modules")
    adapter = None
    if isinstance(targets, list) and targets:
        adapter = LoraAdapter(size_in(read, "lora_r"), tuple(map(str, targets)))
    parts = (read.integer("swap_optimizer_times") or 1) if read.switch("swap_optimizer") else 0
    return MegatronOptions(
        fused=read.switch("use_fused_swiglu") or not gated,
        adapter=adapter,
        reference=read.value("stage") == "dpo",
        reuses_copies=read.switch("reuse_fp32_param"),
        scores=_score_bytes(read),
        swap_parts=parts,
        sharded=read.switch("use_torch_fsdp2"),
    )


def _score_bytes(read: ArgumentReader) -> int:
    # Without flash attention the probabilities stay, and the result of dropout (Korthikanti et al., equation 1); with it
    # only the bias of ALiBi.
    if read.switch("use_flash_attn"):
        return _SCORE if read.value("position_embedding_type") == "alibi" else 0
    return _SCORE if read.value("attention_dropout") in (0, 0.0) else _DROPPED_SCORE


def _stage_layers(read: ArgumentReader, plan: LayerPlan) -> Iterator[tuple[int, int, StageLayer]]:
    ordinary = [other.kind for other in plan.layers if other.kind in (LayerKind.DENSE, LayerKind.EXPERTS)]
    # --swap-attention moves the activations of attention to the host; then --recompute-num-layers counts feed-forward blocks.
    swaps, blocks = read.switch("swap_attention"), read.integer(DESTINATIONS["number"]) or 0
    seen = Counter[int]()
    for one in plan.layers:
        if one.kind is LayerKind.NOOP:
            continue
        predicts = one.kind is LayerKind.PREDICTION
        experts = (ordinary[-1:] == [LayerKind.EXPERTS]) if predicts else one.kind is LayerKind.EXPERTS
        select = one.select_patterns
        if swaps:
            select = (*select, "self_attention", *(("mlp",) if seen[one.stage] < blocks else ()))
        seen[one.stage] += 1
        full = one.recompute is RecomputeMode.FULL
        yield one.chunk, one.stage, StageLayer(one.layer, experts=experts, mtp=predicts, full=full, select=select)


def _training_config(read: ArgumentReader, split: Split, layers: int, words: int | None) -> TrainingConfig:
    half = read.switch("bf16") or read.switch("fp16")
    # validate_args of Megatron-LM core_v0.12.1 enables it for bfloat16.
    wide = read.switch("bf16") or read.switch("accumulate_allreduce_grads_in_fp32") or not half
    sharding = Sharding.OPTIMIZER if read.switch("use_distributed_optimizer") else Sharding.NONE
    shape = shape_of(read, layers, words)
    expert = split.expert
    if shape.experts and read.switch("moe_tp_extend_ep"):  # tensor-parallel ranks have whole experts, too
        expert *= split.tensor
        shape = shape._replace(experts=shape.experts._replace(tensor_parallel=False))
    if shape.experts and shape.experts.routed % expert:
        raise UnsupportedError(msg("check.script.otherwise", argument=read.argument_name("num_experts")))
    answers = _TUNED.get(read.text("stage") or "", 1)
    return TrainingConfig(
        shape,
        Parallelism(
            split.tensor,
            split.pipeline,
            split.context,
            expert,
            None,
            read.switch("sequence_parallel") and split.tensor > 1,
        ),
        MicroBatches(answers * size_in(read, "micro_batch_size"), 1),
        Precision(
            DType.BFLOAT16 if half else DType.FLOAT32,
            mixed=half,
            gradients=DType.FLOAT32 if wide else DType.FLOAT16,
            compute=None,
        ),
        Optimizer(
            read.text("optimizer") or "adam",
            gradient_buffers=True,
            sharding=sharding,
            shards=split.data * split.context,
        ),
    )


class ProgramEstimate(Record):
    """The estimated memory of a script's first program."""

    command: ProgramArguments
    assumptions: Assumptions
    sizes: ModelSizes  # where the size of the vocabulary comes from
    estimate: Estimate | None = None
    error: MsTuneError | None = None  # why nothing is estimated


def estimate_program(request: OverviewRequest, script: ScriptJob) -> ProgramEstimate | MsTuneError:
    """Estimate the first program with a known number of processes, or the first one; return why if that is impossible."""
    try:
        commands = script.commands
        if not commands:
            return UnsupportedError(msg("check.script.no-estimate"))
        command = next((one for one in commands if one.launch.processes is not None), commands[0])
        try:
            return estimate_command(request, command)
        except NotEvaluableError:
            bare, _ = without_unset(command)  # words from outside that the script needs not get
            if bare is not None:
                return estimate_command(request, bare)
            return _estimate_with_defaults(request, script.launches, command)
    except NotEvaluableError as error:
        unknown = {"argument": error.argument, "variable": error.variable}
        return UnsupportedError(msg("check.script.unknown", **unknown), msg("check.script.unknown.hint", **unknown))
    except MsTuneError as error:
        return error


def _estimate_with_defaults(
    request: OverviewRequest, found: Launches, command: ProgramArguments
) -> ProgramEstimate | MsTuneError:
    # Estimate a command as if a sourced file that is not here set no variable with a default.
    number = next(at for at, one in enumerate(found.launches) if one is command.launch)
    supposed = command_in(found.assumed[number], command.release) if found.assumed else command
    estimate = estimate_command(request, supposed)
    file = next((one.name for one in found.unknown if one.reason is Reason.FILE), "")
    source = msg("check.devices.defaults", source=estimate.assumptions.source, file=file)
    return estimate._replace(assumptions=estimate.assumptions._replace(source=source))


def estimate_command(request: OverviewRequest, command: ProgramArguments) -> ProgramEstimate:
    """Estimate a program's memory from its arguments; the result has an error instead if only its split is known."""
    inputs = inputs_of(
        command, without=ONLY_BUILT
    )  # passes overlap, or layers are built otherwise: the sizes are the same
    plan = normalize_megatron(inputs)  # whatever else the parser refuses: it does not concern sizes
    if plan.placement is None or plan.failure is not None:
        raise UnsupportedError(msg("check.estimate.refused"))
    context = command.integer("context_parallel_size") or 1
    expert = command.integer("expert_model_parallel_size") or 1
    ranks = inputs.tensor * inputs.stages * context
    given = request.job.devices or command.launch.processes
    least = max(given or _NODE, expert * inputs.stages if given is None else 0)
    devices = -(-least // ranks) * ranks
    source = msg("stages.devices.option" if request.job.devices else "check.devices.script")
    if devices != given:
        source = msg("check.devices.assumed") if given is None else msg("check.devices.least", given=given)
    split = Split(devices // ranks, inputs.tensor, inputs.stages, context, expert)
    sizes, words = _find_words(ArgumentReader(command))
    assumptions = Assumptions(devices, source, split, inputs.chunks or 1, inputs.micro_batches or 1)
    found = ProgramEstimate(command, assumptions, sizes)
    try:
        estimate, micro_batches = estimate_arguments(command, plan, split, request.job, words[0])
        if len(words) > 1:  # the range ends with the largest vocabulary
            most, _ = estimate_arguments(command, plan, split, request.job, words[-1])
            highest = most.range_bytes[1] / estimate.fullest.peak_bytes
            estimate = estimate._replace(ratios=(estimate.ratios[0], highest))
    except MsTuneError as error:
        return found._replace(error=error)
    return found._replace(estimate=estimate, assumptions=found.assumptions._replace(micro_batches=micro_batches))


def _find_words(read: ArgumentReader) -> tuple[ModelSizes, tuple[int | None, ...]]:
    # Return where the size of the vocabulary comes from, and, if no argument gives it, the size or its two bounds.
    named = find_vocabulary(read)
    if named is not None:
        return ModelSizes(SizeOrigin.VOCABULARY, model=named[1].name, key=named[0]), (named[1].config["vocab_size"],)
    if read.integer("padded_vocab_size") or read.integer("vocab_size"):
        return ModelSizes(SizeOrigin.CONFIG), (None,)
    hidden = read.integer("hidden_size") or 0  # without it nothing is estimated
    bounds = sorted(set(bound_vocabulary(hidden, read.integer("ffn_hidden_size") or 4 * hidden)))
    return ModelSizes(SizeOrigin.BOUNDS, model="-".join(f"{size:,}" for size in bounds)), tuple(bounds)
