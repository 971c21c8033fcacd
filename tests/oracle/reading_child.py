"""Tells what MindFormers makes of whole configs: the filled template, the model's class and what happens to each layer.

Run as :mod:`tests.oracle.static_child`, which does the work; each answer has the values of the loaded config beside it, and
the fields of the model's configuration from which the network is built.
"""

# ruff: noqa: ANN401 - MindFormers has no types

from __future__ import annotations

import importlib
from typing import Any

from tests.oracle import static_child


class Reading(static_child.Static):
    """MindFormers, which also remembers the config as it was loaded and as the steps of the start have left it."""

    config_read: Any = None
    built: Any = None
    legacy: Any = None

    def size(self, config: Any) -> None:
        """The first that is asked once a config is loaded."""
        self.config_read = config
        super().size(config)

    def build(self, config: Any) -> None:
        """Which kind of network each place that asks takes it for."""
        template: Any = importlib.import_module("mindformers.tools.register.template")
        filled = bool(template.ConfigTemplate.use_legacy)
        made = type(config.moe_config).__name__ == "MoEConfig"
        self.legacy = {"network": self.is_legacy(), "template": filled, "sections": made}
        super().build(config)

    def set_layers(self, kind: Any, model: Any, parallel: Any, chunks: Any) -> None:
        """The first that is asked once the model's configuration is there."""
        self.built = _plain(vars(model))
        super().set_layers(kind, model, parallel, chunks)

    def read(self) -> Any:
        """The config as it is now, in plain values."""
        return None if self.config_read is None else _plain(self.config_read)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else type(value).__name__


def answer(framework: Reading, path: str) -> dict[str, Any]:
    """What the static graph's child answers, and the config."""
    framework.config_read = framework.built = framework.legacy = None
    found = _of_layers(framework, path)
    return {**found, "config": framework.read(), "built": framework.built, "legacy": framework.legacy}


_of_layers = static_child.answer

if __name__ == "__main__":
    static_child.Static, static_child.answer = Reading, answer  # type: ignore[misc,assignment]
    static_child.main()
