"""Change frameworks so that they run in simulation, and record each change.

No framework file is edited on disk, nothing is changed outside simulation, and only the changes that a release needs are made.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

# The module after whose import a change is made, and the function of `frameworks` that makes it.
_BY_MODULE = {
    "mindspore.device_context.ascend": "count_devices",
    "msadapter": "make_generators",
    "msadapter.distributed.distributed_c10d": "give_role",
    "torch_npu.atb": "skip_in_place_operators",
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
LONGEST = 200  # characters of an argument that are recorded


class HookedProcess:
    """The record of this process for ms-tune."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # The log's size before this program's own lines: a process that became another one by ``os.execv`` keeps its process ID.
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
        """Write the record, except on a full disk and in a forked process, which shares this object and writes its own."""
        if self.facts["pid"] != os.getpid():
            return
        fresh = self.folder / f".{RECORD}.{os.getpid()}"
        with contextlib.suppress(OSError):
            fresh.write_text(json.dumps(self.facts), encoding="utf-8")
            fresh.replace(self.folder / RECORD)


class ImportWatch:
    """An import hook that wraps the loading of some modules; it finds no modules itself."""

    def __init__(self, loads: Mapping[str, Callable[[Callable[[ModuleType], None], ModuleType], None]]) -> None:
        # By module name, the replacement for executing the module; it gets the original function and the module.
        self.pending = dict(loads)

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None) -> Any:  # noqa: ANN401 - a ModuleSpec or None
        """Return the module's own specification with a wrapped loader, once per module."""
        load = self.pending.pop(name, None)
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
    """Return, for :class:`ImportWatch`, the modules of frameworks that are changed after their import."""

    def load(change: str, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        execute(module)
        try:
            getattr(importlib.import_module(f"{__package__}.frameworks"), change)(module, process())
        except Exception as error:  # noqa: BLE001 - a release without the changed code stays as it is, recorded
            report(process(), "not-applied", module=module.__name__, reason=f"{type(error).__name__}: {error}")

    return {name: functools.partial(load, change) for name, change in _BY_MODULE.items()}


def report(process: HookedProcess | None, text: str, **params: object) -> None:
    """Record, once, that something runs differently than on a device: a text by its id after ``support.``."""
    note(
        process, "support", {"text": f"support.{text}", "params": {name: str(value) for name, value in params.items()}}
    )


def note(process: HookedProcess | None, kind: str, entry: dict[str, object], most: int = 1000) -> None:
    """Add an entry to one of the lists of the record, once, and at most ``most`` entries."""
    if process is not None:
        entries = process.facts.setdefault(kind, [])
        if entry not in entries and len(entries) < most:
            entries.append(entry)
            process.write()


def put_around(owner: Any, name: str, around: Callable[..., Any]) -> None:  # noqa: ANN401 - a module or a class without types
    """Replace a function by ``around``, which gets the original function and then the caller's arguments."""
    before = getattr(owner, name)

    @functools.wraps(before)
    def put(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        return around(before, *arguments, **named)

    setattr(owner, name, put)
