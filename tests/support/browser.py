"""Debian's Chromium without a screen: what a person does on a page, and pictures of it."""

import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from PIL import Image
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.processes import CHECKOUT

PROGRAMS = ("chromium", "chromedriver")
PICTURES = CHECKOUT / "docs/images"
WRITE = "LARDER_WRITE_PICTURES"
LIMIT_SECONDS = 180.0
"""For everything that a page shows: it is reached on a machine that does other things only."""

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
_COLOURS = 128
_WIDTH, _HEIGHT = 1280, 2000
"""Tall: Prefect's UI loads some lists only when they come into view."""

T = TypeVar("T")


class Browser:
    """A window. Whatever is not there yet is waited for."""

    def __init__(self, driver: WebDriver) -> None:
        self._driver = driver

    @property
    def address(self) -> str:
        return self._driver.current_url

    def open(self, address: str) -> None:
        self._driver.get(address)

    def back(self) -> None:
        self._driver.back()

    def until(self, found: Callable[[], T]) -> T:
        """The first result that is true; a page that changes meanwhile is looked at again."""
        waiting = WebDriverWait(
            self._driver, LIMIT_SECONDS, ignored_exceptions=[WebDriverException]
        )
        return waiting.until(lambda _: found())

    def see(self, selector: str, text: str = "") -> WebElement:
        """A displayed element that a CSS selector selects and that has a text in it."""

        def seen() -> WebElement | None:
            elements = self._driver.find_elements(By.CSS_SELECTOR, selector)
            return next((e for e in elements if text in e.text and e.is_displayed()), None)

        try:
            element = self.until(seen)
        except WebDriverException as error:
            page = self._driver.find_element(By.TAG_NAME, "body").text
            raise AssertionError(
                f"no {selector} with {text!r} in {self.address}: {page}"
            ) from error
        assert element is not None
        return element

    def click(self, selector: str, text: str = "") -> None:
        def clicked() -> bool:
            self.see(selector, text).click()
            return True

        self.until(clicked)

    def texts(self, selector: str) -> list[str]:
        return [each.text for each in self._driver.find_elements(By.CSS_SELECTOR, selector)]

    def images(self, selector: str) -> int:
        """How many images it draws: those that it loads not, or that are broken, do not count."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].filter(i => i.naturalWidth).length"
        )
        count: int = self._driver.execute_script(script, selector)
        return count

    def picture(self, name: str, height: int = 880) -> None:
        """Write a picture of the window for the documentation, if LARDER_WRITE_PICTURES is set."""
        if not os.environ.get(WRITE):
            return
        self._driver.set_window_size(_WIDTH, height)
        image = Image.open(io.BytesIO(self._driver.get_screenshot_as_png())).convert("RGB")
        self._driver.set_window_size(_WIDTH, _HEIGHT)
        PICTURES.mkdir(exist_ok=True)
        image.quantize(_COLOURS).save(PICTURES / f"{name}.png", optimize=True)


def chromium_installed() -> bool:
    return all(map(shutil.which, PROGRAMS))


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A window of Chromium with an empty profile, within a ``with`` block."""
    program, driver_program = (shutil.which(name) or name for name in PROGRAMS)
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*_FLAGS, f"--window-size={_WIDTH},{_HEIGHT}", f"--user-data-dir={folder}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options, Service(driver_program))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
