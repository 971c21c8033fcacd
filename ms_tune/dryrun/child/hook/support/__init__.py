"""What frameworks need to run in simulation: one module for each framework, applied when its module has been imported.

Nothing of a framework is edited on disk, nothing is done outside simulation, and only what a release needs; all of it is told.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from ms_tune.dryrun.child.hook.process import HookedProcess

# The module after whose import something is to be done, and by what.
_BY_MODULE = {
    "mindspore.device_context.ascend": ("mindspore", "device_count"),
    "msadapter": ("msadapter", "generator"),
    "msadapter.distributed.distributed_c10d": ("msadapter", "role"),
    "torch_npu.atb": ("msadapter", "atb"),
    "megatron.core.datasets.blended_megatron_dataset_builder": ("megatron", "datasets"),
    "megatron.core.tensor_parallel.mappings": ("experts", "gathers"),
    "megatron.core.transformer.moe.moe_utils": ("experts", "permutation"),
    "megatron.core.transformer.moe.token_dispatcher": ("experts", "dispatcher"),
    "mindspeed.mindspore.core.transformer.moe.grouped_gemm_util": ("experts", "grouped_product"),
    "mindspeed_llm.tasks.preprocess.decoder_packed_mtf_dataset": ("megatron", "packed_datasets"),
    "megatron.core.tensor_parallel.data": ("megatron", "sizes"),
    "mindspeed_llm.mindspore.core.tensor_parallel.data": ("megatron", "sizes"),
    "megatron.core.pipeline_parallel.p2p_communication": ("megatron", "shapes"),
    "megatron.training.training": ("megatron", "training"),
}
_SUPPORT = "support"  # in the process's record


def begin(process: Callable[[], HookedProcess | None]) -> None:
    """Wait for the frameworks to be imported.

    Args:
        process: Gives this process; None before MindSpore is imported.
    """
    if os.environ.get("MS_SIMULATION_LEVEL"):
        sys.meta_path.insert(0, _SupportFinder(process))


def tell(process: HookedProcess | None, text: str, **params: object) -> None:
    """Note, once, that something is run otherwise than on a device.

    Args:
        process: This process; None where it tells nothing.
        text: The id of a text, behind ``support.``.
        params: Its parameters.
    """
    if process is None:
        return
    told = process.facts.setdefault(_SUPPORT, [])
    one = {"text": f"support.{text}", "params": {name: str(value) for name, value in params.items()}}
    if one not in told:
        told.append(one)
        process.write()


class _SupportFinder:
    """Sees the import of a framework coming; finds nothing itself."""

    def __init__(self, process: Callable[[], HookedProcess | None]) -> None:
        self.left = dict(_BY_MODULE)
        self.process = process

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None) -> Any:  # noqa: ANN401 - a ModuleSpec or None
        """The module's own specification, with a loader that changes the module once it is there."""
        found = self.left.pop(name, None)
        if found is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            part, function = found
            try:
                change = getattr(importlib.import_module(f"{__package__}.{part}"), function)
                change(module, self.process())
            except Exception as error:  # noqa: BLE001 - a release that lacks what is changed is left as it is, and told
                tell(self.process(), "not-applied", module=name, reason=f"{type(error).__name__}: {error}")

        loader.exec_module = execute_and_change
        return spec
