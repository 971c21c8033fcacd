"""What differs between the MindFormers releases 1.6 to 2.1, as far as layers are concerned.

Found by comparing the released sources: ``LayerSetting`` is in ``mindformers/models/utils.py`` for legacy models of
1.6 and, in a reduced form, in ``mindformers/parallel_core/training_graph/transformer/utils.py`` for the others; since
1.7 the latter file holds one class for both. 1.9, 2.0 and 2.1 have the same class to the letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ms_tune.dialects.arrays import ArrayRow
from ms_tune.dialects.layer_plan import stop
from ms_tune.facts import models
from ms_tune.facts.models import names_of
from ms_tune.facts.registries import mindspore_values
from ms_tune.facts.releases import DEFAULT_VERSION, VERSIONS
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.source.yaml import SourceFile


class Rules(NamedTuple):
    """The rules of one release."""

    zero_bubble: bool  # knows `zero_bubble_v`, where the second chunk runs backwards (since 1.7)
    # Models that are not legacy ones have exclude lists, swap and stricter checks of their own, and their prediction
    # layers are not counted with the others (since 1.7).
    one_class: bool
    copies_lists: bool  # a list of the config is copied before it is written into (since 1.7; rows never are)
    timed_patterns: bool  # patterns are matched by the module `regex` with a time limit (since 1.7), before by `re`
    checks_cells: bool  # a cell without layers is refused, and a single cell takes any offset (since 1.8)
    places_with_swap: bool  # the stage of a layer is set also when swap is on (since 1.8)
    # Blanks that a line continued in the source leaves in the warning about a layer of a list that is both swapped and
    # recomputed.
    warning_gap: int


def rules_of(version: str) -> Rules:
    """The rules of a release in :data:`VERSIONS`."""
    place = VERSIONS.index(version)
    since_17, since_18, since_19 = (place >= VERSIONS.index(first) for first in ("1.7", "1.8", "1.9"))
    return Rules(
        zero_bubble=since_17,
        one_class=since_17,
        copies_lists=since_17,
        timed_patterns=since_17,
        checks_cells=since_18,
        places_with_swap=since_18,
        warning_gap=31 if since_19 else 35,
    )


# The five values of a recompute plan, in the order in which the framework formats them.
KEYS = (
    "recompute",
    "select_recompute",
    "select_comm_recompute",
    "select_recompute_exclude",
    "select_comm_recompute_exclude",
)


class RecomputeValues(NamedTuple):
    """The five values just as the config gives them: bool, list, list of lists, list of patterns, dict, or nonsense.

    Two values (or two rows of them) that are one object, as a YAML alias makes them, are treated as the framework
    treats them: what it writes into the one shows in the other.
    """

    recompute: object = False
    select_recompute: object = False
    select_comm_recompute: object = False
    select_recompute_exclude: object = False
    select_comm_recompute_exclude: object = False

    def get(self, key: str) -> object:
        """The value of one of :data:`KEYS`."""
        value: object = getattr(self, key)
        return value


class SwapValues(NamedTuple):
    """The values of ``swap_config`` just as the config gives them. What is absent is None, but for the two defaults."""

    swap: object = False
    layer_swap: object = None
    op_swap: object = None
    default_prefetch: object = 1


class RecomputeInputs(NamedTuple):
    """Everything that decides about placement, recompute plan and swap plan."""

    layers: int  # number of layers that the framework distributes (see `mtp_layers`)
    stages: int = 1  # pipeline stages (`parallel_config.pipeline_stage`)
    # Extra layers of each stage, as written: a number, a list for the stages, or lists for (chunk, stage).
    offset: object = 0
    # Whether `pipeline_interleave` is on; without it there is one chunk, whatever is asked for.
    interleave: bool = False
    # Chunks asked for (`pp_interleave_num`). None is what a model without that key has when it is not a legacy model.
    interleave_num: int | None = 1
    scheduler: str = "1f1b"  # `pipeline_scheduler`
    legacy: bool = True  # whether the model is a legacy one (`use_legacy`)
    stage_num: int = 0  # if not 0, the stages of this part of a multi-modal model, in place of `stages`
    start_stage: int = 0  # its first stage
    # Multi-token-prediction layers that are built after, and beside, the `layers`. The reduced class of 1.6 distributes
    # them with the others.
    mtp_layers: int = 0
    micro_batches: int = 1  # `parallel_config.micro_batch_num`
    sequence_splits: int = 1  # `parallel_config.seq_split_num`
    slice_activation: bool = False  # `recompute_config.recompute_slice_activation`
    values: RecomputeValues = RecomputeValues()
    # The values that the framework's own checks see, if the model does not get all of them.
    checked: RecomputeValues | None = None
    # The section `swap_config`. Models that are not legacy ones never see it; the framework's checks do.
    swap: SwapValues = SwapValues()
    # What such a model gets instead, out of `model.model_config` (since 1.7).
    core_swap: SwapValues = SwapValues()
    version: str = DEFAULT_VERSION  # the MindFormers release, one of `ms_tune.dialects.mindformers.inputs.VERSIONS`

    @property
    def rules(self) -> Rules:
        """The rules of the release."""
        return rules_of(self.version)

    @property
    def reduced(self) -> bool:
        """Whether the model is served by the reduced class of 1.6, which knows neither swap nor exclude lists."""
        return not self.legacy and not self.rules.one_class

    @property
    def placed_layers(self) -> int:
        """The layers that are spread over the stages: in the reduced class the prediction layers are among them."""
        return self.layers + self.mtp_layers if self.reduced else self.layers

    @property
    def swaps(self) -> SwapValues:
        """The swap values that reach the layers."""
        if self.reduced:
            return SwapValues()
        return self.swap if self.legacy else self.core_swap

    @property
    def placed_stages(self) -> int:
        """The stages that the layers are spread over."""
        return self.stage_num or self.stages

    @property
    def zero_bubble(self) -> bool:
        """Whether the second chunk runs through the stages backwards."""
        return self.scheduler == "zero_bubble_v" and self.rules.zero_bubble


_COMM_PATTERNS = (r".*\.norm",)

_LEGACY_PATTERNS = (r"feed_forward\.mul", r"feed_forward\.w1\.activation\.silu")

_CORE_PATTERNS = (
    r"mlp\.shared_experts\.mul",
    r"mlp\.shared_experts\.activation_func\.silu",
    r"mlp\.mul",
    r"mlp\.activation_func\.silu",
)


class WrittenCount(int):
    """A count that the framework has written back into a list of the config, as a NumPy integer.

    Its own type checks do not take such a count for a whole number when they meet the list again.
    """

    __slots__ = ()


def default_patterns(key: str, *, legacy: bool) -> tuple[str, ...]:
    """The operators that a value without patterns of its own means."""
    if key == "select_recompute":
        return _LEGACY_PATTERNS if legacy else _CORE_PATTERNS
    return _COMM_PATTERNS if key == "select_comm_recompute" else ()


def is_patterns(value: object) -> bool:
    """Whether the value is a list of patterns and nothing else. An empty list is."""
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def is_counts(value: object) -> bool:
    """Whether the value is a list of whole numbers, True and False: one entry a stage. An empty list is."""
    return isinstance(value, (list, tuple)) and all(is_count(item) for item in value)


def is_count(item: object) -> bool:
    """Whether it is a whole number that the framework has not written itself."""
    return isinstance(item, int) and not isinstance(item, WrittenCount)


def illegal(value: object, item: object = None) -> NoReturn:
    """The framework does not take this value."""
    # The framework names select_recompute here whichever value it is about.
    why = msg("layers.why.written-twice") if isinstance(item, (WrittenCount, ArrayRow)) else None
    stop("ValueError", f"Illegal input list for select_recompute: {value}", why)


def splits_network(source: SourceFile) -> bool:
    """Whether MindSpore splits the network. If not, all parallel sizes are set back to 1.

    ``BaseTrainer._check_global_batch_size_for_auto_parallel`` of ``trainer/base_trainer.py``; the modes are those of
    ``PARALLEL_MODE`` in ``tools/utils.py``.
    """
    mode = source.get(("parallel", "parallel_mode"))
    return mode is None or mode in mindspore_values("splitting")


def release(context: CheckContext) -> str:
    """The MindFormers release that is checked for, in the form of :data:`ms_tune.layers.VERSIONS`."""
    return context.version


def is_legacy(context: CheckContext) -> bool:
    """Whether the model is a legacy one."""
    return models.is_legacy(context.source.data)


def is_reduced(context: CheckContext) -> bool:
    """Whether the model is one of 1.6 that hears of the first recompute value only."""
    return not is_legacy(context) and release(context) == "1.6"


def swaps_in_core(context: CheckContext) -> bool:
    """Whether a model that is no legacy one is told to swap by its own section (since 1.7)."""
    told = any(context.get(f"model.model_config.{name}") is True for name in names_of("swap"))
    return told and not is_legacy(context) and not is_reduced(context)


def is_parallel(context: CheckContext) -> bool:
    """Whether the run is one over several devices; where nothing is said, the command line will have it (its default is no)."""
    return bool(context.source.get(("use_parallel",), default=True))


def splits(context: CheckContext) -> bool:
    """Whether MindSpore splits the network; if not, all parallel sizes are set back to 1."""
    return is_parallel(context) and splits_network(context.source)


def splits_by_strategy(context: CheckContext) -> bool:
    """Whether the network is split as ``parallel_config`` says, the mode that ``check_rules`` looks at."""
    return is_parallel(context) and context.get("parallel.parallel_mode", 1) in mindspore_values("semi_automatic")


def splits_sequence(context: CheckContext) -> bool:
    """Whether the sequence is split between the layers; where the network is not split, 1.8 turns this off as well."""
    wanted = bool(context.get("parallel_config.use_seq_parallel"))
    return wanted and (splits(context) or release(context) in ("1.6", "1.7"))


def stages(context: CheckContext) -> int | None:
    """The pipeline stages that layers are placed on; None if they are no number."""
    written = context.source.get(("parallel_config", "pipeline_stage"), 1)
    if isinstance(written, bool) or not isinstance(written, int) or written < 1:
        return None if written else 1  # an empty one counts as one stage; a check of types and bounds says so
    return written if splits(context) else 1


def interleaves(context: CheckContext) -> bool:
    """Whether stages have several chunks."""
    return is_parallel(context) and context.get("parallel.pipeline_config.pipeline_interleave") is True


def scheduler(context: CheckContext) -> str:
    """In which order the stages work."""
    written = context.get("parallel.pipeline_config.pipeline_scheduler", "1f1b")
    return str(written) if is_parallel(context) else "1f1b"


def jit_level(source: SourceFile) -> object:
    """How a config wants its graphs compiled; None where it does not say."""
    return source.get(("context", "jit_config", "jit_level"))
