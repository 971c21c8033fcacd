"""Sentences about frameworks and their releases."""

from __future__ import annotations

from ms_tune.texts import Text

TEXTS = {
    "frameworks.version": Text(
        "version {version} is not served; served: {served}",
        "不支持版本 {version}；支持的版本：{served}",
    ),
}
