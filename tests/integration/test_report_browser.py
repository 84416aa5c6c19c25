"""The report in a real browser: quiet, offline, no sideways scrolling, readable by all."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recast_eval.reporting.page import build_report
from tests.support.planted import HOSTILE_MODEL, Plant, plant_evaluation, plant_run

pytestmark = pytest.mark.browser
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = os.environ.get("RECAST_AXE")
"""Path of axe.min.js, as from ``npm install axe-core``."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    models = ("base", "static", "recast", HOSTILE_MODEL)
    plant = Plant(prompts=14, samples=1, models=models, hostile=True, distinct_images=4)
    plant_evaluation(root / "eval", plant)
    plant_run(root / "recast", epochs=4)
    page = root / "report.html"
    page.write_text(build_report([root]), encoding="utf-8")
    return page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    if CHROMIUM is None:
        pytest.skip("no chromium on the path: apt-get install chromium")
    with api.sync_playwright() as tools:
        opened = tools.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.mark.parametrize("width", [380, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_quiet_and_fits(browser: Any, report: Path, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    page.click("#expand")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("window.planted") is None
    assert page.evaluate("document.querySelector('main details').open") is True
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") != scheme
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)"), (
        "a picture did not load"
    )
    assert [url for url in asked if not url.startswith("data:")] == [report.as_uri()]
    assert said == []
    context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 380), ("dark", 1600)])
def test_axe_finds_no_serious_problem(browser: Any, report: Path, scheme: str, width: int) -> None:
    if not AXE:
        pytest.skip("set RECAST_AXE to axe.min.js (npm install axe-core)")
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.goto(report.as_uri())
    page.evaluate(Path(AXE).read_text("utf-8"))
    found = page.evaluate("axe.run(document)")["violations"]
    assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []
    context.close()


def test_the_page_works_without_its_script_and_by_keyboard(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert not page.is_visible(".tools")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the link that skips to the report
    assert page.url.endswith("#main")
    page.locator("figure.plot details.numbers > summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("figure.plot details.numbers table").first.is_visible()
    context.close()


def test_a_dark_page_prints_in_light_colours(browser: Any, report: Path) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(report.as_uri())
    page.emulate_media(media="print", color_scheme="dark")
    found = page.evaluate(
        "['--ink','--paper','--s0'].map(n => getComputedStyle(document.documentElement)"
        ".getPropertyValue(n).trim())"
    )
    assert found == ["#000", "#fff", "#0072b2"]
    context.close()
