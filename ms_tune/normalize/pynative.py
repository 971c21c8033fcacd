"""The layers of a ``mindformers-pynative`` config: what MindFormers 2.0 and 2.1 check while they load it.

The rules are those of ``BaseConfig.from_dict`` and the config classes in ``mindformers/pynative/config/config.py``,
and of ``check_type`` in ``mindformers/pynative/config/utils.py``: a section is built, then searched for keys that it
does not have, then its types are checked. Settings that say nothing about layers are not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.layers.plans import MINDFORMERS_PYNATIVE, NormalizedPlan, failure_of, failure_problem
from ms_tune.layers.pynative.inputs import PynativeInputs
from ms_tune.layers.pynative.plan import FRAMEWORK, normalize_pynative
from ms_tune.layers.result import FrameworkStop, stop
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.config.source import SourceFile
    from ms_tune.layers.pynative.modules import Modules

VERSIONS = ("2.0", "2.1")
DEFAULT_VERSION = "2.1"

_MOST = 10_000  # of anything: a slip of the keyboard must not fill the memory
_LAYER_KEYS = ("num_layers", "num_hidden_layers", "n_layer")
_MTP_KEYS = ("mtp_depth", "num_nextn_predict_layers", "mtp_num_layers")
_MODES = ("None", "full", "select")
_STAGE_TYPE = "typing.Union[typing.List[typing.List[int]], typing.List[str], str, NoneType]"


@dataclass(frozen=True, slots=True)
class _Key:
    """A key of a section: the field of the inputs it goes to, its default, and the type that is insisted on."""

    field: str
    default: Any
    kind: type | None = None


# The sections and their keys, in the order in which their types are checked.
_SECTIONS: dict[str, tuple[str, dict[str, _Key]]] = {
    "parallelism": (
        "ParallelismConfig",
        {
            "pipeline_parallel": _Key("stages", 1, int),
            "pipeline_parallel_layers_per_stage": _Key("layers_per_stage", "auto"),
            "pipeline_parallel_schedule": _Key("schedule", "1f1b", str),
            "pipeline_parallel_interleave_num": _Key("chunks", 1, int),
        },
    ),
    "recompute": (
        "RecomputeConfig",
        {
            "mode": _Key("mode", "None", str),
            "full_recompute_layer": _Key("full_layers", None),
            "select_module": _Key("select_module", None),
            "exclude_op": _Key("exclude_op", None),
        },
    ),
    "recompute_comm": (
        "RecomputeCommConfig",
        {"enable": _Key("comm", default=False, kind=bool), "select_module": _Key("comm_module", None)},
    ),
    "swap": (
        "SwapConfig",
        {
            "enable": _Key("swap", default=False, kind=bool),
            "default_prefetch": _Key("prefetch", 1, int),
            "layer_swap": _Key("layer_swap", None),
            "op_swap": _Key("op_swap", None),
        },
    ),
}


def normalize_source(source: SourceFile, version: str | None = None, layers: int | None = None) -> NormalizedPlan:
    """What each layer of a config will do.

    Args:
        source: The config.
        version: The MindFormers release, 2.0 or 2.1.
        layers: The number of layers, for a config that leaves it to the model's own ``config.json``.

    Raises:
        ConfigError: The config does not say how many layers there are, or what it says is beyond all bounds.
        UnsupportedError: Another version.
    """
    release = _release(version)
    counts = _layer_counts(source, layers)
    try:
        values = _load(source.data)
    except FrameworkStop as error:
        problem = failure_problem("load", FRAMEWORK, error)
        return NormalizedPlan(MINDFORMERS_PYNATIVE, release, None, None, (), (problem,), (), failure_of(error))
    for key in ("stages", "chunks"):
        if values[key] > _MOST:
            _refuse(source, ("parallelism",), "plans.too-many", name=key, limit=_MOST)
    inputs = PynativeInputs(
        layers=counts[0],
        mtp_layers=counts[1],
        version=release,
        modules=_modules(source, release, *counts),
        comm_known=False,
        **values,
    )
    plan = normalize_pynative(inputs)
    if _more_than_one_device(source.data):
        # With so many ways to split the job, it runs on more than one device for sure.
        kept = tuple(problem for problem in plan.problems if problem.id != "one-card")
        plan = replace(plan, problems=kept)
    return plan


def _modules(source: SourceFile, release: str, layers: int, mtp_layers: int) -> Modules | None:
    """The modules inside each layer, if the config's model is one whose layers are known and something names modules."""
    named = [source.get(("recompute", key)) for key in ("select_module", "exclude_op")]
    named += [source.get(("recompute_comm", "select_module")), source.get(("swap", "op_swap"))]
    if not any(named):
        return None
    from ms_tune.layers.tree import dynamic_layers  # noqa: PLC0415 - start-up time

    kinds = dynamic_layers(str(source.get(("model", "model_type"))), release)
    dense = source.get(("model", "first_k_dense_replace"), 0)
    if kinds is None or not isinstance(dense, int) or source.get(("model", "moe_layer_freq")):
        return None
    paths = [list(kind.paths()) for kind in kinds]
    ahead = paths[-1] if len(paths) > 2 else None  # noqa: PLR2004 - dense, with experts, and the one that predicts
    if mtp_layers and ahead is None:
        return None
    usual = paths[:2]
    return {layer: usual[0] if layer < dense else usual[-1] for layer in range(layers)} | {
        layer: ahead or [] for layer in range(layers, layers + mtp_layers)
    }


def _release(version: str | None) -> str:
    release = ".".join((version or DEFAULT_VERSION).split(".")[:2])
    if release not in VERSIONS:
        raise UnsupportedError(
            msg("plans.version", version=version, dialect=MINDFORMERS_PYNATIVE, versions=", ".join(VERSIONS))
        )
    return release


def _more_than_one_device(data: Mapping[Any, Any]) -> bool:
    section = data.get("parallelism")
    sizes = [section.get(f"{name}_parallel") for name in ("tensor", "context", "expert")] if section else []
    shards = section.get("data_parallel_shard") if section else None
    return any(isinstance(size, int) and size > 1 for size in (*sizes, shards))


def _layer_counts(source: SourceFile, layers: int | None) -> tuple[int, int]:
    """Layers of the model, and those of multi-token prediction."""
    model = source.data.get("model")
    if not isinstance(model, dict):
        model = {}
    found = layers if layers is not None else _count(source, model, _LAYER_KEYS)
    if found is None:
        _refuse(source, ("model",), "plans.no-layer-count", key="model.num_hidden_layers")
    return found, _count(source, model, _MTP_KEYS) or 0


def _count(source: SourceFile, model: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    given = {key: model[key] for key in keys if model.get(key) is not None}
    if len(set(map(repr, given.values()))) > 1:
        first, second, *_ = given
        _refuse(source, ("model", second), "plans.two-names", first=first, second=second)
    least = 0 if keys is _MTP_KEYS else 1
    for key, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            _refuse(source, ("model", key), "plans.not-a-count", name=key, value=value, minimum=least, maximum=_MOST)
        return value
    return None


def _refuse(source: SourceFile, path: tuple[str, ...], text: str, **params: object) -> NoReturn:
    position = source.nearest(path)
    span = position.key or position.value
    raise ConfigError(msg(text, **params), path=source.path, line=span.line, column=span.column)


def _load(data: Mapping[Any, Any]) -> dict[str, Any]:
    """The settings as the framework has them once it has loaded the config."""
    values = {key.field: key.default for _, keys in _SECTIONS.values() for key in keys.values()}
    for name, section in data.items():
        if name in _SECTIONS and isinstance(section, dict):
            values |= _load_section(name, section)
    # What is no section at all is found only when the whole config is checked, section by section.
    for name, (kind, _) in _SECTIONS.items():
        section = data.get(name, {})
        if section is None:
            stop("TypeError", f"Field 'TrainConfig.{name}' cannot be None")
        if not isinstance(section, dict):
            stop("TypeError", f"Expected {kind} for 'TrainConfig.{name}', got {type(section).__name__}")
    return values


def _load_section(name: str, section: Mapping[Any, Any]) -> dict[str, Any]:
    kind, keys = _SECTIONS[name]
    if name == "recompute" and section.get("mode", "None") not in _MODES:
        stop("ValueError", f"RecomputeConfig.mode must be 'None', 'full', or 'select', got {section['mode']}")
    unknown = [key for key in section if key not in keys]
    # Of the keys of parallelism most say nothing about layers and are left to the linter.
    if unknown and name != "parallelism":
        stop("ValueError", f"Unknown configuration keys for {kind}: {unknown}")
    values = {}
    for key, field in keys.items():
        value = section.get(key, field.default)
        _check_type(value, field.kind, f"{kind}.{key}")
        if field.field == "layers_per_stage":
            _check_stage_texts(value, f"{kind}.{key}")
        values[field.field] = value
    return values


def _check_type(value: object, kind: type | None, name: str) -> None:
    """Only where one type is meant is it insisted on: a list or a mapping may be anything here."""
    if kind is None:
        return
    if value is None:
        stop("TypeError", f"Field '{name}' cannot be None")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        stop("TypeError", f"Expected {kind.__name__} for '{name}', got {type(value).__name__} ({value})")


def _check_stage_texts(value: object, name: str) -> None:
    if value is None or isinstance(value, str):
        return
    if isinstance(value, list) and (
        all(isinstance(item, str) for item in value) or all(_are_numbers(item) for item in value)
    ):
        return
    stop("TypeError", f"Expected {_STAGE_TYPE} for '{name}', got {type(value).__name__} ({value})")


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in value)
