"""What MindFormers >= 2.0's dynamic-graph trainer needs of HyperParallel to run, and no more.

HyperParallel is on no package index. On one device MindFormers shards nothing and recomputes nothing
(``Trainer.__init__`` in mindformers/pynative/trainer/trainer.py leaves ``parallelize_model`` out), and two things are
really called: ``SkipDTensorDispatch``, which has nothing to skip where no tensor is distributed, and
``enable_mindspore_backward_compat``.

On several devices MindFormers 2.1 splits weights and activations over tensor- and expert-parallel ranks with code of its
own, which works on local tensors. What it takes from HyperParallel for that is here: which ranks work together
(``DeviceMesh``), weights that know how they are split (``DTensor``), and gradients in float32 (``fully_shard`` over one
rank). Weights that are shared out over data-parallel ranks, context parallelism and pipelines are HyperParallel's own doing,
and are refused. Everything else can be imported, for MindFormers does that, and stops whoever uses it.
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
