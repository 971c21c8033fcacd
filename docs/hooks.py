"""Writes the pages of all checks before the site is built: they are made from the checklists, not kept."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.utils import get_relative_url

from ms_tune.lint.rules import all_rules, course
from ms_tune.report.rule import reference

# What lets the theme's search work from a folder; the theme would load it from elsewhere.
_SHIM, _OWN_SHIM = "https://unpkg.com/iframe-worker/shim", "assets/iframe-worker/shim-1.0.4.js"
_OTHER_LANGUAGE = re.compile(r"^\[(?:中文|English)\]\(\S+\)\n", re.MULTILINE)
# The theme's search cuts Chinese words out of what is typed, and never tries one that reaches its end: 重计算 becomes 重 and 计.
_CUT = re.compile(r"(?<=\+1;)(\w)<(\w)(?=\.length;\1\+\+\)\2\.slice\(\w,\1\)in )")
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
    for name, page in reference(course(all_rules())).items():
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


def on_post_template(output_content: str, **_: object) -> str:
    """What is no page, such as ``404.html``, as it is written: without anything that comes from a network, either.

    Args:
        output_content: The file.
    """
    return output_content.replace(_SHIM, _OWN_SHIM)


def on_post_build(config: MkDocsConfig, **_: object) -> None:
    """What the theme's search does with Chinese words, mended in the built site.

    Args:
        config: The site's settings.
    """
    (worker,) = Path(config.site_dir).glob("assets/javascripts/workers/search.*.min.js")
    text, mended = _CUT.subn(r"\1<=\2", worker.read_text(encoding="utf-8"))
    if mended != 1:
        message = "the theme's search has changed: look whether it finds 重计算 as one word"
        raise PluginError(message)
    worker.write_text(text, encoding="utf-8")
