"""Try the playground in Chromium: its findings are the command's, and nothing leaves it."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.playground import LANGUAGES, answers_of_commands, inputs

if TYPE_CHECKING:
    from tests.browser.conftest import Browser

_FINDINGS = """[...document.querySelectorAll('.listing .card')].map((card) => {
  let line = card.previousElementSibling;
  while (!line.classList.contains('code')) line = line.previousElementSibling;
  return [line.querySelector('.number').textContent, card.querySelector('.rule').textContent, card.querySelector('.message').textContent];
})"""
_ELSEWHERE = """
const done = arguments[0];
const code = "fetch('http://127.0.0.1:9/').then(() => 'reached', () => 'refused').then(postMessage)";
const worker = new Worker(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })), { type: 'module' });
worker.onmessage = ({ data }) => fetch('http://127.0.0.1:9/').then(() => done([data, 'reached']), () => done([data, 'refused']));
"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def address(playground: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(playground))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def page(browser: Browser, address: str) -> Browser:
    browser.console()
    browser.driver.get_log("performance")
    browser.driver.get(address)
    _wait_for(browser)
    return browser


def _wait_for(page: Browser) -> None:
    for _ in range(3):  # a busy machine takes a minute to start
        try:
            page.wait("document.body.dataset.state === 'done'")
        except AssertionError:
            continue
        return
    page.wait("document.body.dataset.state === 'done'")


def _check(page: Browser, name: str, text: str, language: str = "en") -> None:
    """Put a text into the page, and wait for all answers."""
    page.driver.execute_script(
        "document.body.dataset.state = ''; document.getElementById('name').value = arguments[0];"
        "const area = document.getElementById('text'); area.value = arguments[1];"
        "if (document.documentElement.lang !== arguments[2]) document.getElementById('language').click();"
        "else area.dispatchEvent(new Event('input'));",
        *(name, text, language),
    )
    _wait_for(page)


def test_findings_are_those_of_the_command(page: Browser, tmp_path: Path) -> None:
    expected = answers_of_commands(tmp_path)
    # A text area has no other line breaks.
    for name, text in inputs().items():
        for language in LANGUAGES if "\r" not in text else ():
            _check(page, name, text, language)
            lint, check, plan = expected[name, language]
            found = [
                [str(one["line"]), f"{one['id']} {one['name']}", one["message"]]
                for one in sorted(lint["findings"], key=lambda one: int(one["line"]))
            ]
            assert page.run(_FINDINGS) == found, (name, language)
            if check["files"]:
                assert check["files"][0]["memory"] in page.text("memory"), (name, language)
            layers = plan.get("layers", []) if plan else []
            assert page.run("document.querySelectorAll('#plan .layers i').length") == len(layers) or "jobs" in plan


def test_nothing_is_requested_elsewhere(page: Browser, address: str) -> None:
    requested = page.requested()  # by the page; those of its worker are in no log, so it is asked below
    assert f"{address}page.mjs" in requested
    assert [url for url in requested if not url.startswith((address, "chrome-untrusted:"))] == []
    assert [line for line in page.console() if "Content Security Policy" in line] == []
    assert page.driver.execute_async_script(_ELSEWHERE) == ["refused", "refused"]
    assert "connect-src" in " ".join(page.console())


def test_markup_of_a_text_stays_text(page: Browser) -> None:
    _check(page, "markup.yaml", inputs()["markup.yaml"])
    assert "<img src=x onerror=alert(1)>" in page.text("findings")
    assert page.run("document.querySelectorAll('main img, main script').length") == 0


def test_a_link_has_the_text_and_the_settings(page: Browser, address: str) -> None:
    text = inputs()["mistakes.yaml"].replace("seed: 42", "seed: 42  # 各层 𠮷")
    page.run("void (document.getElementById('chip').value = '910B4', document.getElementById('devices').value = '64')")
    _check(page, "my.yaml", text)
    page.driver.find_element("id", "link").click()
    page.wait("location.hash.length > 100")
    link = page.run("location.href")
    page.driver.get(link.replace(address, f"{address}index.html"))  # another address: the page is loaded again
    _wait_for(page)
    shown = page.run("['text', 'name', 'chip', 'devices'].map((id) => document.getElementById(id).value)")
    assert shown == [text, "my.yaml", "910B4", "64"]
    for damaged in ("z=!", "z=AAAA"):
        page.driver.execute_script("location.hash = arguments[0]", damaged)
        page.wait("document.getElementById('status').textContent.includes('damaged')")


def test_fixes_are_applied_and_a_check_is_explained(page: Browser) -> None:
    _check(page, "mistakes.yaml", inputs()["mistakes.yaml"])
    page.run("void (document.body.dataset.state = '', document.querySelector('#fixes button').click())")
    _wait_for(page)
    assert "eps: 1.e-8" in page.run("document.getElementById('text').value")
    page.run("document.querySelector('.rule').click()")
    page.wait("document.getElementById('rule').open && document.querySelectorAll('#rule pre').length === 2")
    page.run("document.getElementById('rule').close()")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_it_fits_a_phone_and_every_control_has_a_name(page: Browser, scheme: str, language: str) -> None:
    size = {"width": 420, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        _check(page, "mistakes.yaml", inputs()["mistakes.yaml"], language)
        assert page.run("document.documentElement.scrollWidth <= 420")
        controls = page.driver.find_elements("css selector", "button, input:not([type=file]), select, textarea")
        assert [
            one.get_attribute("outerHTML") for one in controls if one.is_displayed() and not one.accessible_name
        ] == []
        brightness = page.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        assert (max(brightness) < 64) == (scheme == "dark"), json.dumps(brightness)
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
