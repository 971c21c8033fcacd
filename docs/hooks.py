"""Write the pages of all checks before the site is built: they are generated from the checklists and not stored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.utils import get_relative_url

from ms_tune.lint.rules import all_rules, course
from ms_tune.report.rule import MARK, reference

# Lets the theme's search work from a folder; the theme would load it from the network.
_SHIM, _OWN_SHIM = "https://unpkg.com/iframe-worker/shim", "assets/iframe-worker/shim-1.0.4.js"
_OTHER_LANGUAGE = re.compile(r"^\[(?:中文版?|(?:In )?English)\]\(\S+\)\n", re.MULTILINE)
# The theme's search splits the query into Chinese words, but never tries one that reaches its end: 重计算 becomes 重 and 计.
_CUT = re.compile(r"(?<=\+1;)(\w)<(\w)(?=\.length;\1\+\+\)\2\.slice\(\w,\1\)in )")
# Sections that are the same on every check's page; the search leaves them out.
_SAME_EVERYWHERE = re.compile(r"^(## (?:How to ignore it|Evidence|如何忽略|依据)(?!\w).*)$", re.MULTILINE)
# "English · 中文" as a heading, a sentence or a cell; "all / 全部".
_BOTH = re.compile(r"(?P<mark>#+ )?(?P<en>.*?)(?: ·| /) (?P<zh>.*[\u4e00-\u9fff].*)")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
# A line end within a Chinese sentence, which a browser would show as a space.
_CHINESE_LINE_END = re.compile(
    r"(?<=[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef])\n *(?=[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef])"
)
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_OTHER_STARTS = ("#", "|", "- ", "<")  # of blocks that are no paragraph

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


def _line(line: str, language: str) -> str:
    """Return a line, or each cell of a row, in one language."""
    if line.startswith("|"):
        return "|".join(f" {_line(cell.strip(), language)} " if cell.strip() else cell for cell in line.split("|"))
    found = _BOTH.fullmatch(line)
    return f"{found['mark'] or ''}{found[language]}" if found else line


def in_one_language(markdown: str, language: str) -> str:
    """Return the page of a check, which has both languages, in one of them.

    Args:
        markdown: The page, on which a Chinese paragraph follows each English one.
        language: ``en`` or ``zh``.
    """
    kept = []
    for part in _FENCE.split(markdown):
        if part.startswith("```"):
            kept.append(part)
            continue
        blocks = ["\n".join(_line(line, language) for line in block.split("\n")) for block in part.split("\n\n")]
        prose = [bool(block.strip()) and not block.strip().startswith(_OTHER_STARTS) for block in blocks]
        chinese = [is_prose and bool(_CHINESE.search(block)) for is_prose, block in zip(prose, blocks, strict=True)]
        before_chinese = [is_prose and after for is_prose, after in zip(prose, [*chinese[1:], False], strict=True)]
        dropped = chinese if language == "en" else before_chinese
        kept.append("\n\n".join(block for block, drop in zip(blocks, dropped, strict=True) if not drop))
    return "".join(kept)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Return a page's text with links for the site, on which a page has the same name in both languages.

    Args:
        markdown: The page in the repository.
        page: Its properties; the search ranks the hundreds of pages of checks after the others.
        config: The settings of the language that is built.
    """
    if page.file.src_uri.startswith("rules/"):
        page.meta["search"] = {"boost": 0.5}
        markdown = markdown.removeprefix(f"{MARK}\n")  # the first heading is the title only if nothing precedes it
        if not page.file.src_uri.startswith(("rules/README", "rules/chapter-")):
            markdown = in_one_language(markdown, config.theme["language"])
        markdown = _SAME_EVERYWHERE.sub(r"\1 { data-search-exclude }", markdown)
    parts = _FENCE.split(_OTHER_LANGUAGE.sub("", markdown).replace(".zh.md", ".md"))
    return "".join(part if part.startswith("```") else _CHINESE_LINE_END.sub("", part) for part in parts)


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
