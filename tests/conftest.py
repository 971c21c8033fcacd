"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# Machines are shared: how long one example takes says nothing about the code.
settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")
