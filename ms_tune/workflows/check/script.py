"""Make one screen about a launch script: about the config of the job that it starts, or the program's own arguments."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dialects import LayerPlan
from ms_tune.dialects.job_parts import DType, MicroBatches, Optimizer, Parallelism, Precision, Sharding, TrainingConfig
from ms_tune.dialects.megatron.arguments import ProgramArguments, command_in, without_unset
from ms_tune.dialects.megatron.read import (
    OVERLAPS,
    SERVED,
    ArgumentReader,
    NotEvaluableError,
    find_vocabulary,
    inputs_of,
    shape_of,
    size_in,
)
from ms_tune.dialects.megatron.recompute import normalize_megatron
from ms_tune.dialects.stage import StageLayer, stage_of
from ms_tune.dryrun.prepare import limit_of_script
from ms_tune.dryrun.request import CommandRequest, DryrunRequest, Pipeline, Split
from ms_tune.enums import Dialect, LayerKind, RecomputeMode, SizeOrigin
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError
from ms_tune.estimate.megatron import (
    LoraAdapter,
    MegatronOptions,
    PartRatios,
    megatron_stage,
)
from ms_tune.estimate.memory import Estimate, Outlook
from ms_tune.facts.sizes import bound_vocabulary
from ms_tune.job import ModelSizes, no_model_config
from ms_tune.job.script import ScriptJob, TrainingJob
from ms_tune.lint.result import LintReport, LintRequest
from ms_tune.lint.runner import lint_files
from ms_tune.normalize.script import ProgramPlan, normalize_script
from ms_tune.records import Record
from ms_tune.source.git import text_at
from ms_tune.source.shell.read import Launches, find_above
from ms_tune.source.shell.values import Argument, Piece, Reason
from ms_tune.text import msg
from ms_tune.units import short_gib
from ms_tune.verdict.limit import limit_of_torch
from ms_tune.verdict.outcome import no_verdict
from ms_tune.workflows.check.base import compare_scripts
from ms_tune.workflows.check.config import (
    InspectedConfig,
    OverviewRequest,
    complete_overview,
    config_overview,
    describe_checked_only,
    inspect_config,
    release_in,
    start_overview,
)
from ms_tune.workflows.check.result import Assumptions, Overview, Sizes, StageVerdict, Subject, Suggestion

if TYPE_CHECKING:
    from ms_tune.dryrun.task import Observer


def check_script(
    path: Path, request: OverviewRequest, report: LintReport, base: str | None, observer: Observer | None
) -> Overview:
    """Make the screen of a launch script; the comparison with the base uses estimates only, as the older script is not run."""
    script = ScriptJob(path, version=request.framework_version)
    job = script.config_job()
    if request.job.model_config is not None and job is None:
        raise no_model_config(path)
    if job is not None and job.path is not None:
        report = lint_files(path, job.path, request=LintRequest(framework_version=request.framework_version))
    checked = describe_checked_only(path, report, request)
    if checked is not None:
        return checked
    screen = _script_overview(request, script, report, observer)
    if base is None:
        return screen
    text = text_at(base, path)
    if text is None:
        return screen._replace(not_compared_because=msg("check.base.new"))

    def estimate(text: str) -> Estimate | None:
        return _estimate_script(request, ScriptJob(path, text, version=request.framework_version))

    change = compare_scripts(text, script.text, estimate)
    if change is not None and change.is_short and screen.stages:  # the dryrun shows whether it fits
        change = change._replace(outcome="more")
    return screen._replace(against=change)


def _script_overview(
    request: OverviewRequest, script: ScriptJob, report: LintReport, observer: Observer | None = None
) -> Overview:
    # Make the screen by a dryrun that runs the script if an observer is given to receive its messages.
    path, job = script.path, script.config_job()
    if job is not None and job.path is not None:
        return config_overview(_inspect_config(request, script, job, observer), path, report)
    program, error = _plan_first_program(script)
    plan = program.plan if program is not None else None
    screen = start_overview(path, _subject(script, program, report), report, plan)
    similar = _read_similar(script)
    found = estimate_program(request, similar)
    if isinstance(found, ProgramEstimate):
        screen = _show_estimate(screen, request, found)
    if similar is not script and screen.estimate is not None:
        screen = screen._replace(estimated_as=f"MindSpeed-LLM {similar.release}")
    if screen.estimate is None:
        reason = found.error if isinstance(found, ProgramEstimate) else found
        why = error if error is not None and similar is script else reason
        if why is not None:
            screen = screen._replace(no_estimate_because=why.message, no_estimate_hint=why.hint)
    if error is not None:
        return complete_overview(screen, request, ())
    if observer is not None:
        try:
            stages = _simulate_script(request, path, observer)
        except MsTuneError as failure:
            stages = (StageVerdict(0, no_verdict(failure.message)),)
        screen = screen._replace(stages=stages, estimate=None, no_estimate_because=None)
    return complete_overview(screen, request, _next_commands(screen, request, script, plan))


def _show_estimate(screen: Overview, request: OverviewRequest, found: ProgramEstimate) -> Overview:
    estimate = found.estimate
    screen = screen._replace(assumptions=found.assumptions, estimate=estimate)
    if estimate is None:
        return screen
    screen = screen._replace(sizes=Sizes(*found.sizes))
    if estimate.outlook is not Outlook.BELOW:
        screen = screen._replace(change=_suggest_arguments(request, found, estimate))
    if screen.subject.layers is None:
        layers = sum(one.layers for one in estimate.stages)
        screen = screen._replace(subject=screen.subject._replace(layers=layers))
    return screen


def _plan_first_program(script: ScriptJob) -> tuple[ProgramPlan | None, MsTuneError | None]:
    # Return the layer plan of the first program, or the error that prevents it.
    try:
        return normalize_script(script)[0], None
    except (ConfigError, UnsupportedError) as error:
        return None, error


def _subject(script: ScriptJob, program: ProgramPlan | None, report: LintReport) -> Subject:
    launches = script.launches.launches
    name = program.program if program is not None else launches[0].name if launches else ""
    is_ours = any(one.release.framework == "MindSpeed-LLM" for one in report.files)
    plan = program.plan if program is not None else None
    layers = sum(map(sum, plan.placement)) if plan is not None and plan.placement else None
    return Subject(Dialect.MEGATRON.value if is_ours else "script", release_in(report), name, layers)


def _next_commands(
    screen: Overview, request: OverviewRequest, script: ScriptJob, plan: LayerPlan | None
) -> Iterator[str]:
    # A dryrun runs the script itself, so it needs the program's file, and MindSpore.
    command = next(iter(script.commands), None)
    if screen.stages and all(one.verdict.is_good(allow_tight=request.allow_tight) for one in screen.stages):
        return
    runs = command is not None and command.value("ai_framework") == "mindspore"
    if runs and command is not None and find_above(script.path, command.launch.name) is not None:
        yield request.command("dryrun", script.path)
    elif plan is not None and plan.failure is None:
        yield request.command("normalize-recompute", script.path)


def _estimate_script(request: OverviewRequest, script: ScriptJob) -> Estimate | None:
    # Estimate the memory of the job that the script would start; None if it is unknown.
    try:
        job = script.config_job()
        if job is not None:
            return _inspect_config(request, script, job, None).memory.estimate
        found = estimate_program(request, _read_similar(script))
    except MsTuneError:
        return None
    return found.estimate if isinstance(found, ProgramEstimate) else None


def _inspect_config(
    request: OverviewRequest, script: ScriptJob, job: TrainingJob, observer: Observer | None
) -> InspectedConfig:
    # Inspect the config of a job that the script starts, on the script's number of devices.
    run = request.job._replace(devices=request.job.devices or job.processes)
    config = inspect_config(request._replace(job=run), job.path or script.path, None, observer)
    if request.job.devices is None and job.processes is not None and config.loaded is not None:
        devices = config.loaded.devices._replace(source=msg("check.devices.script"))
        config = config._replace(loaded=config.loaded._replace(devices=devices))
    return config


class ProgramEstimate(Record):
    """The estimated memory of a script's first program."""

    command: ProgramArguments
    assumptions: Assumptions
    sizes: ModelSizes  # where the size of the vocabulary comes from
    estimate: Estimate | None = None
    error: MsTuneError | None = None  # why nothing is estimated


def _read_similar(script: ScriptJob) -> ScriptJob:
    # Return the script read for a release with known layers, if that of the sources around it has none: sizes have the same
    # arguments in all of them, such as in the forks of ModelLink, MindSpeed-LLM's name before 1.0.
    try:
        script.release  # noqa: B018 - raises the error
    except ConfigError:
        return ScriptJob(script.path, script.text, version=SERVED[0])
    except UnsupportedError:  # the user named it
        pass
    return script


def estimate_program(request: OverviewRequest, script: ScriptJob) -> ProgramEstimate | MsTuneError:
    """Estimate the first program with a known number of processes, or the first one; return why if that is impossible."""
    try:
        commands = script.commands
        if not commands:
            return UnsupportedError(msg("check.script.no-estimate"))
        command = next((one for one in commands if one.launch.processes is not None), commands[0])
        try:
            return _estimate_command(request, command)
        except NotEvaluableError:
            bare, _ = without_unset(command)  # words from outside that the script needs not get
            if bare is not None:
                return _estimate_command(request, bare)
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
    estimate = _estimate_command(request, supposed)
    file = next((one.name for one in found.unknown if one.reason is Reason.FILE), "")
    source = msg("check.devices.defaults", source=estimate.assumptions.source, file=file)
    return estimate._replace(assumptions=estimate.assumptions._replace(source=source))


def _estimate_command(request: OverviewRequest, command: ProgramArguments) -> ProgramEstimate:
    inputs = inputs_of(command, without=(OVERLAPS,))  # it overlaps passes of the same layers
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


def _suggest_arguments(request: OverviewRequest, found: ProgramEstimate, now: Estimate) -> Suggestion | None:
    # Return the first change of arguments, or several, with which the job is estimated to fit; of repeated ones the last counts.
    # An inconclusive estimate alone does not show that any change is needed.
    command, layers = found.command, sum(one.layers - one.recomputed for one in now.stages)
    best, micro = now, size_in(ArgumentReader(command), "micro_batch_size")
    steps: Sequence[tuple[str, str, int]] = (
        ("optimizer", "--use-distributed-optimizer", 0),
        ("sequence", "--sequence-parallel", 0),
        ("recompute", "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", layers),
        ("micro-batch", f"--micro-batch-size {micro // 2}", micro // 2),
    )
    what, added, is_over = None, "", now.outlook is Outlook.OVER
    for name, words, count in steps:
        launch, place = command.launch, command.launch.place
        more = tuple(Argument((Piece(word, place),)) for word in words.split())
        try:
            trial = _estimate_command(
                request, command_in(replace(launch, arguments=(*launch.arguments, *more)), command.release)
            )
        except (MsTuneError, NotEvaluableError):
            continue
        if trial.estimate is None or trial.estimate.fullest.peak_bytes >= best.fullest.peak_bytes:
            continue
        command, best, added = trial.command, trial.estimate, f"{added} {words}".strip()
        change = msg(f"check.change.{name}", count=count, value=count)
        what = change if what is None else msg("check.change.and", first=what, second=change)
        if best.outlook is Outlook.BELOW:
            sizes = zip(("low", "high"), map(short_gib, best.range_bytes), strict=True)
            params = {"what": what, "arguments": added, **dict(sizes), "limit": short_gib(best.limit.bytes)}
            freed = now.fullest.peak_bytes - best.fullest.peak_bytes
            text = msg("check.change.arguments", **params)
            text = text if is_over else msg("check.change.should", what=text)
            return Suggestion(name, text, freed, enough=True)
    return Suggestion("layout", msg("check.change.layout")) if is_over else None


def _simulate_script(request: OverviewRequest, path: Path, observer: Observer) -> tuple[StageVerdict, ...]:
    from ms_tune.dryrun.command import run_command  # noqa: PLC0415 - it needs the extra 'dryrun'

    job = request.job
    command = CommandRequest(
        ("bash", str(path)),
        devices=job.devices,
        device_bytes=job.device_bytes,
        chip=job.chip,
        reserve_bytes=job.reserve_bytes,
        run_folder=job.run_folder,
        timeout=job.timeout,
        fewest_layers=True,
    )
    result = run_command(command, observer)
    return tuple(
        StageVerdict(one.stage if one.stage is not None else one.rank or 0, one.verdict) for one in result.ranks
    )


_NODE = 8  # NPUs of one machine, assumed if their number is only known at run time
# Options whose memory the estimate does not model.
_OTHERWISE = (
    *("tp_2d", "use_torch_fsdp2", "use_custom_fsdp", "qlora"),
    *("o2_optimizer", "o2_gradient", "quant_states", "quant_grads"),
)
# Evaluation and inference have the same arguments, but neither gradients nor optimizer state.
_TRAINS = re.compile("train|tun(?:e|ing)|sft|dpo")  # in the name of a program
# Samples are not padded to the sequence length, or experts keep fewer activations.
_LESS = ("no_pad_to_seq_lengths", "variable_seq_lengths", "moe_zero_memory")
# Sparse attention keeps the scores of its index; some reward models have no head for logits.
_UNCOUNTED, _WIDEST = ("enable_dsa_indexer", "experimental_attention_variant"), (0.75, 2.5)
_SCORE, _DROPPED_SCORE = 2, 5  # bytes that attention keeps per score, without and with dropout
# Stages of posttrain_gpt.py with one trained model, and their samples: some have a chosen and a rejected answer.
_TUNED = {"sft": 1, "prm": 1, "orm": 2, "dpo": 2, "simpo": 2}


def estimate_arguments(
    command: ProgramArguments, plan: LayerPlan, split: Split, request: DryrunRequest, words: int | None = None
) -> tuple[Estimate, int]:
    """Estimate the memory of every stage; also return the number of micro-batches.

    Args:
        command: The program's arguments.
        plan: Placement and recompute modes of its layers.
        split: The parallel dimensions.
        request: The device.
        words: The size of the vocabulary if no argument gives it.

    Raises:
        UnsupportedError: A required value is unknown, or an option is not modelled by the estimate.
        NotEvaluableError: A value is not known without running the script.
        ConfigError: A value has an unsupported form.
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
    micro = size_in(read, "micro_batch_size")
    micro_batches = max(1, size_in(read, "global_batch_size", micro * split.data) // (micro * split.data))
    chunks = len(plan.placement or ()) or 1
    pipeline = Pipeline.of_megatron(split.pipeline, chunks, micro_batches)
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
        if _has(read, _UNCOUNTED) or read.value("stage") == "orm"
        else _choose_ratios(read, config).peak_ratios(stages)
    )
    return Estimate(tuple(stages), limit, reserve, ratios, less=less), micro_batches


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
    swaps, blocks = read.switch("swap_attention"), read.integer("recompute_num_layers") or 0
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
