"""Distributed tensors, of which there are none on one device."""

from __future__ import annotations

from typing import Any, NoReturn

from hyper_parallel import _refused


class DTensor:
    """What no tensor is an instance of."""

    def __init__(self, *_: object, **__: object) -> NoReturn:
        message = "this stand-in for HyperParallel serves one device, on which nothing is distributed"
        raise NotImplementedError(message)


class SkipDTensorDispatch:
    """A block in which operators take tensors as they are, as they do everywhere without distributed tensors."""

    def __init__(self, no_skip: object = None) -> None:
        """Take the operators that are not to be skipped."""

    def __enter__(self) -> None:
        """Nothing is to be switched off."""

    def __exit__(self, *_: object) -> None:
        """Nothing is to be switched on."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class that was made just now
    return _refused.thing(__name__, name)
