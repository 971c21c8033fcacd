"""Checks of what a training script as a whole has to have, and of a training's course, as ``validate_args`` and the optimizer ask it.

Megatron-LM core_r0.8.0 and core_v0.12.1: ``megatron/training/arguments.py``, ``megatron/core/optimizer_param_scheduler.py``,
``megatron/core/tensor_parallel/utils.py`` (``divide``), ``megatron/core/datasets/blended_megatron_dataset_config.py``.
"""

from __future__ import annotations

import re
from math import fsum
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.megatron.arguments import refused
from ms_tune.lint.checks.megatron import command_in
from ms_tune.lint.checks.megatron_sizes import argument, at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.dialects.megatron.arguments import ProgramArguments

_WHOLE = 20  # arguments: a training script has a hundred; of an excerpt of one nothing is missed
_TENSOR = "tensor_model_parallel_size"
_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
_SHARES = 3  # of training, validation and test


def required(context: CheckContext) -> Iterator[Violation]:
    """Arguments without which no program starts (option ``required``: each with what may stand instead), and a tokenizer's name."""
    source, command = command_in(context)
    rows = context.options["required"]
    if len(command.given) < _WHOLE or not all(map(command.surely_not, ("use_checkpoint_args", "yaml_cfg"))):
        return
    if any(True for _ in refused(command)):
        return  # an argument that is misspelt may be the one
    wanted = [list(map(str, row)) for row in rows] if isinstance(rows, list) else []
    if command.value("tokenizer_type") == "PretrainedFromHF":
        wanted.append(["tokenizer_name_or_path"])
    place = command.launch.program or command.given[0].word
    for row in wanted:
        if all(map(command.surely_not, row)) and not any(map(command.last, row)):
            yield Violation((), "default", {"name": argument(row[0])}, span=source.span_of(place))


def no_longer(context: CheckContext) -> Iterator[Violation]:
    """Arguments that the parser takes and ``validate_args`` stops over (option ``gone``: each with what is there instead)."""
    _, command = command_in(context)
    gone = context.options["gone"]
    for dest, instead in gone.items() if isinstance(gone, dict) else ():
        if command.last(dest):
            yield at(command, (dest,), {"instead": instead})


def warm_up(context: CheckContext) -> Iterator[Violation]:
    """The learning rate warms up for fewer iterations, or samples, than it has to come down."""
    _, command = command_in(context)
    for unit in ("iters", "samples"):
        warm, decay = (command.integer(f"lr_{one}_{unit}") for one in ("warmup", "decay"))
        every = command.integer(f"train_{unit}") if command.surely_not(f"lr_decay_{unit}") else decay
        if warm and every and every > 0 and warm >= every and command.surely_not("lr_warmup_fraction"):
            yield at(command, (f"lr_warmup_{unit}",), {"warm": warm, "every": every})


def widths(context: CheckContext) -> Iterator[Violation]:
    """The widths of dense layers and of experts, and the vocabulary that is asked for, are shared out over TP."""
    _, command = command_in(context)
    tensor = command.integer(_TENSOR)
    if not tensor or tensor < 2 or not all(map(command.surely_not, ("tp_2d", "unaligned_linear"))):  # noqa: PLR2004 - 1 is none
        return
    for dest in sorted({*_shared_widths(command), "padded_vocab_size"}):
        number = command.integer(dest)
        if number and number > 0 and number % tensor and command.last(dest):
            yield at(command, (dest,), {"number": number, "tensor": tensor})


def _shared_widths(command: ProgramArguments) -> Iterator[str]:
    if command.surely_not("num_experts") or (command.integer("first_k_dense_replace") or 0) > 0:
        yield "ffn_hidden_size"
    apart = ("moe_tp_extend_ep", "expert_tensor_parallel_size")  # with which TP does not share experts
    earlier = ("deprecated_moe_intermediate_size", "moe_intermediate_size")  # their width's name in releases before
    if command.integer("num_experts") and all(map(command.surely_not, (*apart, *earlier))):
        yield "ffn_hidden_size" if command.surely_not("moe_ffn_hidden_size") else "moe_ffn_hidden_size"


def split(context: CheckContext) -> Iterator[Violation]:
    """Up to three shares, of which one is more than nothing; letters and other signs are passed over."""
    _, command = command_in(context)
    text = command.value("split")
    if not isinstance(text, str) or not command.last("split"):
        return
    found = re.findall(r"[.0-9]+", text)
    try:
        shares = [float(one) for one in found]
    except ValueError:
        yield at(command, ("split",), {"text": text})
        return
    if len(shares) > _SHARES or not fsum(shares):
        yield at(command, ("split",), {"text": text})


def connections(context: CheckContext) -> Iterator[Violation]:
    """Where TP shares the sequence the program asks for ``CUDA_DEVICE_MAX_CONNECTIONS``: a script that does not export it."""
    source, command = command_in(context)
    tensor = command.integer(_TENSOR)
    others = ("use_torch_fsdp2", "use_custom_fsdp")
    if len(command.given) < _WHOLE or _CONNECTIONS in command.launch.environment or source.launches.unknown:
        return
    if tensor and tensor > 1 and command.surely("sequence_parallel") and all(map(command.surely_not, others)):
        own = re.search(rf"^[ \t]*{_CONNECTIONS}=", source.script.text, re.MULTILINE)
        message = "own" if own and not _is_exported(source.script.text) else "default"
        yield Violation(("--sequence-parallel",), message, at_key=True)


def _is_exported(text: str) -> bool:
    return re.search(rf"\bexport\b[^\n]*\b{_CONNECTIONS}\b|\bset[ \t]+-\w*a", text) is not None


def counts(context: CheckContext) -> Iterator[Violation]:
    """What a launcher is told in numbers is none (options ``numbers``; ``words`` are what some of them may be beside), or less than ``least``."""
    source, command = command_in(context)
    least = context.options["least"]
    words = context.names("words")
    launch = command.launch
    for name, low in least.items() if isinstance(least, dict) else ():
        word = launch.options.get(name)
        text = word.text if word is not None else None
        if word is None or text is None or text.startswith("--") or text in words or not launch.launcher.known:
            continue
        number = _whole(text, ranges=name == "nnodes")
        if launch.launcher.name == "msrun" and name == "node_rank":
            low = -1  # noqa: PLW2901 - as it is where nobody says another
        if number is None or number < low:
            params = {"name": f"--{name}", "text": text, "least": low}
            yield Violation((), "default" if number is None else "least", params, span=source.span_of(word))


def _whole(text: str, *, ranges: bool) -> int | None:
    """A whole number, or the first of ``1:4``."""
    match = re.fullmatch(r"\s*(-?\d{1,9})(:\d{1,9})?\s*", text, re.ASCII)
    return int(match[1]) if match and (ranges or not match[2]) else None
