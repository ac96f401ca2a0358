"""What people look at, in headless Chromium: the report, and the MLflow UI over a finished study.

Needs Debian's packages chromium and chromium-driver.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

FIGURES_WITHOUT_DRAWING = """
return [...document.querySelectorAll('.plotly-graph-div')].filter(
    (figure) => !figure.querySelector('svg.main-svg') || !figure.querySelector('.trace, .hm, .parcoords, .point')).length
"""
PICTURES_WITHOUT_PIXELS = "return [...document.images].filter((image) => !image.naturalWidth).length"


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """A Chromium that reaches nothing but this machine, and writes down whatever it asks for."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no Chromium here; Debian's packages chromium and chromium-driver have it")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (
        "--headless=new",
        "--no-sandbox",  # which root has not
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--window-size=1600,1400",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options=options, service=Service(driver)) as chromium:
        yield chromium


@pytest.fixture(scope="module")
def ui(home: Path, free_port: Callable[[], int]) -> Iterator[str]:
    """The address of the study's experiment in the MLflow UI, as `see-tune ui` says it."""
    command = [sys.executable, "-m", "see_tune.cli.app", "ui", "--home", str(home), "--port", str(free_port())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        _, _, address = server.stdout.readline().strip().partition("   ")
        yield address
        os.kill(server.pid, signal.SIGINT)


def requested(browser: webdriver.Chrome) -> list[str]:
    """Every address that was asked for since the last call, but what a page carries in itself."""
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    sent = (message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent")
    return [url for url in sent if not url.startswith(("data:", "blob:"))]


def errors(browser: webdriver.Chrome) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def wait_for(browser: webdriver.Chrome, *texts: str) -> None:
    """Until the page shows all of these."""

    def shown(browser: webdriver.Chrome) -> bool:
        page = browser.find_element("tag name", "body").text
        return all(text in page for text in texts)

    WebDriverWait(browser, 60).until(shown, f"{texts} are not all shown")


def test_report_draws_everything_and_asks_the_network_for_nothing(browser: webdriver.Chrome, home: Path) -> None:
    report = (home / "studies/small/report.html").as_uri()
    browser.get(report)
    wait_for(browser, "On the test classes", "How to reproduce")
    assert len(browser.find_elements("class name", "plotly-graph-div")) >= 3
    assert browser.execute_script(FIGURES_WITHOUT_DRAWING) == 0  # type: ignore[no-untyped-call]
    assert browser.execute_script(PICTURES_WITHOUT_PIXELS) == 0  # type: ignore[no-untyped-call]
    assert errors(browser) == []
    assert requested(browser) == [report]


def test_mlflow_lists_the_study_and_its_trials_best_first(browser: webdriver.Chrome, ui: str) -> None:
    assert parse_qs(ui.partition("?")[2])["orderByKey"] == ["metrics.`best/val_recall_at_1`"]
    browser.get(ui)
    wait_for(browser, "small", "baseline", "t000", "t001", "final see s0", "final off s0", "glyphs (")
    page = browser.find_element("tag name", "body").text
    assert max(page.index("t000"), page.index("t001")) < page.index("baseline")  # which has no best/*
    assert [url for url in requested(browser) if not url.startswith(ui.partition("#")[0])] == []


def test_mlflow_charts_recall_over_epochs(browser: webdriver.Chrome, ui: str) -> None:
    browser.get(f"{ui}&compareRunsMode=CHART")
    browser.refresh()  # the page keeps its mode when only the part behind # changes
    wait_for(browser, "best/val_recall_at_1")
    browser.find_element("css selector", "input[placeholder='Search metric charts']").send_keys("^val/recall_at_1$")
    wait_for(browser, "\nval/recall_at_1\n")
    drawn = "return document.querySelectorAll('.js-plotly-plot .scatterlayer .trace').length"
    WebDriverWait(browser, 60).until(lambda page: page.execute_script(drawn) >= 2, "no curve is drawn")
