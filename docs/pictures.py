"""Make the pictures of docs/assets from real runs: ``python docs/pictures.py`` (in the repository's folder).

``check*.svg`` shows the output of ``ms-tune check`` on a terminal; it requires ``rich``. ``memory*.png`` shows the page of a trace in
Chromium; it requires ``apt-get install chromium chromium-driver fonts-noto-cjk`` and ``pip install '.[test]'``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
from html import escape
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

_COMMAND = ["check", "examples/out_of_memory.yaml", "--device-memory", "32GB"]
_COLUMNS = 84
# A trace of MindFormers' Qwen3-8B, data 2 x tensor 4 x pipeline 4.
_TRACE = Path("tests/data/memory_tracker/mindformers_qwen3_8b_dp2tp4pp4.tar.xz")
_SWITCHES = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars")
_PAGE = (1200, 1390)  # width and height in pixels
_SUFFIXES = {"en": "", "zh": ".zh"}
_ROW, _CELL, _EDGE = 20, 9.0, 16  # of a terminal, in pixels
_FONT = 'font-family="DejaVu Sans Mono,Menlo,Consolas,Noto Sans Mono CJK SC,monospace" font-size="15"'
_PLAIN = "#e6edf3"


def terminal(command: list[str], language: str) -> str:
    """Return a terminal with a command and its output, as SVG.

    Args:
        command: The arguments of ``ms-tune``.
        language: ``en`` or ``zh``.
    """
    with TemporaryDirectory() as cache:  # without measurements of earlier runs
        shown = subprocess.run(
            [sys.executable, "-m", "ms_tune", *command, "--lang", language],
            env={**os.environ, "COLUMNS": str(_COLUMNS), "FORCE_COLOR": "1", "MS_TUNE_CACHE": cache},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        ).stdout
    lines = Text.from_ansi(f"$ ms-tune {' '.join(command)}\n{shown.rstrip()}").split()
    width, height = round(_COLUMNS * _CELL) + 2 * _EDGE, len(lines) * _ROW + 2 * _EDGE
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
            f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/><g {_FONT} fill="{_PLAIN}">',
            *(_line(line, _EDGE + (number + 0.75) * _ROW) for number, line in enumerate(lines)),
            "</g></svg>\n",
        ]
    )


def _line(line: Text, y: float) -> str:
    """Return a line with each character at its place; Chinese characters use two cells."""
    found, at = [], 0
    for segment in line.render(Console(width=_COLUMNS)):
        style = segment.style or Style()
        paint = f' fill="{style.color.get_truecolor(MONOKAI).hex}"' if style.color is not None else ""
        bold = ' font-weight="bold"' if style.bold else ""
        places = []
        for character in segment.text.rstrip("\n"):
            places.append(f"{_EDGE + at * _CELL:g}")
            at += cell_len(character)
        if places:
            found.append(f'<tspan x="{" ".join(places)}"{paint}{bold}>{escape(segment.text.rstrip())}</tspan>')
    return f'<text y="{y:g}" xml:space="preserve">{"".join(found)}</text>'


def page(language: str) -> bytes:
    """Return the page of a trace from its curve on, as PNG.

    Args:
        language: ``en`` or ``zh``.
    """
    webdriver = import_module("selenium.webdriver")  # by name: type checkers need not have Selenium
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    with TemporaryDirectory() as folder:
        with tarfile.open(_TRACE) as archive:
            archive.extractall(folder, filter="data")
        report, run = Path(folder, "report.html"), _TRACE.name.split(".")[0]
        command = [sys.executable, "-m", "ms_tune", "memory", run, "--html", str(report), "--lang", language]
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        width, height = _PAGE
        for switch in (*_SWITCHES, f"--window-size={width},{height}", f"--user-data-dir={folder}/chromium"):
            options.add_argument(switch)
        service = import_module("selenium.webdriver.chrome.service").Service(shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        try:
            driver.get(report.as_uri())
            ready = "return document.body.dataset.ready === '1'"
            import_module("selenium.webdriver.support.wait").WebDriverWait(driver, 60).until(
                lambda one: one.execute_script(ready)
            )
            driver.execute_script("document.querySelector('[data-t=timeline]').scrollIntoView(); scrollBy(0, -80)")
            return bytes(driver.get_screenshot_as_png())
        finally:
            driver.quit()


if __name__ == "__main__":
    for name, suffix in _SUFFIXES.items():
        Path(f"docs/assets/check{suffix}.svg").write_text(terminal(_COMMAND, name), encoding="utf-8")
    if shutil.which("chromedriver") is None or importlib.util.find_spec("selenium") is None:
        sys.exit("memory*.png was not made: there is no Chromium with its driver, or no Selenium")
    for name, suffix in _SUFFIXES.items():
        Path(f"docs/assets/memory{suffix}.png").write_bytes(page(name))
