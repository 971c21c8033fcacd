"""Make one screen about a launch script: about the config of the job that it starts, or the program's own arguments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dialects.job_parts import DType, MicroBatches, Optimizer, Parallelism, Precision, Sharding, TrainingConfig
from ms_tune.dialects.megatron.read import ArgumentReader, NotEvaluableError, inputs_of, shape_of, size_in
from ms_tune.dialects.stage import StageLayer, stage_of
from ms_tune.dryrun.prepare import limit_of_script
from ms_tune.dryrun.request import CommandRequest, Pipeline, Split
from ms_tune.enums import Dialect, LayerKind, RecomputeMode
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError
from ms_tune.estimate.megatron import megatron_stage
from ms_tune.estimate.memory import Estimate
from ms_tune.job import no_model_config
from ms_tune.job.script import ScriptJob, TrainingJob
from ms_tune.lint.result import LintReport, LintRequest
from ms_tune.lint.runner import lint_files
from ms_tune.normalize.script import ProgramPlan, normalize_script
from ms_tune.source.shell.read import find_above
from ms_tune.text import Message, msg
from ms_tune.verdict.outcome import no_verdict
from ms_tune.workflows.check.base import compare_scripts, text_at
from ms_tune.workflows.check.config import (
    InspectedConfig,
    OverviewRequest,
    complete_overview,
    config_overview,
    inspect_config,
    release_in,
    start_overview,
)
from ms_tune.workflows.check.result import Assumptions, Overview, StageVerdict, Subject

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan, LayerSpec
    from ms_tune.dialects.megatron.arguments import ProgramArguments
    from ms_tune.dryrun.task import Observer
    from ms_tune.verdict.limit import Limit


def check_script(
    path: Path, request: OverviewRequest, report: LintReport, base: str | None, observer: Observer | None
) -> Overview:
    """Make the screen of a launch script; the comparison with the base uses estimates only, as the older script is not run."""
    script = ScriptJob(path, version=request.framework_version)
    if request.job.model_config is not None and script.config_job() is None:
        raise no_model_config(path)
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
        both = lint_files(path, job.path, request=LintRequest(framework_version=request.framework_version))
        return config_overview(_inspect_config(request, script, job, observer), path, both)
    program, error = _plan_first_program(script)
    plan = program.plan if program is not None else None
    screen = start_overview(path, _subject(script, program, report), report, plan)
    if error is not None:
        screen = screen._replace(no_estimate_because=error.message, no_estimate_hint=error.hint)
        return complete_overview(screen, request, ())
    stages: tuple[StageVerdict, ...] = ()
    if observer is not None:
        try:
            stages = _simulate_script(request, path, observer)
        except MsTuneError as failure:
            stages = (StageVerdict(0, no_verdict(failure.message)),)
    assumptions = _assumptions(script)
    estimate = None if stages else _estimate_program(request, script, plan, assumptions)
    screen = screen._replace(
        assumptions=assumptions,
        estimate=estimate if isinstance(estimate, Estimate) else None,
        no_estimate_because=estimate if isinstance(estimate, Message) else None,
        stages=stages,
    )
    return complete_overview(screen, request, _next_commands(screen, request, script, plan))


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
    command = _first_program(script)
    if screen.stages and all(one.verdict.is_good(allow_tight=request.allow_tight) for one in screen.stages):
        return
    has_program = command is not None and find_above(script.path, command.launch.name) is not None
    if has_program and screen.no_estimate_because != msg("check.script.not-mindspore"):
        yield request.command("dryrun", script.path)
    elif plan is not None and plan.failure is None:
        yield request.command("normalize-recompute", script.path)


def _estimate_script(request: OverviewRequest, script: ScriptJob) -> Estimate | None:
    # Estimate the memory of the job that the script would start; None if it is unknown.
    try:
        job = script.config_job()
        if job is not None:
            return _inspect_config(request, script, job, None).memory.estimate
        program = next(iter(normalize_script(script)))
        estimate = _estimate_program(request, script, program.plan, _assumptions(script))
    except MsTuneError:
        return None
    return estimate if isinstance(estimate, Estimate) else None


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


def _first_program(script: ScriptJob) -> ProgramArguments | None:
    # Return the first program with a known number of processes.
    return next((one for one in script.commands if one.launch.processes is not None), None)


def _assumptions(script: ScriptJob) -> Assumptions | None:
    # Return the assumptions from the arguments of the first program; None if they depend on unknown values.
    command = _first_program(script)
    processes = command.launch.processes if command is not None else None
    if command is None or processes is None:
        return None
    try:
        inputs = inputs_of(command)
    except (NotEvaluableError, MsTuneError):
        return None
    context = command.integer("context_parallel_size") or 1
    expert = command.integer("expert_model_parallel_size") or 1
    ranks = inputs.tensor * inputs.stages * context
    if processes % ranks:
        return None
    split = Split(processes // ranks, inputs.tensor, inputs.stages, context, expert)
    source = msg("check.devices.script")
    return Assumptions(processes, source, split, inputs.chunks or 1, inputs.micro_batches or 1)


def _estimate_program(
    request: OverviewRequest, script: ScriptJob, plan: LayerPlan | None, assumed: Assumptions | None
) -> Estimate | Message:
    command = _first_program(script)
    if command is None or assumed is None or plan is None or plan.placement is None or plan.failure is not None:
        return msg("check.script.no-estimate")
    try:
        return estimate_arguments(command, plan, assumed.split, limit_of_script(request.job, assumed.split))
    except NotEvaluableError as error:
        return msg("check.script.unknown", argument=error.argument, variable=error.variable)
    except MsTuneError as error:
        return error.message


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


# Options with memory that theory and the estimates do not model.
_OTHERWISE = (
    *("reuse_fp32_param", "swap_attention", "swap_optimizer", "moe_zero_memory", "tp_2d", "lora_target_modules"),
    *("use_torch_fsdp2", "use_custom_fsdp", "moe_tp_extend_ep", "schedules_method"),
)
_TUNED = ("sft",)  # stages of posttrain_gpt.py with a single model


def estimate_arguments(command: ProgramArguments, plan: LayerPlan, split: Split, limit: tuple[Limit, int]) -> Estimate:
    """Estimate the memory of every stage.

    Args:
        command: The program's arguments.
        plan: Placement and recompute modes of its layers.
        split: The parallel dimensions.
        limit: Usable memory of a stage, and the reserved part of it.

    Raises:
        UnsupportedError: A required value is unknown, or an option is not modelled by the estimate.
        NotEvaluableError: A value is not known without running the script.
        ConfigError: A value has an unsupported form.
    """
    read = ArgumentReader(command)
    for dest in _OTHERWISE:
        if read.value(dest) not in (None, False, 0, [], "", "disable"):
            raise UnsupportedError(msg("check.script.otherwise", argument=read.argument_name(dest)))
    if read.value("ai_framework") != "mindspore":
        raise UnsupportedError(msg("check.script.not-mindspore"))
    if read.value("stage") not in (None, *_TUNED):
        raise UnsupportedError(msg("check.script.otherwise", argument=read.argument_name("stage")))
    config = _training_config(read, split, len(plan.layers))
    micro = size_in(read, "micro_batch_size")
    pipeline = Pipeline.of_megatron(
        split.pipeline,
        len(plan.placement or ()) or 1,
        max(1, size_in(read, "global_batch_size", micro * split.data) // (micro * split.data)),
    )
    layers = [(one.chunk, one.stage, _stage_layer(one, plan)) for one in plan.layers if one.kind is not LayerKind.NOOP]
    fused = read.switch("use_fused_swiglu") or not config.shape.gated
    stages = []
    for number in range(split.pipeline):
        in_flight = pipeline.in_flight(number)
        if in_flight is None:
            raise UnsupportedError(msg("fitting.schedule"))
        stage = stage_of(layers, number, pipeline.stages, pipeline.chunks)
        stages.append(megatron_stage(config, stage, in_flight, fused=fused))
    return Estimate(tuple(stages), *limit, experts=config.shape.experts is not None)


def _stage_layer(one: LayerSpec, plan: LayerPlan) -> StageLayer:
    predicts = one.kind is LayerKind.PREDICTION
    ordinary = [other.kind for other in plan.layers if other.kind in (LayerKind.DENSE, LayerKind.EXPERTS)]
    experts = (ordinary[-1:] == [LayerKind.EXPERTS]) if predicts else one.kind is LayerKind.EXPERTS
    return StageLayer(one.layer, experts=experts, mtp=predicts, full=one.recompute is RecomputeMode.FULL)


def _training_config(read: ArgumentReader, split: Split, layers: int) -> TrainingConfig:
    half = read.switch("bf16") or read.switch("fp16")
    # validate_args of Megatron-LM core_v0.12.1 enables it for bfloat16.
    wide = read.switch("bf16") or read.switch("accumulate_allreduce_grads_in_fp32") or not half
    sharding = Sharding.OPTIMIZER if read.switch("use_distributed_optimizer") else Sharding.NONE
    shape = shape_of(read, layers)
    if shape.experts and shape.experts.routed % split.expert:
        raise UnsupportedError(msg("check.script.otherwise", argument=read.argument_name("num_experts")))
    return TrainingConfig(
        shape,
        Parallelism(
            split.tensor,
            split.pipeline,
            split.context,
            split.expert,
            None,
            read.switch("sequence_parallel") and split.tensor > 1,
        ),
        MicroBatches(size_in(read, "micro_batch_size"), 1),
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
