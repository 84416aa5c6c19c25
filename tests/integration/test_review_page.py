"""The page in a real browser, from a file, without a network."""

import json
from pathlib import Path

import pytest

from recast_eval.judging.review import import_votes, write_page
from tests.support.image_folders import make_folder

pytestmark = pytest.mark.browser


def test_keys_vote_and_the_export_comes_home(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    for seed, model in enumerate(("a", "b")):
        make_folder(tmp_path / "images" / model, prompts=4, seed=seed)
    page_file = write_page(tmp_path, count=4)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium")
        context = browser.new_context(viewport={"width": 380, "height": 800}, offline=True)
        page = context.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(page_file.path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 380
        page.fill("#voter", "ann <b>")
        page.keyboard.press("ArrowLeft")  # inside the field it moves the caret and votes for nobody
        assert page.inner_text("#count") == "0"
        page.evaluate("document.activeElement.blur()")
        for key in ("ArrowLeft", "ArrowRight", "u", "ArrowDown", "ArrowRight"):
            page.keyboard.press(key)
        page.reload()
        assert page.inner_text("#progress") == "Pair 4 of 4"  # the browser kept them
        page.click("#left")
        assert page.is_visible("#done")
        with page.expect_download() as coming:
            page.keyboard.press("e")
        ballot = tmp_path / "ballot.json"
        coming.value.save_as(ballot)
        browser.close()
    assert said == []
    votes = json.loads(ballot.read_text("utf-8"))
    assert votes["voter"] == "ann <b>"
    assert [v["choice"] for v in votes["votes"]] == ["left", "tie", "right", "left"]
    assert import_votes(tmp_path, [ballot]).total == 4
