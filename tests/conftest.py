"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# Machines are shared: how long one example takes says nothing about the code. The same examples at every run, so that a
# change is judged by what it changes; `--hypothesis-profile random` looks for new ones.
settings.register_profile("shared-machine", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("shared-machine")
