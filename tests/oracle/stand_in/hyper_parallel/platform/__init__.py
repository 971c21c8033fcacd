"""The layer above the frameworks."""

from hyper_parallel import get_platform

__all__ = ["get_platform"]
