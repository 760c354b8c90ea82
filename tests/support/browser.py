"""A real, headless Chromium for tests of pages: Debian's packages `chromium` and `chromium-driver`."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Generator

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.chrome.webdriver import WebDriver

HOW = "needs Chromium: apt-get install chromium chromium-driver"


@contextlib.contextmanager
def chromium(*, dark: bool = False, scripts: bool = True) -> Generator[WebDriver]:
    """Skips where there is none; fails where `CI` is set."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        if os.environ.get("CI"):
            pytest.fail(HOW)
        pytest.skip(HOW)
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    # a container's root has no user namespaces to sandbox in and a small /dev/shm; only our own pages are opened
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--no-proxy-server",
        "--lang=en",
    ):
        options.add_argument(argument)
    if not scripts:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    try:
        opened.set_page_load_timeout(90)
        if dark:
            scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
            opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        yield opened
    finally:
        opened.quit()


def resize(browser: WebDriver, width: int, height: int = 740) -> None:
    """A phone's viewport; windows cannot be that narrow."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def complaints(browser: WebDriver) -> list[str]:
    """What the console holds of errors: policy violations, scripts that failed, files that are missing."""
    return [
        entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
    ]
