"""What MindFormers >= 2.0's dynamic-graph trainer needs of HyperParallel to run on one device, and no more.

HyperParallel is on no package index. On one device MindFormers shards nothing and recomputes nothing
(``Trainer.__init__`` in mindformers/pynative/trainer/trainer.py leaves ``parallelize_model`` out), and two things are
really called: ``SkipDTensorDispatch``, which has nothing to skip where no tensor is distributed, and
``enable_mindspore_backward_compat``. Everything else can be imported, for MindFormers does that, and stops whoever uses it.
"""

import sys

from . import _refused
from .core.dtensor.dtensor import DTensor, SkipDTensorDispatch

__all__ = ["DTensor", "SkipDTensorDispatch", "get_platform"]

sys.meta_path.append(_refused.Finder(__name__))


def get_platform() -> object:
    """The layer above the frameworks, which modules ask for when they are imported."""
    return _refused.Module(f"{__name__}.get_platform()")


def __getattr__(name: str) -> type:
    return _refused.thing(__name__, name)
