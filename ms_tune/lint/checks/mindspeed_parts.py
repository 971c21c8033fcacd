"""Checks of what MindSpeed-Core-MS r0.1.0 looks up by name, of settings that only count beside others, and of its other form.

Parts of the model: ``mindspeed_ms/legacy/model/norm.py``, ``utils.py`` and ``language_model.py``; what is registered:
``legacy/model/activation.py``, ``core/optimizer/__init__.py``, ``core/optimizer/zero/adamw_zero.py``,
``core/tensor_parallel/cross_entropy.py``; loss scaling: ``training/training.py``; decay: ``training/optimizer_param_scheduler.py``.

``mindspeed_ms/training/yaml_arguments.py`` reads the form of the command line (``--yaml-cfg``), with Megatron's names;
``init_configs_from_yaml`` in ``mindspeed_ms/core/config.py``, which reads the YAML of r0.1.0, keeps its sections and looks at
none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.facts.keys import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext

_TRIO = ("loss_scale_value", "loss_scale_factor", "loss_scale_window")
_OPTIMIZERS = ("Adam", "SGD", "mint.AdamW", "SpeedAdamW")
_SHARDED = ("AdamW",)  # the library looks for the name with ZeRO behind it, and AdamWZeRO is the only one
_POSITIONS = ("learned_absolute", "rope")
_FORM = ("model_parallel", "language_model")
_SHOWN = 24  # keys that are told one by one
_SIZES = ("vocab_size", "num_layers", "num_attention_heads", "hidden_size", "ffn_hidden_size")


def named(context: CheckContext) -> Iterator[Violation]:
    """A text at one of the ``names`` that is none of those listed there, nor registered as of the kind in ``registers``."""
    listed, registers = context.options["names"], context.options.get("registers")
    for dotted, known in listed.items() if isinstance(listed, dict) else ():
        value = context.get(str(dotted))
        kind = registers.get(dotted) if isinstance(registers, dict) else None
        if isinstance(value, str) and value not in known and not _is_registered(context, kind, value):
            path = tuple(str(dotted).split("."))
            yield Violation(path, params={"known": ", ".join(map(str, known))})


def _is_registered(context: CheckContext, kind: str | None, name: str) -> bool:
    """Whether the repository around the config registers a class of a kind by a name."""
    return kind is not None and context.job.checkout is not None and name in context.job.checkout.classes.get(kind, {})


def optimizer(context: CheckContext) -> Iterator[Violation]:
    """An optimizer that is not registered: other names count where ZeRO goes without gradient buffers."""
    zero = context.get("parallel_config.zero_level") and not context.get("training_config.wrap_with_ddp")
    known = _SHARDED if zero else _OPTIMIZERS
    value = context.get("optimizer_config.optimizer_type")
    params = {"known": ", ".join(known)}
    looked_up = f"{value or 'AdamWeightDecay'}ZeRO" if zero else value or "AdamWeightDecay"
    if value not in known and _is_registered(context, "library_optimizer", str(looked_up)):
        return
    if isinstance(value, str) and value not in known:
        related = ((("parallel_config", "zero_level"), "sharded"),) if zero else ()
        yield Violation(("optimizer_config", "optimizer_type"), params=params, related=related)
    elif value is None and context.mapping("optimizer_config") and _is_whole(context):
        yield Violation(("optimizer_config", "optimizer_type"), "missing", params, at_key=True)


def positions(context: CheckContext) -> Iterator[Violation]:
    """No position embedding, because of a name that is compared with two others, or for want of one."""
    value = context.get("model_config.position_embedding_type")
    path = ("model_config", "position_embedding_type")
    if isinstance(value, str) and value not in _POSITIONS:
        yield Violation(path)
    elif value is None and _is_whole(context):
        yield Violation(path, "missing", at_key=True)


def absent_training(context: CheckContext) -> Iterator[Violation]:
    """A model without the section that its class is handed; only told where the whole model is described."""
    whole = all(name in context.mapping("model_config") for name in _SIZES)
    if whole and "parallel_config" in context.source.data and "training_config" not in context.source.data:
        yield Violation(("training_config",))


def unnamed_loss(context: CheckContext) -> Iterator[Violation]:
    """No loss function, which the training reads without a default."""
    if _is_whole(context) and context.get("training_config.loss_func_kwargs.loss_func_type") is None:
        yield Violation(("training_config", "loss_func_kwargs"), at_key=True)


def decay_steps(context: CheckContext) -> Iterator[Violation]:
    """WSD without the length of its last part: in iterations where the run is told in iterations, else in samples."""
    iterations = context.integer("training_config.training_iters", 0) or 0
    key = "lr_wsd_decay_iters" if iterations > 0 else "lr_wsd_decay_samples"
    told = iterations > 0 or (context.integer("dataset_config.train_samples", 0) or 0) > 0
    if told and context.get(f"optimizer_config.{key}") is None:
        yield Violation(("optimizer_config", "lr_decay_style"), params={"absent": key})


def loss_scaling(context: CheckContext) -> Iterator[Violation]:
    """Training in float16 without a scale: the dynamic one is made, of nothing."""
    absent = [name for name in _TRIO if context.get(f"training_config.{name}") is None]
    if context.get("training_config.loss_scale") is None and absent and _is_half(context):
        yield Violation(("training_config", "fp16"), params={"absent": ", ".join(absent)})


def unscaled(context: CheckContext) -> Iterator[Violation]:
    """Dynamic loss scaling that is not used: a fixed scale wins, and in other types there is none."""
    if context.get("training_config.loss_scale_value") is None:
        return
    path = ("training_config", "loss_scale_value")
    if context.get("training_config.loss_scale") is not None:
        yield Violation(path, "fixed", at_key=True, related=((("training_config", "loss_scale"), "wins"),))
    elif not _is_half(context):
        yield Violation(path, at_key=True)


def _is_half(context: CheckContext) -> bool:
    if context.get("training_config.bf16") is True:
        return False
    return context.get("training_config.fp16") is True or context.get("model_config.compute_dtype") == "float16"


def _is_whole(context: CheckContext) -> bool:
    """Whether a config is more than an excerpt: the sections that every training needs."""
    sections = ("training_config", "dataset_config", "optimizer_config")
    return all(context.mapping(name) for name in sections) and context.integer("model_config.num_layers") is not None


def arguments(context: CheckContext) -> Iterator[Violation]:
    """Sections of the other form, with the place of each key in the sections of r0.1.0."""
    data = context.source.data
    found = [name for name in _FORM if isinstance(data.get(name), dict)]
    if len(found) < len(_FORM) or any(name in data for name in _table(context, "homes")):
        return
    keys = [(*section, key) for section in ((), *((name,) for name in found)) for key in _keys(context, section)]
    moved = [(path, text) for path in keys if (text := _text(context, path))]
    yield Violation((found[0],), at_key=True, related=tuple(moved[:_SHOWN]))


def _keys(context: CheckContext, section: KeyPath) -> list[str]:
    values = context.source.get(section) if section else context.source.data
    return [key for key in values if isinstance(key, str)] if isinstance(values, dict) else []


def _text(context: CheckContext, path: KeyPath) -> str | None:
    """The message that says what became of a key."""
    name = str(path[-1])
    homes = (text for home, text in _table(context, "homes").items() if name in names(context.dialect, (home,)))
    return _table(context, "renamed").get(name) or next(homes, None)


def _table(context: CheckContext, option: str) -> dict[str, str]:
    found = context.options[option]
    return found if isinstance(found, dict) else {}
