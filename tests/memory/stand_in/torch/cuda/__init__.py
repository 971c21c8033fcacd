"""The device."""

from torch.cuda import memory
from torch.cuda.memory import *  # noqa: F403 - as PyTorch does

_calls: list = []
_begun: list = []
take, give = memory.take, memory.give


def is_initialized() -> bool:
    """Return whether the device was used."""
    return bool(_begun)


def init() -> None:
    """Begin to use the device."""
    _begun.append(True)
    for call in _calls:
        call()


def _lazy_call(call: object) -> None:
    _calls.append(call)


def current_device() -> int:
    """Return the number of the device."""
    return 0
