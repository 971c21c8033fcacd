"""Which of its two kinds of networks MindFormers' static graph builds: a legacy one or one of Mcore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_legacy(data: Mapping[Any, Any]) -> bool:
    """Whether a config's network is built of the legacy classes.

    All that builds the network asks ``is_legacy_model`` (``core/context/build_context.py`` since 1.7, in 1.6 ``get_context``
    of ``tools/utils.py``, which answers alike): the value counts as true or false, a null as left out, and that of the
    section ``context`` stands before the one at the top.
    """
    context = data.get("context")
    value = data.get("use_legacy")
    if isinstance(context, dict) and "use_legacy" in context:
        value = context["use_legacy"]
    return value is None or bool(value)


def fills_experts(data: Mapping[Any, Any]) -> bool:
    """Whether ``moe_config`` is filled and made an object, which no network of Mcore can read.

    The template (``tools/register/template.py``) and ``build_parallel_config`` look at the top alone and take a null for false.
    """
    return bool(data.get("use_legacy", True))
