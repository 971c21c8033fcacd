"""What MindFormers makes of the settings that many checks ask for (``BaseTrainer``, 1.6 to 2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.mindformers.read import splits_network
from ms_tune.facts import models
from ms_tune.facts.keys import mindspore_values
from ms_tune.facts.models import UNKNOWN, names_of

if TYPE_CHECKING:
    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.source.yaml import SourceFile


def is_legacy(context: CheckContext) -> bool:
    """Whether the model is a legacy one."""
    return models.is_legacy(context.source.data)


def fills_experts(context: CheckContext) -> bool:
    """Whether ``moe_config`` is filled and made an object (``build_parallel_config``)."""
    return models.fills_experts(context.source.data)


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


_LLAMAS = (None, "LlamaForCausalLM", "LlamaModel")
_GLMS = ("ChatGLM2ForConditionalGeneration", "ChatGLM2Model", "ChatGLM2WithPtuning2")


def is_llama(context: CheckContext) -> bool:
    """Whether the config is one of the legacy Llama network, and says all about it."""
    named = context.get("model.arch.type") in _LLAMAS and context.get("model.model_config.type") == "LlamaConfig"
    return is_legacy(context) and named and not context.get("pretrained_model_dir")


def is_glm(context: CheckContext) -> bool:
    """Whether the config is one of the legacy ChatGLM network, and says all about it."""
    named = context.get("model.arch.type") in _GLMS and context.get("model.model_config.type") == "ChatGLM2Config"
    return is_legacy(context) and named and not context.get("pretrained_model_dir")


def inner_width(context: CheckContext) -> int | None:
    """The width of Llama's feed-forward block, which follows from others if it is not said (``LlamaFeedForward``)."""
    given = context.model.value("intermediate_size")
    hidden, multiple = context.model.number("hidden_size"), context.model.number("multiple_of")
    factor = context.model.value("ffn_dim_multiplier")
    if given not in (None, UNKNOWN) or hidden is None or not multiple:
        return given if isinstance(given, int) and not isinstance(given, bool) else None
    width = 4 * hidden
    if factor not in (None, UNKNOWN):
        if not isinstance(factor, (int, float)):
            return None
        width = int((factor + 0.01) * width)
    return -(-int(2 * width / 3) // multiple) * multiple


def jit_level(source: SourceFile) -> object:
    """How a config wants its graphs compiled; None where it does not say."""
    return source.get(("context", "jit_config", "jit_level"))
