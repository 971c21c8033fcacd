"""A setting as the exact lines that users put into a script, a config or the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.pools.mindspore_pool import DEFAULT_SIZE, SIMULATED_DEVICE, Vmm
from ms_tune.units import GIB

if TYPE_CHECKING:
    from ms_tune.pools.mindspore_pool import MindSporeSettings


@dataclass(frozen=True, slots=True)
class Lines:
    """Where and what to write; None where there is nothing to write."""

    script: str | None  # for the training script
    config: str | None  # for a MindFormers config, which cannot set `init_size`
    environment: str | None  # for the shell


def lines_for(settings: MindSporeSettings) -> Lines:
    """The lines for a setting.

    Names and forms are those of ``mindspore/runtime/memory.py`` (2.10), of MindFormers 1.9's
    ``core/context/build_context.py``, which hands ``mempool_block_size`` on as ``increase_size``, and of ``MS_ALLOC_CONF``.
    """
    return Lines(_script(settings), _config(settings), _environment(settings))


def _script(settings: MindSporeSettings) -> str | None:
    if settings.init is None and settings.increase is None:
        return None
    sizes = {
        "init_size": settings.init or DEFAULT_SIZE,
        "increase_size": settings.increase or DEFAULT_SIZE,
        "max_size": _limit(settings),
    }
    written = ", ".join(f'{name}="{_gb(size)}"' for name, size in sizes.items() if size)
    return f"ms.runtime.set_memory({written})"


def _config(settings: MindSporeSettings) -> str | None:
    if settings.increase is None or settings.init != DEFAULT_SIZE:
        return None
    limit = _limit(settings)
    # Without max_device_memory MindFormers 1.9 passes 1024GB on, which is the default of max_size.
    keys = {"max_device_memory": limit, "mempool_block_size": settings.increase}
    written = ", ".join(f'{key}: "{_gb(size)}"' for key, size in keys.items() if size)
    return f"context: {{{written}}}"


def _environment(settings: MindSporeSettings) -> str | None:
    options = [
        *(["enable_vmm:True"] if settings.vmm is Vmm.ON else []),
        *(["enable_small_pool:True"] if settings.small_pool else []),
    ]
    return f"export MS_ALLOC_CONF={','.join(options)}" if options else None


def _limit(settings: MindSporeSettings) -> int | None:
    """The limit if it is one that somebody set: MindSpore's own are no whole GiB."""
    return settings.total if settings.total != SIMULATED_DEVICE and settings.total % GIB == 0 else None


def _gb(size: int) -> str:
    return f"{size / GIB:g}GB"
