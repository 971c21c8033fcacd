"""Which CANN a run needs, real or stand-in, and which one it can have."""

from __future__ import annotations

from ms_tune.dryrun.cann_sim.environment import Backend, Cann, find_real_cann
from ms_tune.errors import UnsupportedError
from ms_tune.texts import msg

_WITHOUT_DEVICE = 1  # the highest simulation level


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
