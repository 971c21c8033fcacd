"""Provide the part of HyperParallel that the dynamic-graph trainer of MindFormers >= 2.0 needs to run.

HyperParallel is on no package index. On one device MindFormers shards nothing and recomputes nothing
(``Trainer.__init__`` in mindformers/pynative/trainer/trainer.py omits ``parallelize_model``), and only two names are really
called: ``SkipDTensorDispatch``, which does nothing without distributed tensors, and ``enable_mindspore_backward_compat``.

On several devices MindFormers 2.1 splits weights and activations over tensor- and expert-parallel ranks with its own
code, which uses local tensors. The parts of HyperParallel for that are here: groups of ranks (``DeviceMesh``), weights
that know their split (``DTensor``), and gradients in float32 (``fully_shard`` over one rank). Sharding over
data-parallel ranks, context parallelism and pipelines are HyperParallel's own code, and are refused. Everything else
can be imported, which MindFormers does, and raises an error when used.
"""

import sys

from . import _refused
from .core.dtensor.device_mesh import DeviceMesh, init_device_mesh
from .core.dtensor.dtensor import DTensor, SkipDTensorDispatch
from .core.shard.api import shard_module
from .platform import get_platform

__all__ = ["DTensor", "DeviceMesh", "SkipDTensorDispatch", "get_platform", "init_device_mesh", "shard_module"]

sys.meta_path.append(_refused.Finder(__name__))


def __getattr__(name: str) -> type:
    return _refused.thing(__name__, name)
