"""Write the pages of all checks before the site is built: they are generated from the checklists and not stored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.utils import get_relative_url

from ms_tune.lint.rules import all_rules, course
from ms_tune.report.rule import reference

# Lets the theme's search work from a folder; the theme would load it from the network.
_SHIM, _OWN_SHIM = "https://unpkg.com/iframe-worker/shim", "assets/iframe-worker/shim-1.0.4.js"
_OTHER_LANGUAGE = re.compile(r"^\[(?:中文|English)\]\(\S+\)\n", re.MULTILINE)
# The theme's search splits the query into Chinese words, but never tries one that reaches its end: 重计算 becomes 重 and 计.
_CUT = re.compile(r"(?<=\+1;)(\w)<(\w)(?=\.length;\1\+\+\)\2\.slice\(\w,\1\)in )")
# Sections that are the same on every check's page; the search leaves them out.
_SAME_EVERYWHERE = re.compile(r"^(## (?:How to ignore it|Evidence)\b.*)$", re.MULTILINE)

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Write the pages of checks; MkDocs calls this before it looks for pages.

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
    """Return a page's text with links for the site, on which a page has the same name in both languages.

    Args:
        markdown: The page in the repository.
        page: Its properties; the search ranks the hundreds of pages of checks after the others.
    """
    if page.file.src_uri.startswith("rules/"):
        page.meta["search"] = {"boost": 0.5}
        markdown = _SAME_EVERYWHERE.sub(r"\1 { data-search-exclude }", markdown)
    return _OTHER_LANGUAGE.sub("", markdown).replace(".zh.md", ".md")


def on_post_page(output: str, page: Page, **_: object) -> str:
    """Return a page without anything that is loaded from a network.

    Args:
        output: The page.
        page: Its properties.
    """
    return output.replace(_SHIM, get_relative_url(_OWN_SHIM, page.url))


def on_post_template(output_content: str, **_: object) -> str:
    """Return a template such as ``404.html`` without anything that is loaded from a network.

    Args:
        output_content: The file.
    """
    return output_content.replace(_SHIM, _OWN_SHIM)


def on_post_build(config: MkDocsConfig, **_: object) -> None:
    """Fix the search of Chinese words in the built site.

    Args:
        config: The site's settings.
    """
    (worker,) = Path(config.site_dir).glob("assets/javascripts/workers/search.*.min.js")
    text, fixed = _CUT.subn(r"\1<=\2", worker.read_text(encoding="utf-8"))
    if fixed != 1:
        message = "the theme's search has changed: check whether it finds 重计算 as one word"
        raise PluginError(message)
    worker.write_text(text, encoding="utf-8")
