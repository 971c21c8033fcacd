"""Writes the pages of all checks before the site is built: they are made from the checklists, not kept."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.utils import get_relative_url

from ms_tune import api
from ms_tune.render.rule.markdown import reference

# What lets the theme's search work from a folder; the theme would load it from elsewhere.
_SHIM, _OWN_SHIM = "https://unpkg.com/iframe-worker/shim", "assets/iframe-worker/shim-1.0.4.js"
_OTHER_LANGUAGE = re.compile(r"^\[(?:中文|English)\]\(\S+\)\n", re.MULTILINE)
# Sections of every check's page that nobody looks for.
_SAME_EVERYWHERE = re.compile(r"^(## (?:How to ignore it|Evidence)\b.*)$", re.MULTILINE)

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Called by MkDocs before it looks for pages.

    Args:
        config: The site's settings.
    """
    folder = Path(config.docs_dir) / "rules"
    folder.mkdir(exist_ok=True)
    for name, page in reference(api.course(api.rules())).items():
        file = folder / name
        if not file.is_file() or file.read_text(encoding="utf-8") != page:
            file.write_text(page, encoding="utf-8")
    return config


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """A page's text with links for the site, where a page has one name in both languages and a switch between them.

    Args:
        markdown: The page as it stands in the repository.
        page: What it is; the search names the hundreds of checks behind the pages that explain.
    """
    if page.file.src_uri.startswith("rules/"):
        page.meta["search"] = {"boost": 0.5}
        markdown = _SAME_EVERYWHERE.sub(r"\1 { data-search-exclude }", markdown)
    return _OTHER_LANGUAGE.sub("", markdown).replace(".zh.md", ".md")


def on_post_page(output: str, page: Page, **_: object) -> str:
    """A page as it is written: without anything that comes from a network.

    Args:
        output: The page.
        page: What it is.
    """
    return output.replace(_SHIM, get_relative_url(_OWN_SHIM, page.url))
