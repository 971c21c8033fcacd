"""Test the search of the built site, opened from a folder in a real browser, with a few test pages."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

if TYPE_CHECKING:
    from tests.browser.conftest import Browser

ROOT = Path(__file__).parents[2]
NEEDED = ("material", "mkdocs_static_i18n", "jieba")
CONFIG = """\
INHERIT: {root}/mkdocs.yml
docs_dir: {folder}/docs
site_dir: {folder}/site
hooks: [{folder}/hooks.py]
nav: [{{Start here: index.md}}, {{Checks: rules/one.md}}]
"""
# The hooks of the real site, without the pages of all checks, which take two minutes.
HOOKS = """\
import importlib.util
import sys
found = importlib.util.spec_from_file_location("site_hooks", {hooks!r})
real = sys.modules["site_hooks"] = importlib.util.module_from_spec(found)
found.loader.exec_module(real)
on_page_markdown, on_post_page, on_post_build = real.on_page_markdown, real.on_post_page, real.on_post_build
"""
PAGES = {
    "index.md": "# Start here\n\n## Memory\n\nWhat a stage recomputes, and 'RuntimeError: Configuration conversion failed'.\n",
    "index.zh.md": "# 从这里开始\n\n## 显存\n\n各阶段完全重计算哪些层，显存放得下吗。\n\n## 其他\n\n很重，计算得快，不计较。\n",
    "rules/one.md": "# one-rule (MST999)\n\n## Why it matters\n\nslow\n\n## How to ignore it\n\nunfindable\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not all(map(importlib.util.find_spec, NEEDED)):
        pytest.skip("what builds the site is not installed (pip install '.[docs]')")
    folder = tmp_path_factory.mktemp("site")
    for name, text in PAGES.items():
        (folder / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "docs" / name).write_text(text, "utf-8")
    shutil.copytree(ROOT / "docs" / "assets", folder / "docs" / "assets")
    (folder / "mkdocs.yml").write_text(CONFIG.format(root=ROOT, folder=folder), "utf-8")
    (folder / "hooks.py").write_text(HOOKS.format(hooks=str(ROOT / "docs" / "hooks.py")), "utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(folder / "mkdocs.yml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def results(browser: Browser, page: Path, query: str) -> set[str]:
    """Return the titles of the pages that a search finds."""
    return {link.split("?")[0].split("#")[0] for link in links(browser, page, query)}


def links(browser: Browser, page: Path, query: str) -> list[str]:
    """Return the sections that a search finds, best match first."""
    browser.driver.get(page.as_uri())
    browser.driver.execute_script("document.querySelector('[data-md-toggle=search]').click()")
    browser.driver.find_element("css selector", "input.md-search__input").send_keys(query)
    browser.wait("/\\d|No match|没有/.test(document.querySelector('.md-search-result__meta').textContent)")
    found = browser.run("[...document.querySelectorAll('a.md-search-result__link')].map((link) => link.href)")
    folder = f"{page.parents[1 if page.parent.name == 'zh' else 0].as_uri()}/"
    return [link.removeprefix(folder) for link in found]


@pytest.mark.slow
@pytest.mark.parametrize("start", ["index.html", "zh/index.html"])
def test_it_finds_what_is_in_either_language(browser: Browser, site: Path, start: str) -> None:
    page = site / start
    browser.driver.get_log("performance")
    assert results(browser, page, "显存") == {"zh/index.html"}
    found = links(browser, page, "重计算")  # not the section with 重 and 计算 as separate words
    assert [unquote(link.partition("#")[2]) for link in found if "#" in link] == ["显存"]
    assert "index.html" in results(browser, page, "recomputes")
    assert "index.html" in results(browser, page, "Configuration conversion failed")
    assert results(browser, page, "unfindable") == set()
    assert {address.split(":", 1)[0] for address in browser.requested()} == {"file"}
