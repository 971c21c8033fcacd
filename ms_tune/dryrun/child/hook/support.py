"""How frameworks are changed so that they run in simulation, and what is told of it.

Nothing of a framework is edited on disk, nothing is done outside simulation, and only what a release needs; all of it is told.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

# The module after whose import something is to be done, and by which function of `frameworks`.
_BY_MODULE = {
    "mindspore.device_context.ascend": "count_devices",
    "msadapter": "make_generators",
    "msadapter.distributed.distributed_c10d": "give_role",
    "torch_npu.atb": "leave_out_in_place",
    "megatron.core.datasets.blended_megatron_dataset_builder": "build_index",
    "megatron.core.tensor_parallel.mappings": "know_gathered",
    "megatron.core.transformer.moe.moe_utils": "permute_evenly",
    "megatron.core.transformer.moe.token_dispatcher": "spread_tokens",
    "mindspeed.mindspore.core.transformer.moe.grouped_gemm_util": "sum_on_host",
    "mindspeed_llm.tasks.preprocess.decoder_packed_mtf_dataset": "build_packed_index",
    "megatron.core.tensor_parallel.data": "know_sizes",
    "mindspeed_llm.mindspore.core.tensor_parallel.data": "know_sizes",
    "megatron.core.pipeline_parallel.p2p_communication": "know_shapes",
    "megatron.training.training": "train_always",
}
RECORD = "process.json"
LONGEST = 200  # characters of an argument that are kept


class HookedProcess:
    """The record of this process for ms-tune."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # The log's size before this program's own lines: a process that became another one by ``os.execv`` keeps its number.
        log, begin = None, 0
        with contextlib.suppress(OSError, AttributeError, ValueError):
            descriptor = sys.__stderr__.fileno()  # type: ignore[union-attr]
            begin = os.fstat(descriptor).st_size
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            log = str(path) if path.is_file() else None
        self.facts: dict[str, Any] = {
            "pid": os.getpid(),
            "parent": os.getppid(),
            "arguments": [argument[:LONGEST] for argument in sys.orig_argv[:20]],
            "log": log,
            "log_from": begin,
            "ended": False,
        }

    def write(self) -> None:
        """Write the record; on a full disk nothing is written. A forked process has this object, too, and writes at its end."""
        if self.facts["pid"] != os.getpid():
            return
        fresh = self.folder / f".{RECORD}.{os.getpid()}"
        with contextlib.suppress(OSError):
            fresh.write_text(json.dumps(self.facts), encoding="utf-8")
            fresh.replace(self.folder / RECORD)


class ImportWatch:
    """Sees imports coming; finds nothing itself."""

    def __init__(self, loads: Mapping[str, Callable[[Callable[[ModuleType], None], ModuleType], None]]) -> None:
        # What takes the place of executing a module, by its name; it is given the function that does, and the module.
        self.left = dict(loads)

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None) -> Any:  # noqa: ANN401 - a ModuleSpec or None
        """The module's own specification, with a loader that does what is to be done; once for each module."""
        load = self.left.pop(name, None)
        if load is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = functools.partial(load, loader.exec_module)
        return spec


def framework_loads(
    process: Callable[[], HookedProcess | None],
) -> dict[str, Callable[[Callable[[ModuleType], None], ModuleType], None]]:
    """For :class:`ImportWatch` the modules of frameworks that are changed once they have been imported."""

    def load(change: str, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        execute(module)
        try:
            getattr(importlib.import_module(f"{__package__}.frameworks"), change)(module, process())
        except Exception as error:  # noqa: BLE001 - a release that lacks what is changed is left as it is, and told
            tell(process(), "not-applied", module=module.__name__, reason=f"{type(error).__name__}: {error}")

    return {name: functools.partial(load, change) for name, change in _BY_MODULE.items()}


def tell(process: HookedProcess | None, text: str, **params: object) -> None:
    """Note, once, that something is run otherwise than on a device: a text by its id behind ``support.``."""
    note(
        process, "support", {"text": f"support.{text}", "params": {name: str(value) for name, value in params.items()}}
    )


def note(process: HookedProcess | None, kind: str, entry: dict[str, object], most: int = 1000) -> None:
    """Write an entry into one of the lists of the record, once, and so many of them at most."""
    if process is not None:
        told = process.facts.setdefault(kind, [])
        if entry not in told and len(told) < most:
            told.append(entry)
            process.write()


def put_around(owner: Any, name: str, around: Callable[..., Any]) -> None:  # noqa: ANN401 - a module or a class without types
    """Put a function in the place of one: it is given the one that was there, and then what its caller gives."""
    before = getattr(owner, name)

    @functools.wraps(before)
    def put(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        return around(before, *arguments, **named)

    setattr(owner, name, put)
