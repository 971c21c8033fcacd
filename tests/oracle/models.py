"""Return the networks that a release's own classes build from a model's section, in a separate process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.oracle.framework import Child


@dataclass(frozen=True, slots=True)
class Network:
    """A network: its layers, its prediction layers, and which layers have experts; or the exception."""

    layers: int = 0
    mtp: int = 0
    experts: tuple[bool, ...] = ()
    error: str | None = None
    text: str = ""

    @property
    def two_counts(self) -> bool:
        """Return whether two names for a number of layers were refused."""
        return names_two_counts(self.text)


def names_two_counts(text: str) -> bool:
    """Return whether an error of a release reports two names for a number of layers."""
    return any(
        f"target key'{name}' is mapped by multiple source keys" in text for name in ("num_layers", "mtp_num_layers")
    )


class Models(Child):
    """A release that builds networks of sections.

    Args:
        version: The release, as in :data:`tests.oracle.wheels.RELEASES`.
        mode: 0 for the static graph, 1 for the dynamic one.
    """

    def __init__(self, version: str, mode: int) -> None:
        super().__init__(version, "model_child", str(mode))

    def make(self, section: dict[str, Any]) -> Network:
        """Return the network of a section."""
        found = self.ask(section)
        return Network(**found | {"experts": tuple(found.get("experts", ()))})
