"""A check of configs in the form that MindSpeed-Core-MS's command line reads (``--yaml-cfg``), with Megatron's names.

``mindspeed_ms/training/yaml_arguments.py`` reads that form; ``init_configs_from_yaml`` in ``mindspeed_ms/core/config.py``,
which reads the YAML of r0.1.0, keeps its sections and looks at none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.frameworks.keys import names
from ms_tune.lint.context import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.config.source import KeyPath
    from ms_tune.lint.context import Context

_FORM = ("model_parallel", "language_model")
_SHOWN = 24  # keys that are told one by one


def arguments(context: Context) -> Iterator[Violation]:
    """Sections of the other form, with the place of each key in the sections of r0.1.0."""
    data = context.source.data
    found = [name for name in _FORM if isinstance(data.get(name), dict)]
    if len(found) < len(_FORM) or any(name in data for name in _table(context, "homes")):
        return
    keys = [(*section, key) for section in ((), *((name,) for name in found)) for key in _keys(context, section)]
    moved = [(path, text) for path in keys if (text := _text(context, path))]
    yield Violation((found[0],), at_key=True, related=tuple(moved[:_SHOWN]))


def _keys(context: Context, section: KeyPath) -> list[str]:
    values = context.source.get(section) if section else context.source.data
    return [key for key in values if isinstance(key, str)] if isinstance(values, dict) else []


def _text(context: Context, path: KeyPath) -> str | None:
    """The message that says what became of a key."""
    name = str(path[-1])
    homes = (text for home, text in _table(context, "homes").items() if name in names(context.dialect, (home,)))
    return _table(context, "renamed").get(name) or next(homes, None)


def _table(context: Context, option: str) -> dict[str, str]:
    found = context.options[option]
    return found if isinstance(found, dict) else {}
