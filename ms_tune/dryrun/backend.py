"""Which CANN a run needs, real or stand-in, and which one it can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dryrun.cann_sim.environment import Backend, Cann, find_real_cann
from ms_tune.errors import UnsupportedError
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Mapping

_WITHOUT_DEVICE = 1  # the highest simulation level
_BY_CANN = "O2"  # `jit_level` at which CANN's graph engine compiles (MindSpore, set_context(jit_config=...))


def real_cann() -> Cann:
    """This machine's own CANN.

    Raises:
        UnsupportedError: It has none.
    """
    found = find_real_cann()
    if found is None:
        raise UnsupportedError(msg("stages.real.no-cann"), msg("stages.real.no-cann.hint"))
    return found


def check_level(level: int, cann: Cann) -> None:
    """Raise :class:`UnsupportedError` unless a simulation level can be had: from 2 on it asks a device."""
    if level > _WITHOUT_DEVICE and cann.backend is Backend.STAND_IN:
        raise UnsupportedError(msg("stages.level.executes", level=level), msg("stages.level.executes.hint"))


def check_graph_engine(config: Mapping[str, object]) -> None:
    """Raise :class:`UnsupportedError` if a static-graph config asks for CANN's graph engine and there is no CANN."""
    context = config.get("context")
    settings = context.get("jit_config") if isinstance(context, dict) else None
    level = settings.get("jit_level") if isinstance(settings, dict) else None
    if level == _BY_CANN and find_real_cann() is None:
        raise UnsupportedError(msg("dryrun.graph-engine", level=level), msg("dryrun.graph-engine.hint"))
