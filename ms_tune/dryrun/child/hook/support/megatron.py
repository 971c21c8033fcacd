"""Megatron-LM core 0.8 to 0.12: decisions that it takes by values read back from the device, which are zero in simulation."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from . import tell

if TYPE_CHECKING:
    from ms_tune.dryrun.child.hook.process import Process

_LOADERS = "build_train_valid_test_data_loaders"


def training(module: Any, process: Process | None) -> None:  # noqa: ANN401 - a module without types
    """Whether there is anything to train is sent from the first tensor rank to the others as a tensor of flags.

    Only the training is told that there is: evaluation is left out (``megatron/training/training.py``).
    """
    build = getattr(module, _LOADERS)

    @functools.wraps(build)
    def build_and_train(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        told = module.get_args()
        if not getattr(told, "do_train", False):
            told.do_train = True
            tell(process, "do-train")
        return build(*arguments, **named)

    setattr(module, _LOADERS, build_and_train)


def datasets(module: Any, process: Process | None) -> None:  # noqa: ANN401 - a module without types
    """Let the rank that runs build the index of its data set, which the job's first rank builds for all others.

    While it does, whoever asks ``torch.distributed`` for the rank in the world hears 0
    (``megatron/core/datasets/gpt_dataset.py``, and MindSpeed-LLM's in its place).
    """
    builder = module.BlendedMegatronDatasetBuilder
    build = builder.build

    @functools.wraps(build)
    def build_here(self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the method takes them
        distributed = module.torch.distributed
        ask = distributed.get_rank
        if not distributed.is_initialized() or not ask():
            return build(self, *arguments, **named)

        @functools.wraps(ask)
        def get_rank(group: Any = None) -> int:  # noqa: ANN401 - a group, or None for the world
            return 0 if group is None else int(ask(group))

        distributed.get_rank = get_rank
        tell(process, "builds-index")
        try:
            return build(self, *arguments, **named)
        finally:
            distributed.get_rank = ask

    builder.build = build_here
