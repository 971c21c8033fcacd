"""Read the layer settings of a ``mindformers-pynative`` config, with the checks of MindFormers 2.0 and 2.1.

The rules are those of ``BaseConfig.from_dict`` and the config classes in ``mindformers/pynative/config/config.py``,
and of ``check_type`` in ``mindformers/pynative/config/utils.py``: a section is built, then unknown keys are rejected,
then types are checked. Settings unrelated to layers are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import (
    MINDFORMERS_PYNATIVE,
    FrameworkStop,
    LayerPlan,
    PlanIssue,
    failure_of,
    failure_problem,
    second_name,
    stop,
)
from ms_tune.dialects.mindformers_pynative.placement import Modules, PynativeInputs
from ms_tune.dialects.mindformers_pynative.recompute import FRAMEWORK, normalize_pynative
from ms_tune.dialects.operators import dynamic_model, expert_layers
from ms_tune.dialects.sections import JobSplit, find_section, read_size
from ms_tune.dialects.values import are_numbers, is_patterns
from ms_tune.enums import Dialect
from ms_tune.facts.keys import Key, by_section
from ms_tune.facts.models import LAYERS, MTP_LAYERS, UNKNOWN, ModelConfig, ValueOrigin
from ms_tune.records import Any
from ms_tune.source.yaml import SourceFile
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.dialects import JobView


_MOST = 10_000  # upper bound for all counts, limits memory in case of a typing error
_MODES = ("None", "full", "select")
_STAGE_TYPE = "typing.Union[typing.List[typing.List[int]], typing.List[str], str, NoneType]"
_TYPES = {"int": int, "str": str, "bool": bool}
# For each section its class and its keys about layers, with the input that each sets, in the order of type checks.
SECTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "parallelism": (
        "ParallelismConfig",
        {
            "pipeline_parallel": "stages",
            "pipeline_parallel_layers_per_stage": "layers_per_stage",
            "pipeline_parallel_schedule": "schedule",
            "pipeline_parallel_interleave_num": "chunks",
        },
    ),
    "recompute": (
        "RecomputeConfig",
        {
            "mode": "mode",
            "full_recompute_layer": "full_layers",
            "select_module": "select_module",
            "exclude_op": "exclude_op",
        },
    ),
    "recompute_comm": ("RecomputeCommConfig", {"enable": "comm", "select_module": "comm_module"}),
    "swap": (
        "SwapConfig",
        {"enable": "swap", "default_prefetch": "prefetch", "layer_swap": "layer_swap", "op_swap": "op_swap"},
    ),
}


def parallel_degree(job: JobView, kind: str) -> int:
    """Return a parallel degree (``kind``: ``tensor``, ``context`` ...); 1 if it is not set."""
    written = job.source.get(("parallelism", f"{kind}_parallel"))
    return (written or 1) if isinstance(written, int) and not isinstance(written, bool) else 1


def plan_layers(job: JobView) -> LayerPlan:
    """Return the plan of a job. The number of layers defaults to that of the model's class."""
    source, model = job.source, job.model
    release = model.release
    try:
        inputs = _inputs(job)
    except FrameworkStop as error:
        problem = failure_problem("load", FRAMEWORK, error)
        return LayerPlan(MINDFORMERS_PYNATIVE, release, None, None, (), (problem,), (), failure_of(error))
    plan = normalize_pynative(inputs)
    if _more_than_one_device(source.data):
        # These parallel degrees require more than one device.
        kept = tuple(problem for problem in plan.problems if problem.id != PlanIssue.ONE_CARD)
        plan = plan._replace(problems=kept)
    clashes = [second_name(own, field) for own, field in model.clashes(LAYERS, MTP_LAYERS)]
    plan = plan._replace(problems=(*plan.problems, *clashes))
    count = model.field(LAYERS)
    if job.layers is None and count.origin is ValueOrigin.CLASS_DEFAULT:
        message = msg("plans.layers-of-class", layers=count.value)
        plan = plan._replace(problems=(*plan.problems, Diagnostic("layers-of-class", Severity.INFO, message)))
    return plan


def unplaced(job: JobView) -> LayerPlan:
    """Return the plan of the same layers on a single stage; errors are those of :func:`plan_layers`.

    Failures of the configured placement are ignored.
    """
    try:
        inputs = _inputs(job)
    except FrameworkStop:
        return plan_layers(job)
    return normalize_pynative(inputs._replace(stages=1, chunks=1))


def _inputs(job: JobView) -> PynativeInputs:
    source, model = job.source, job.model
    counts = layer_counts(job)
    values = _load(source.data)
    for key in ("stages", "chunks"):
        if values[key] > _MOST:
            raise source.wrong(("parallelism",), msg("plans.too-many", name=key, limit=_MOST), at_key=True)
    named = [source.get(("recompute", key)) for key in ("select_module", "exclude_op")]
    named += [source.get(("recompute_comm", "select_module")), source.get(("swap", "op_swap"))]
    modules = find_modules(job) if any(named) else None
    return PynativeInputs(*counts, version=model.release, modules=modules, comm_known=False, **values)


def find_modules(job: JobView) -> Modules | None:
    """Return the modules in each layer if the job's model is known, regardless of the settings."""
    model, (layers, mtp_layers) = job.model, layer_counts(job)
    if not model.has_own_layers:
        return None
    experts = expert_layers(layers, model.value("first_k_dense_replace"), model.value("moe_layer_freq"))
    known = dynamic_model(str(model.facts.kind), model.release, experts or ())
    if known is None or experts is None or (mtp_layers and known.ahead is None):
        return None
    paths = {tree: list(tree.paths()) for tree in (*known.kinds, known.ahead) if tree is not None}
    trees = [known.tree(layer) for layer in range(layers)] + [known.ahead] * mtp_layers
    return {layer: paths[tree] for layer, tree in enumerate(trees) if tree is not None}


def layer_counts(job: JobView) -> tuple[int, int]:
    """Return the numbers of ordinary and multi-token prediction layers."""
    return (
        job.layers if job.layers is not None else _count(job.source, job.model, LAYERS, 1),
        _count(job.source, job.model, MTP_LAYERS, 0),
    )


def _more_than_one_device(data: Mapping[Any, Any]) -> bool:
    section = data.get("parallelism")
    sizes = [section.get(f"{name}_parallel") for name in ("tensor", "context", "expert")] if section else []
    shards = section.get("data_parallel_shard") if section else None
    return any(isinstance(size, int) and size > 1 for size in (*sizes, shards))


def _count(source: SourceFile, model: ModelConfig, name: str, least: int) -> int:
    written = [field for field in model.written_fields(name) if field.value is not None]
    if len({repr(field.value) for field in written}) > 1:
        first, second, *_ = (str((field.path or ("",))[-1]) for field in written)
        raise source.wrong(("model", second), msg("normalize.two-names", first=first, second=second), at_key=True)
    field = written[0] if written else model.field(name)
    value = field.value
    if value in (None, UNKNOWN) and not least:
        return 0
    if value in (None, UNKNOWN):
        raise source.wrong(("model",), msg("plans.no-layer-count", key="model.num_hidden_layers"), at_key=True)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        path = field.path or ("model",)
        raise source.wrong(
            path, msg("plans.not-a-count", name=path[-1], value=value, minimum=least, maximum=_MOST), at_key=True
        )
    return value


def _load(data: Mapping[Any, Any]) -> dict[str, Any]:
    values = {field: _key(name, key).default for name, (_, keys) in SECTIONS.items() for key, field in keys.items()}
    for name, section in data.items():
        if name in SECTIONS and isinstance(section, dict):
            values |= _load_section(name, section)
    # The type of a section is checked only later, with the whole config, section by section.
    for name, (kind, _) in SECTIONS.items():
        section = data.get(name, {})
        if section is None:
            stop("TypeError", f"Field 'TrainConfig.{name}' cannot be None")
        if not isinstance(section, dict):
            stop("TypeError", f"Expected {kind} for 'TrainConfig.{name}', got {type(section).__name__}")
    return values


def _load_section(name: str, section: Mapping[Any, Any]) -> dict[str, Any]:
    kind, keys = SECTIONS[name]
    if name == "recompute" and section.get("mode", "None") not in _MODES:
        stop("ValueError", f"RecomputeConfig.mode must be 'None', 'full', or 'select', got {section['mode']}")
    unknown = [key for key in section if key not in keys]
    # Most keys of parallelism do not concern layers and are left to the linter.
    if unknown and name != "parallelism":
        stop("ValueError", f"Unknown configuration keys for {kind}: {unknown}")
    values = {}
    for key, field in keys.items():
        known = _key(name, key)
        value = section.get(key, known.default)
        _check_type(value, _TYPES.get("|".join(known.types)), f"{kind}.{key}")
        if field == "layers_per_stage":
            _check_stage_texts(value, f"{kind}.{key}")
        values[field] = value
    return values


def _key(section: str, name: str) -> Key:
    return by_section(Dialect.MINDFORMERS_PYNATIVE)[section,][name]


def _check_type(value: object, kind: type | None, name: str) -> None:
    """Check the type only where there is a single one; lists and mappings may be anything here."""
    if kind is None:
        return
    if value is None:
        stop("TypeError", f"Field '{name}' cannot be None")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        stop("TypeError", f"Expected {kind.__name__} for '{name}', got {type(value).__name__} ({value})")


def _check_stage_texts(value: object, name: str) -> None:
    if value is None or isinstance(value, str):
        return
    if isinstance(value, list) and (is_patterns(value) or all(map(are_numbers, value))):
        return
    stop("TypeError", f"Expected {_STAGE_TYPE} for '{name}', got {type(value).__name__} ({value})")


def read_shards(source: SourceFile) -> int | None:
    """Return the number of data-parallel ranks in the config."""
    shards = find_section(source.data, "parallelism").get("data_parallel_shard")
    return shards if type(shards) is int and shards > 0 else None


def split_job(source: SourceFile, processes: int | None) -> JobSplit:
    """Return devices, samples and micro-batches; without an explicit size DP uses all remaining devices (``parallel_dims.py``).

    With a growing batch (``rampup_batch_size``) the number of samples is unknown.
    """
    parallel, training = find_section(source.data, "parallelism"), find_section(source.data, "training")
    names = ("tensor_parallel", "context_parallel", "pipeline_parallel")
    ways = prod(read_size(parallel, name) or 1 for name in names)
    shards, copies = read_size(parallel, "data_parallel_shard"), read_size(parallel, "data_parallel_replicate") or 1
    cards = processes or (ways * shards * copies if shards else None)
    batch = None if training.get("rampup_batch_size") else read_size(training, "global_batch_size") or 1
    micro = None
    if cards is not None and batch is not None and cards % ways == 0:
        micro, rest = divmod(batch, cards // ways * (read_size(training, "local_batch_size") or 1))
        micro = None if rest else micro or None
    return JobSplit(cards, batch, micro, "global_batch_size")
