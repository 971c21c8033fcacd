"""ms-tune: is a MindSpore large-model training config right, and does it fit, before any NPU is used."""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__"]
