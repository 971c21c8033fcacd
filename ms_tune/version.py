"""Define the version of ms-tune, in its own module so that it can be imported without the rest of the package."""

from __future__ import annotations

__version__ = "0.2.0"
