"""Provide a headless Chromium without network access of its own."""

from __future__ import annotations

import importlib.util
import json
import shutil
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

_SWITCHES = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"),
    *("--disable-component-update", "--no-first-run", "--window-size=1400,1800", "--force-device-scale-factor=1"),
)


class Browser:
    """The operations of the tests on a page."""

    def __init__(self, driver: Any) -> None:  # noqa: ANN401 - Selenium is optional
        self.driver = driver

    def open(self, path: Path) -> None:
        """Open a file and wait until its blocks are unpacked."""
        self.driver.get_log("performance")
        self.driver.get(path.as_uri())
        self.wait("document.body.dataset.ready === '1'")

    def run(self, script: str) -> Any:  # noqa: ANN401 - JavaScript
        """Return the value of an expression in the page."""
        return self.driver.execute_script(f"return {script}")

    def text(self, element: str) -> str:
        """Return the text of an element, by its id."""
        return str(self.run(f"document.getElementById('{element}').textContent"))

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        for _ in range(200):
            if self.run(condition):
                return
            time.sleep(0.1)
        message = f"never true: {condition}"
        raise AssertionError(message)

    def console(self) -> list[str]:
        """Return the output of the console, including errors of the content security policy."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def requested(self) -> set[str]:
        """Return the addresses that the page requested, without those of Chromium's own start page."""
        entries = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [entry["params"] for entry in entries if entry["method"] == "Network.requestWillBeSent"]
        found = {each["request"]["url"] for each in asked if not each["documentURL"].startswith("chrome:")}
        return {address for address in found if not address.startswith(("data:", "blob:"))}


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium, driver_path = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver_path is None:
        pytest.skip("Chromium and its driver are not installed (apt-get install chromium chromium-driver)")
    if importlib.util.find_spec("selenium") is None:
        pytest.skip("Selenium is not installed (pip install selenium)")
    # By name: type checkers need not have Selenium.
    webdriver = import_module("selenium.webdriver")
    service = import_module("selenium.webdriver.chrome.service").Service(driver_path)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for switch in (*_SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=service)
    yield Browser(driver)
    driver.quit()
