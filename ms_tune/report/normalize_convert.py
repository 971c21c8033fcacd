"""The settings that a conversion between dialects gives, as YAML or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects import MEGATRON
from ms_tune.report.normalize_json import problems_json
from ms_tune.source.edit_values import spell_value
from ms_tune.source.yaml import nest_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.dialects.convert_layers import Converted
    from ms_tune.text import Language

_VERSION = 1
_QUOTE = "'"


def conversion_json(dialect: str, converted: Converted, language: Language) -> dict[str, object]:
    """The conversion's JSON form; arguments are settings, too. Its keys are documented in ``docs/normalize-recompute.md``."""
    return {
        "version": _VERSION,
        "dialect": dialect.partition("@")[0],
        "framework_version": converted.release,
        "settings": dict(converted.values),
        "problems": problems_json(converted.problems, language),
    }


def converted_text(dialect: str, converted: Converted) -> str:
    """The settings as their dialect spells them: arguments, ready to be put into a script, or YAML."""
    if dialect.partition("@")[0] == MEGATRON:
        words = (name if value is True else f"{name} {value}" for name, value in converted.values.items())
        return " \\\n".join(words)
    return conversion_yaml(converted.values)


def conversion_yaml(values: Mapping[str, object]) -> str:
    """The settings as YAML, ready to be put into a config."""
    nested = nest_values({tuple(key.split(".")): value for key, value in values.items()})
    return "\n".join(_lines(nested, ""))


def _lines(section: Mapping[str, object], indent: str) -> list[str]:
    lines = []
    for key, value in section.items():
        name = key if key.isidentifier() else spell_value(key, _QUOTE)
        if isinstance(value, dict) and value:
            lines += [f"{indent}{name}:", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {spell_value(value, _QUOTE)}")
    return lines
