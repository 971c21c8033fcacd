"""What MindFormers makes of the settings that many checks ask for (``BaseTrainer``, 1.6 to 2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.mindformers.read import splits_network
from ms_tune.facts import models
from ms_tune.facts.keys import mindspore_values
from ms_tune.facts.models import names_of

if TYPE_CHECKING:
    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.source.yaml import SourceFile


def is_legacy(context: CheckContext) -> bool:
    """Whether the model is a legacy one."""
    return models.is_legacy(context.source.data)


def is_reduced(context: CheckContext) -> bool:
    """Whether the model is one of 1.6 that hears of the first recompute value only."""
    return not is_legacy(context) and context.version == "1.6"


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
    return wanted and (splits(context) or context.version in ("1.6", "1.7"))


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
