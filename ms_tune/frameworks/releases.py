"""The releases that ms-tune has facts about; no other one is served."""

from __future__ import annotations

VERSIONS = ("1.6", "1.7", "1.8", "1.9", "2.0", "2.1")
DEFAULT_VERSION = "1.9"


def served_version(text: str) -> str | None:
    """The release in :data:`VERSIONS` that a version such as ``1.9.0`` belongs to, if any."""
    release = ".".join(text.split(".")[:2])
    return release if release in VERSIONS else None
