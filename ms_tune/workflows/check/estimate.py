"""What the stages of a job hold by closed forms, in milliseconds: enough to see that a job cannot fit, never that it does.

What stays for the whole step is arithmetic and exact where the framework's rules are known (:mod:`ms_tune.estimate.persistent`);
what layers keep is an estimate (:mod:`ms_tune.estimate.memory`), which knows no temporaries of operators.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.dialects.job_parts import DType, MicroBatches, Optimizer, Parallelism, Precision, Sharding, TrainingConfig
from ms_tune.dialects.megatron.read import ArgumentReader, shape_of, size_in
from ms_tune.dialects.stage import StageLayer, stage_of
from ms_tune.dryrun.prepare import prepare_run
from ms_tune.dryrun.request import Pipeline
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.errors import UnsupportedError
from ms_tune.estimate.flops import widths_of
from ms_tune.estimate.megatron import megatron_stage
from ms_tune.estimate.memory import Estimate, HeldLayers, RankShare, estimate_stage, layer_activations, logits_bytes
from ms_tune.fit.layouts import is_sequence_parallel, read_layout
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.dialects.layer_plan import LayerPlan, LayerSpec
    from ms_tune.dialects.megatron.arguments import ProgramArguments
    from ms_tune.dryrun.request import PreparedRun, Split
    from ms_tune.estimate.flops import Widths
    from ms_tune.estimate.memory import StageEstimate
    from ms_tune.fit.job import PlannedJob
    from ms_tune.verdict.limit import Limit


def estimate_of(job: PlannedJob, limit: Limit, reserve_bytes: int) -> Estimate:
    """What every stage of a job holds as its config has it.

    Args:
        job: The job.
        limit: What a stage may take.
        reserve_bytes: What is set aside of it.

    Raises:
        UnsupportedError: The sizes of its model are not all known.
    """
    widths = widths_of(job.loaded.job.model)
    if widths is None:
        raise UnsupportedError(msg("layouts.no-sizes"), msg("layouts.no-sizes.hint"))
    layout = read_layout(job.loaded, job.first)
    tokens = widths.tokens * layout.size // layout.context
    share = RankShare(tokens, layout.tensor, is_sequence_parallel(job.loaded), layout.context, layout.expert)
    runs = [prepare_run(replace(job.request, stage=stage, layers=None), job.loaded) for stage in range(job.stages)]
    stages = tuple(_config_stage(run, widths, share) for run in runs)
    return Estimate(stages, limit, reserve_bytes, bool(widths.experts))


def _config_stage(run: PreparedRun, widths: Widths, share: RankShare) -> StageEstimate:
    if not run.theory:
        raise UnsupportedError(msg("check.no-theory"))
    if run.in_flight is None:
        raise UnsupportedError(msg("fitting.schedule"))
    lasting = sum(run.theory.values())
    if "gradients" not in run.theory:  # as many bytes as the weights, where they are in the same format
        lasting += run.theory.get("weights", 0)
    layers = []
    for kind, count in run.kinds.items():
        chunk, make = kind.cell
        held = layer_activations(widths, share, experts=make is not LayerKind.DENSE and bool(widths.experts))
        full = kind.recompute is RecomputeMode.FULL
        # Without stages there is one pass, however many chunks the lists of layers have.
        passes = run.in_flight[chunk if run.stages > 1 else 0]
        layers.append(HeldLayers(held, passes, full=full, count=count))
    logits = logits_bytes(widths, share) if run.stage == run.stages - 1 else 0
    return estimate_stage(run.stage, run.layers, lasting, layers, logits)


# What holds other things than theory and these closed forms know.
_OTHERWISE = (
    *("reuse_fp32_param", "swap_attention", "swap_optimizer", "moe_zero_memory", "tp_2d", "lora_target_modules"),
    *("use_torch_fsdp2", "use_custom_fsdp", "moe_tp_extend_ep", "schedules_method"),
)
_TUNED = ("sft",)  # stages of posttrain_gpt.py that hold one model


def estimate_of_script(command: ProgramArguments, plan: LayerPlan, split: Split, limit: tuple[Limit, int]) -> Estimate:
    """What every stage holds.

    Args:
        command: The program's arguments.
        plan: What its layers do.
        split: How its devices share the work.
        limit: What a stage may take, and what is set aside of it.

    Raises:
        UnsupportedError: Something that decides is not known, or holds what no closed form tells.
        NotEvaluableError: A value is not known without running the script.
        ConfigError: A value is of no served form.
    """
    read = ArgumentReader(command)
    for dest in _OTHERWISE:
        if read.value(dest) not in (None, False, 0, [], "", "disable"):
            raise UnsupportedError(msg("check.script.otherwise", argument=read.written(dest)))
    if read.value("ai_framework") != "mindspore":
        raise UnsupportedError(msg("check.script.not-mindspore"))
    if read.value("stage") not in (None, *_TUNED):
        raise UnsupportedError(msg("check.script.otherwise", argument=read.written("stage")))
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
    # validate_args of Megatron-LM core_v0.12.1 sets it for bfloat16.
    wide = read.switch("bf16") or read.switch("accumulate_allreduce_grads_in_fp32") or not half
    sharding = Sharding.OPTIMIZER if read.switch("use_distributed_optimizer") else Sharding.NONE
    shape = shape_of(read, layers)
    if shape.experts and shape.experts.count % split.expert:
        raise UnsupportedError(msg("check.script.otherwise", argument=read.written("num_experts")))
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
