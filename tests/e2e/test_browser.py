"""What people see and click in Prefect's UI, in a real browser, with ``make serve``.

``LARDER_WRITE_PICTURES=1`` writes the pictures of the documentation, docs/images.
"""

import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
from PIL import Image
from required import need_system
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait
from serving import FAST, Run, Serving, serving_in

from tests.support.processes import CHECKOUT, is_running, wait_until

pytestmark = pytest.mark.timeout(900)  # a busy machine is slow, and no test asserts a time

SLOW = [*FAST, "cluster.copy.max_bytes_per_second=15 kB"]
"""Two minutes, so that there is time to cancel."""
PROGRAMS = ("chromium", "chromedriver")
PICTURES = CHECKOUT / "docs/images"
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


class Browser:
    """A window. Whatever is not there yet is waited for."""

    def __init__(self, driver: WebDriver) -> None:
        self.driver = driver

    def until(self, found: Callable[[], Any]) -> Any:
        """The first result that is true; a page that changes meanwhile is looked at again."""
        waiting = WebDriverWait(self.driver, LIMIT_SECONDS, ignored_exceptions=[WebDriverException])
        return waiting.until(lambda _: found())

    def see(self, selector: str, text: str = "") -> WebElement:
        """A displayed element that a CSS selector selects and that has a text in it."""

        def seen() -> WebElement | None:
            elements = self.driver.find_elements(By.CSS_SELECTOR, selector)
            return next((e for e in elements if text in e.text and e.is_displayed()), None)

        try:
            element = self.until(seen)
        except WebDriverException as error:
            page = self.driver.find_element(By.TAG_NAME, "body").text
            raise AssertionError(
                f"no {selector} with {text!r} in {self.driver.current_url}: {page}"
            ) from error
        assert element is not None
        return element

    def click(self, selector: str, text: str = "") -> None:
        def clicked() -> bool:
            self.see(selector, text).click()
            return True

        self.until(clicked)

    def texts(self, selector: str) -> list[str]:
        return [each.text for each in self.driver.find_elements(By.CSS_SELECTOR, selector)]

    def images(self, selector: str) -> int:
        """How many images it draws: those that it loads not, or that are broken, do not count."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].filter(i => i.naturalWidth).length"
        )
        count: int = self.driver.execute_script(script, selector)
        return count

    def picture(self, name: str, height: int = 880) -> None:
        if not os.environ.get("LARDER_WRITE_PICTURES"):
            return
        self.driver.set_window_size(_WIDTH, height)
        image = Image.open(io.BytesIO(self.driver.get_screenshot_as_png())).convert("RGB")
        self.driver.set_window_size(_WIDTH, _HEIGHT)
        PICTURES.mkdir(exist_ok=True)
        image.quantize(_COLOURS).save(PICTURES / f"{name}.png", optimize=True)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    need_system(all(map(shutil.which, PROGRAMS)), "run .ci/install-chromium")
    with serving_in(tmp_path_factory.mktemp("serving")) as serving:
        yield serving


@pytest.fixture(scope="module")
def browser(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A window of Chromium with an empty profile."""
    program, driver_program = map(shutil.which, PROGRAMS)
    options = webdriver.ChromeOptions()
    options.binary_location = str(program)
    profile = tmp_path_factory.mktemp("chromium")
    for flag in (*_FLAGS, f"--window-size={_WIDTH},{_HEIGHT}", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options, Service(str(driver_program)))
    yield Browser(driver)
    driver.quit()


def page(serving: Serving, path: str) -> str:
    return f"{serving.server.url.removesuffix('/api')}{path}"


def deployment(serving: Serving, name: str) -> str:
    identity: str = serving.server.get(f"/deployments/name/prepare/{name}")["id"]
    return page(serving, f"/deployments/deployment/{identity}")


def insist(act: Callable[[], None], done: Callable[[], bool]) -> None:
    """Act again if nothing comes of it: of a server that is too busy, the UI only says so."""
    for _ in range(5):
        act()
        with suppress(AssertionError):
            wait_until(done, seconds=60)
            return
    raise AssertionError("the server does not take it")


def submitted(serving: Serving, browser: Browser, name: str) -> Run:
    form = browser.driver.current_url
    insist(
        lambda: browser.click("button[type=submit]", "Submit"),
        lambda: browser.driver.current_url != form,
    )
    question = {"deployments": {"name": {"any_": [name]}}, "sort": "EXPECTED_START_TIME_DESC"}
    run: Run = serving.server.post("/flow_runs/filter", question)[0]
    return run


def show_run(serving: Serving, browser: Browser, run: Run, state: str) -> None:
    browser.driver.get(page(serving, f"/runs/flow-run/{run['id']}"))
    browser.see(".state-badge", state)


def options_of(browser: Browser, description: str) -> Select | None:
    field = browser.see(".schema-form-property", description)
    options = Select(field.find_element(By.CSS_SELECTOR, "select"))
    return options if options.options else None


def show_artifact(serving: Serving, browser: Browser, run: Run, name: str) -> None:
    of_run = {"artifacts": {"flow_run_id": {"any_": [run["id"]]}, "key": {"exists_": True}}}
    keys = [each["key"] for each in serving.server.post("/artifacts/filter", of_run)]
    (key,) = [key for key in keys if re.fullmatch(f"digits-[0-9a-f]{{8}}-{name}", key)]
    browser.click(".p-tab", "Artifacts")
    browser.click("a[href*='/artifacts/artifact/']", f"\n{key}\n")
    browser.see(".page-heading, .p-bread-crumbs", key)


def test_digits_from_the_form_to_the_card(serving, browser):
    done = serving.place.run("data/source/digits", python=("-m", "larder.demo.digits"))
    assert done.status == 0, done.err
    browser.driver.get(page(serving, "/deployments"))
    browser.click(".deployment-list__name", "digits")
    browser.click("button", "Run")
    browser.click("button", "Custom run")
    datasets = browser.until(lambda: options_of(browser, "configs/datasets"))
    assert {option.text for option in datasets.options} > {"digits", "files", "imagenet"}
    datasets.select_by_visible_text("digits")
    browser.picture("form")
    run = submitted(serving, browser, "digits")
    show_run(serving, browser, run, "Completed")
    browser.see(".p-bread-crumbs", "prepare digits for local")
    browser.picture("run")

    show_artifact(serving, browser, run, "plan")
    assert browser.see("tr", "source").text.endswith("1,797 objects, 252 kB")
    assert len(browser.texts("tbody tr")) > 10, "all rows are on one page"
    assert browser.texts("tbody tr")[0].startswith("delivery")
    browser.picture("plan")
    browser.driver.back()

    (config,) = serving.place.folder.glob("out/local/digits/experiment.yaml")
    (version,) = (each.name for each in serving.place.storage.glob("larder/digits/versions/*"))
    show_artifact(serving, browser, run, "config")
    shown = browser.see("article code").text
    assert f"version: '{version}'" in shown
    assert shown.split() == config.read_text().split()
    browser.driver.back()

    show_artifact(serving, browser, run, "card")
    browser.see("article tr", "1,418")
    browser.until(lambda: browser.images("article img") == 2)
    browser.driver.get(browser.see("article code").text)
    browser.see(".id", version)
    assert browser.images("img") == 2 + 24
    browser.picture("card", 1340)


def test_what_a_form_cannot_run_is_refused_in_words(serving, browser):
    form = f"{deployment(serving, 'digits')}/run?parameters="
    browser.driver.get(form + quote(json.dumps({"dataset": "elsewhere"})))
    browser.click("button[type=submit]", "Submit")
    browser.see(".p-label__message--failed", "'elsewhere' is not one of ['digits', 'files'")


@pytest.mark.nightly  # test_prefect_deployments.py cancels runs at a push
def test_a_run_is_cancelled_in_the_middle_and_continued(serving, browser):
    run = serving.in_the_middle(SLOW)
    (process,) = serving.processes("prefect.engine")
    show_run(serving, browser, run, "Running")
    browser.click(".p-tab", "Artifacts")
    browser.see("a[href*='/artifacts/artifact/']", "mirror: ")
    browser.picture("progress")

    def cancel() -> None:
        show_run(serving, browser, run, "Running")
        browser.click("button", "Cancel")
        browser.click(".p-modal button", "Confirm")

    path = f"/flow_runs/{run['id']}"
    insist(cancel, lambda: serving.server.get(path)["state_type"].startswith("CANCELL"))
    show_run(serving, browser, run, "Cancelled")
    wait_until(lambda: not is_running(process))
    serving.check_continued()
