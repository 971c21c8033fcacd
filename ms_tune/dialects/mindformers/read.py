"""Read the ``mindformers`` dialect (static graph): recompute and swap settings, and the resulting plan.

Defaults and checks are those of MindFormers 1.6 to 2.1: ``mindformers/tools/register/template.py`` (sections and their
keys), ``mindformers/modules/transformer/transformer.py`` (``TransformerRecomputeConfig``) and
``mindformers/parallel_core/transformer_config_utils.py`` (the settings that Mcore models get).
"""

from __future__ import annotations

from collections.abc import Sequence

from ms_tune.diagnostics import Diagnostic, KeyPath, Severity
from ms_tune.dialects import PlanIssue, second_name
from ms_tune.dialects.mindformers.placement import KEYS, NO_SWAP, RecomputeInputs, RecomputeValues, SwapValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.dialects.sections import JobSplit, find_section, read_size
from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.errors import MsTuneError, UnknownSizesError
from ms_tune.facts.keys import key_at, mindspore_values
from ms_tune.facts.models import (
    CORE_SWAP,
    LAYERS,
    MTP_LAYERS,
    UNKNOWN,
    Field,
    ModelConfig,
    ValueOrigin,
    facts_of,
    is_legacy,
    model_folder,
    names_of,
)
from ms_tune.records import Any, NoReturn, Record
from ms_tune.source.yaml import MISSING, SourceFile
from ms_tune.text import Message, msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.dialects import JobView, LayerPlan

_MODEL = ("model", "model_config")
_PARALLEL = ("parallel_config",)
_PIPELINE = ("parallel", "pipeline_config")
_RECOMPUTE = ("recompute_config",)
_SWAP = ("swap_config",)
_TRAINING = ("train", "finetune", "predict_with_train_model")  # modes whose template has the two sections above

_FLAGS = ("parallel_optimizer_comm_recompute", "mp_comm_recompute", "recompute_slice_activation")
_SWAP_KEYS = ("swap", "layer_swap", "op_swap", "default_prefetch")
_MOST = 10_000  # upper bound for all counts, limits memory in case of a typing error


def plan_layers(job: JobView) -> LayerPlan:
    """Return the plan of a job."""
    inputs, source, model = read_inputs(job), job.source, job.model
    plan = normalize(inputs)
    # The lists are logged once more for multi-token prediction layers.
    if any((*inputs.values[1:], inputs.swaps.swap)) or inputs.mtp_layers:
        from ms_tune.dialects.mindformers.operators import find_layer_model, keep_matching_patterns  # noqa: PLC0415 - start-up time

        wanted = any((*inputs.values, inputs.swaps.swap))  # otherwise patterns are absent
        plan = keep_matching_patterns(inputs, plan, find_layer_model(model, inputs) if wanted else None)
    else:  # at most whole layers, whose operators do not matter
        whole = [layer.layer for layer in plan.layers if layer.recompute is RecomputeMode.FULL]
        plan = plan._replace(log=(*plan.log, *[f"Set full recompute at layer {layer}" for layer in whole]))
    problems = list(plan.problems)  # plus problems that concern all layers
    unheard = [key for key in KEYS[1:] if source.get((*_RECOMPUTE, key))] if inputs.reduced else []
    if unheard:
        problems.append(Diagnostic("core-drops", Severity.WARNING, msg("layers.core-drops", keys=", ".join(unheard))))
    written = source.get((*_PARALLEL, "pipeline_stage"), 1)
    if not written:
        problems.append(Diagnostic("no-stages", Severity.WARNING, msg("normalize.no-stages", written=written)))
    if written != inputs.stages and not splits_network(source):
        mode = source.get((*_PIPELINE[:1], "parallel_mode"))
        problems.append(
            Diagnostic("not-split", Severity.WARNING, msg("normalize.not-split", mode=mode, stages=written))
        )
    problems += [second_name(own, field) for own, field in model.clashes(LAYERS, MTP_LAYERS)]
    field = model.field(LAYERS)
    if field.origin is ValueOrigin.CLASS_DEFAULT and field.value == inputs.layers:
        problems.append(Diagnostic("layers-of-class", Severity.INFO, msg("plans.layers-of-class", layers=field.value)))
    return plan._replace(problems=tuple(problems))


def read_inputs(job: JobView, *, fewest: int = 1) -> RecomputeInputs:
    """Read placement, recompute and swap settings; ConfigError if they are missing or invalid.

    ``fewest`` is the smallest accepted number of layers. MindFormers itself accepts 0, which is never intended.
    """
    source, model = job.source, job.model
    reader, release, legacy = _ConfigReader(source, model), model.release, is_legacy(source.data)
    # Legacy models in the wheels ignore this setting; DeepSeek in the folder `research` uses it.
    mtp = 0 if legacy and model.known else reader.read_integer((*_MODEL, MTP_LAYERS))
    interleave, scheduler = reader.pipeline_config() if source.get(_PIPELINE[:1]) is not None else (False, "1f1b")
    recompute = reader.section(_RECOMPUTE, (*KEYS, *_FLAGS))
    flags = {name: reader.flag((*_RECOMPUTE, name)) for name in _FLAGS if name in recompute}
    section = reader.section(_SWAP, _SWAP_KEYS)  # the framework itself validates the values
    reader.section(_MODEL)
    layers, offset = job.layers, model.value("offset")
    if layers is None or reader.written_field(LAYERS) is not None:
        layers = reader.read_integer((*_MODEL, LAYERS), minimum=fewest, otherwise=-1)
        if layers < 0:
            reader.no_layer_count()
    checked = RecomputeValues(*[recompute.get(key, False) for key in KEYS])
    return RecomputeInputs(
        layers=layers + (mtp if legacy else 0),  # legacy DeepSeek models count their prediction layers too
        stages=(reader.read_integer((*_PARALLEL, "pipeline_stage")) or 1) if splits_network(source) else 1,
        offset=0 if offset is UNKNOWN else offset,
        interleave=interleave,
        interleave_num=reader.chunks(legacy=legacy),
        scheduler=scheduler,
        legacy=legacy,
        stage_num=reader.read_integer((*_MODEL, "stage_num")) if legacy else 0,
        start_stage=reader.read_integer((*_MODEL, "start_stage")) if legacy else 0,
        mtp_layers=mtp,
        micro_batches=reader.read_integer((*_PARALLEL, "micro_batch_num"), minimum=1),
        sequence_splits=reader.read_integer((*_PARALLEL, "seq_split_num"), minimum=1),
        slice_activation=flags.get("recompute_slice_activation", False),
        # 1.6 passes only the first value to such a model (`get_recompute` in `transformer_config_utils.py`).
        values=RecomputeValues(checked.recompute) if release == "1.6" and not legacy else checked,
        checked=checked,
        swap=SwapValues(**section) if section else NO_SWAP,
        core_swap=NO_SWAP if legacy else reader.core_swap(),
        version=release,
    )


def parallel_degree(job: JobView, kind: str) -> int:
    """Return a parallel degree, or 1 where the run or the network is not split.

    ``ulysses`` is the degree by which heads are split in addition: the context-parallel degree or a part of it
    (hybrid).
    """
    if kind == "ulysses":
        ranks, algorithm = parallel_degree(job, "context"), job.source.get((*_PARALLEL, "context_parallel_algo"))
        within = job.source.get((*_PARALLEL, "ulysses_degree_in_cp"))
        if algorithm == "hybrid_cp" and ranks > 1:
            return within if isinstance(within, int) and not isinstance(within, bool) and within else 1
        return ranks if algorithm == "ulysses_cp" else 1
    written = job.source.get(("parallel_config", f"{'model' if kind == 'tensor' else kind}_parallel"))
    split = bool(job.source.get(("use_parallel",), default=True)) and splits_network(job.source)
    return (written or 1) if split and isinstance(written, int) and not isinstance(written, bool) else 1


def splits_network(source: SourceFile) -> bool:
    """Return whether MindSpore splits the network; otherwise all parallel degrees are reset to 1.

    Source: ``BaseTrainer._check_global_batch_size_for_auto_parallel`` of ``trainer/base_trainer.py``; modes:
    ``PARALLEL_MODE`` in ``tools/utils.py``.
    """
    mode = source.get(("parallel", "parallel_mode"))
    return mode is None or mode in mindspore_values("splitting")


class Startup(Record):
    """Settings that many checks need, as interpreted by MindFormers (``BaseTrainer``, 1.6 to 2.1), and the plan."""

    # Whether `moe_config` is filled and made an object, which Mcore networks cannot read: the template
    # (`tools/register/template.py`) and `build_parallel_config` check only the top level and treat null as false.
    fills_experts: bool
    is_reduced: bool  # whether the model is one of 1.6 that uses only the first recompute value
    is_parallel: bool  # whether the run uses several devices; if not set, the command line is expected to set it
    splits: bool  # whether MindSpore splits the network; otherwise all parallel degrees are reset to 1
    splits_sequence: bool  # whether sequence parallelism is on between layers
    stages: int | None  # pipeline stages of the layers; None if not a number
    interleaves: bool  # whether stages have several chunks
    scheduler: str  # the pipeline schedule
    is_llama: bool  # whether the config is for the legacy Llama network and complete
    is_glm: bool  # the same for the legacy ChatGLM network
    inner_width: int | None  # width of Llama's feed-forward block
    trains: bool  # whether the release has the named network and can train it
    has_second_names: bool  # whether a field is also written under a second name
    plan: LayerPlan | None = None  # the plan of a run; None if the config is incomplete
    issues: list[str] | None = None  # the IDs of its problems
    passes: bool | None = None  # whether the framework sets all layers
    fills: bool | None = None  # whether each layer is in exactly one cell and no cell is empty


_LLAMAS = (None, "LlamaForCausalLM", "LlamaModel")
_GLMS = ("ChatGLM2ForConditionalGeneration", "ChatGLM2Model", "ChatGLM2WithPtuning2")


def read_startup(job: JobView) -> Startup:
    """Read the settings that checks need; cached in :attr:`ms_tune.job.Job.startup`."""
    source, model, release = job.source, job.model, job.release.version
    legacy, is_parallel = is_legacy(source.data), bool(source.get(("use_parallel",), default=True))
    splits = is_parallel and splits_network(source)
    stages = source.get((*_PARALLEL, "pipeline_stage"), 1)
    if isinstance(stages, bool) or not isinstance(stages, int) or stages < 1:
        stages = None if stages else 1  # an empty value counts as one stage and is reported by another check
    elif not splits:
        stages = 1
    scheduler = source.get((*_PIPELINE, "pipeline_scheduler"))
    named = source.get((*_MODEL, "type")) if legacy and not source.get(("pretrained_model_dir",)) else None
    network = source.get(("model", "arch", "type"))
    wants_sequence = bool(source.get((*_PARALLEL, "use_seq_parallel")))
    startup = Startup(
        fills_experts=bool(source.get(("use_legacy",), default=True)),
        is_reduced=not legacy and release == "1.6",
        is_parallel=is_parallel,
        splits=splits,
        # 1.8 also disables this where the network is not split.
        splits_sequence=wants_sequence and (splits or release in ("1.6", "1.7")),
        stages=stages,
        interleaves=is_parallel and source.get((*_PIPELINE, "pipeline_interleave")) is True,
        scheduler="1f1b" if scheduler is None or not is_parallel else str(scheduler),
        is_llama=named == "LlamaConfig" and network in _LLAMAS,
        is_glm=named == "ChatGLM2Config" and network in _GLMS,
        inner_width=_inner_width(model) if legacy else None,
        trains=bool(facts_of(release, architecture=model.architecture).modes),
        has_second_names=next(model.clashes(), None) is not None,
    )
    plan = _plan_of_run(job, startup, legacy=legacy)
    if plan is None:
        return startup
    issues = [problem.id for problem in plan.problems]
    counts = [count for row in plan.placement or () for count in row]
    fills = PlanIssue.OFFSET_REPEATED not in issues and min(counts, default=0) > 0
    return startup._replace(plan=plan, issues=issues, passes=plan.failure is None, fills=fills)


def _plan_of_run(job: JobView, startup: Startup, *, legacy: bool) -> LayerPlan | None:
    try:
        inputs = read_inputs(job, fewest=0)
    except MsTuneError:
        return None
    stages, model = startup.stages, job.model
    # Models differ in how they read the layer count or the offset; return None in these cases.
    differs = bool(model.mtp_layers) or model.value("offset") in (None, UNKNOWN)
    if stages is None or inputs.stage_num or inputs.start_stage or (legacy and differs and stages != 1):
        return None
    return normalize(inputs._replace(stages=stages, interleave=startup.interleaves, scheduler=startup.scheduler))


def _inner_width(model: ModelConfig) -> int | None:
    """Return the width of Llama's feed-forward block, derived from other settings if not set (``LlamaFeedForward``)."""
    given = model.value("intermediate_size")
    hidden, multiple = model.number("hidden_size"), model.number("multiple_of")
    factor = model.value("ffn_dim_multiplier")
    if given not in (None, UNKNOWN) or hidden is None or not multiple:
        return given if isinstance(given, int) and not isinstance(given, bool) else None
    width = 4 * hidden
    if factor not in (None, UNKNOWN):
        if not isinstance(factor, (int, float)):
            return None
        width = int((factor + 0.01) * width)
    return -(-int(2 * width / 3) // multiple) * multiple


def jit_level(source: SourceFile) -> object:
    """Return the config's JIT level; None if not set."""
    return source.get(("context", "jit_config", "jit_level"))


def passes_over(source: SourceFile, path: KeyPath) -> bool:
    """Return whether the framework treats any empty value (``[]``, ``0``, ``''``) as a missing section.

    Templates refuse anything but a mapping (``ConfigTemplate`` of ``tools/register/template.py``), but only training
    templates have the recompute and swap sections, and the mode may be set on the command line. For values that the
    templates let through, ``build_parallel_config`` of ``core/parallel_config.py`` only tests their truth.
    """
    return path in (_RECOMPUTE, _SWAP) and source.get(("run_mode",)) not in _TRAINING


class _ConfigReader(Record):
    """A reader with type checks, whose errors contain the location in the text."""

    source: SourceFile
    model: ModelConfig

    def fail(self, path: KeyPath, message: Message, hint: Message | None = None) -> NoReturn:
        """Raise ConfigError at a key path."""
        raise self.source.find_file(path).wrong(path, message, hint, at_key=True)

    def no_layer_count(self) -> NoReturn:
        """Raise UnknownSizesError for a missing number of layers."""
        folder, text = model_folder(self.source.data), msg("normalize.no-layer-count")
        hint: Message | None = msg("sizes.unknown.hint")
        if is_legacy(self.source.data) and self.model.kind and not self.model.known:  # such as a model of images
            text, hint = msg("sizes.no-decoder", model=self.model.kind), None
        elif is_legacy(self.source.data) and not self.model.kind:  # a template, or a part that another config includes
            text, hint = msg("normalize.no-model"), msg("normalize.no-model.hint")
        elif is_legacy(self.source.data):
            hint = msg("normalize.no-layer-count.hint")
        elif folder is not None and self.source.model_config is None:
            text = msg("normalize.no-model-folder", folder=folder)
        error = self.source.find_file(_MODEL).wrong(_MODEL, text, hint, at_key=True)
        raise UnknownSizesError(text, hint, path=error.path, line=error.line, column=error.column)

    def section(self, path: KeyPath, known: Sequence[str] = ()) -> dict[str, Any]:
        """Return a mapping or an empty one; check its keys against ``known`` if given."""
        value = self.source.get(path)
        if value is None or (not value and passes_over(self.source, path)):
            return {}
        if not isinstance(value, dict):
            self.fail(path, msg("normalize.not-a-section", name=".".join(map(str, path))))
        for key in value if known else ():
            if key not in known:
                self.fail((*path, key), msg("normalize.unknown-key", section=path[-1], key=key))
        return value

    def flag(self, path: KeyPath) -> bool:
        """Return a Boolean."""
        value = self.source.get(path)
        if not isinstance(value, bool):
            self.fail(path, msg("normalize.not-a-flag", name=path[-1], value=value))
        return value

    def written_field(self, name: str) -> Field | None:
        """Return a field of the model as written, under one name or several with the same value."""
        found = [field for field in self.model.written_fields(name) if field.value is not None]
        for field in found[1:]:
            if field.value != found[0].value:
                first, second = ((one.path or ("",))[-1] for one in (found[0], field))
                self.fail(field.path or _MODEL, msg("normalize.two-names", first=first, second=second))
        return found[0] if found else None

    def read_integer(self, path: KeyPath, *, minimum: int = 0, otherwise: int = 0) -> int:
        """Return a whole number; null means the default. A model's field defaults to its class's value or ``otherwise``."""
        if path[:-1] == _MODEL:
            field = self.written_field(str(path[-1])) or self.model.field(str(path[-1]))
            path, value = field.path or path, field.value
            if value in (None, UNKNOWN):
                return otherwise
        else:
            value = self.section(path[:-1]).get(str(path[-1]))
            if value is None:
                value = key_at(Dialect.MINDFORMERS, *map(str, path)).default
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= _MOST:
            limits = {"minimum": minimum, "maximum": _MOST}
            self.fail(path, msg("normalize.not-a-count", name=path[-1], value=value, **limits))
        return value

    def chunks(self, *, legacy: bool) -> int | None:
        """Return ``pp_interleave_num``, any whole number; if missing, 1 for legacy models, None for others."""
        name = "pp_interleave_num" if legacy else "virtual_pipeline_model_parallel_size"
        field = self.written_field(name) or self.model.field(name)
        value = field.value
        if value is UNKNOWN:
            return 1 if legacy else None
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value > _MOST):
            path = field.path or (*_MODEL, name)
            self.fail(path, msg("normalize.not-a-count", name=path[-1], value=value, minimum=1, maximum=_MOST))
        return value

    def pipeline_config(self) -> tuple[bool, str]:
        """Return ``pipeline_interleave`` and ``pipeline_scheduler``: MindSpore accepts both or neither, and no other keys."""
        self.section(_PIPELINE[:1])
        config = self.section(_PIPELINE)
        if not config:
            return False, "1f1b"
        if config.keys() != {"pipeline_interleave", "pipeline_scheduler"}:
            self.fail(_PIPELINE, msg("normalize.pipeline-config", found=", ".join(map(str, config))))
        scheduler = config["pipeline_scheduler"]
        if scheduler not in mindspore_values("pipeline_scheduler"):
            known = ", ".join(mindspore_values("pipeline_scheduler"))
            self.fail((*_PIPELINE, "pipeline_scheduler"), msg("normalize.scheduler", value=scheduler, known=known))
        return self.flag((*_PIPELINE, "pipeline_interleave")), scheduler

    def core_swap(self) -> SwapValues:
        """Return the swap settings of an Mcore model (not a legacy one)."""
        written = zip(_SWAP_KEYS, map(self.written_field, CORE_SWAP), strict=False)
        values = {key: field.value for key, field in written if field is not None}
        section = self.section(_MODEL)
        if "swap" not in values and None in [section.get(name, MISSING) for name in names_of("swap")]:
            values["swap"] = None  # here null does not mean the default: the class refuses it
        return SwapValues(**values) if values else NO_SWAP


MICRO_BATCHES = ("parallel_config", "micro_batch_num")  # micro-batches per step


def is_parallel(source: SourceFile) -> bool:
    """Return whether a config runs on several devices."""
    return bool(source.get(("use_parallel",), default=False))


def has_whole_vocabulary(source: SourceFile) -> bool:
    """Return whether each TP rank of a legacy network has the whole embedding and head (``vocab_emb_dp``).

    With several stages it is reset (``mindformers/core/parallel_config.py``); networks of Mcore never have it.
    """
    section = "parallel_config"
    stages = source.get((section, "pipeline_stage"), 1)
    several = isinstance(stages, int) and stages > 1
    return is_legacy(source.data) and source.get((section, "vocab_emb_dp"), default=True) is True and not several


def shards_accumulated_gradients(source: SourceFile) -> bool:
    """Return whether gradients summed over micro-batches are sharded like the weights (MindSpore's default is off)."""
    path = ("parallel", "parallel_optimizer_config", "gradient_accumulation_shard")
    return source.get(path, default=False) is True


class Adapter(Record):
    """The projections that LoRA adapts (``pet_config``); the model's own weights are frozen."""

    rank: int
    attention: bool
    feed_forward: bool


# Parts of the names of projections: in legacy networks, in GLM, in networks of Mcore.
_ATTENTION = ("wq", "wk", "wv", "wo", "qkv", "query_key_value", "dense", "linear_q", "linear_kv", "linear_proj")
_FEED_FORWARD = ("w1", "w2", "w3", "gate_hidden", "h_to_4h", "4h_to_h", "linear_fc", "mlp", "feed_forward")
_LORA_RANK = 8  # default of ``LoraConfig`` (mindformers/pet/pet_config.py)


def read_adapter(model: ModelConfig) -> Adapter | None:
    """Return the adapter that fine-tuning adds to the model; None if all weights are trained.

    ``target_modules`` is a regular expression of the user's. It is not run: only the names in it are looked for.
    """
    settings = model.value("pet_config")
    if not isinstance(settings, dict) or not settings.get("pet_type"):
        return None
    target, rank = str(settings.get("target_modules", "")), settings.get("lora_rank")
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        rank = _LORA_RANK
    attention, feed_forward = (any(name in target for name in names) for names in (_ATTENTION, _FEED_FORWARD))
    return Adapter(rank, attention, feed_forward)


def names_devices(source: SourceFile) -> bool:
    """Return whether a config itself defines the number of devices."""
    return source.get(("parallel_config", "data_parallel")) is not None


def split_job(source: SourceFile, processes: int | None) -> JobSplit:
    """Return the number of devices and samples: ``batch_size x data_parallel x micro_batch_num`` (with stages) ``x accumulation``.

    With another number of devices than configured the batch is unknown.
    """
    parallel, runner = find_section(source.data, "parallel_config"), find_section(source.data, "runner_config")
    names = ("data_parallel", "model_parallel", "pipeline_stage", "context_parallel")
    data, model, stages, context = (read_size(parallel, name) or 1 for name in names)
    micro = (read_size(parallel, "micro_batch_num") or 1) if stages > 1 else 1
    size, steps = read_size(runner, "batch_size"), read_size(runner, "gradient_accumulation_steps") or 1
    interleaved = read_size(source.data, "micro_batch_interleave_num") or 1
    batch = size * data * micro * steps * interleaved if size and parallel else None
    cards = data * model * stages * context if parallel else None
    if processes is not None and processes != cards:
        return JobSplit(processes, None, micro)
    return JobSplit(cards, batch, micro)
