"""A page of made-up results, opened once in Debian's Chromium for many tests."""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.report.browser import Opened
from tests.report.factory import make_explorer, make_results

from nnrs.experiments.findings import findings
from nnrs.experiments.store import Result
from nnrs.report.page import build_page


@pytest.fixture(scope="session")
def results() -> list[Result]:
    """Four methods, three seeds each."""
    return [Result(record) for record in make_results()]


@pytest.fixture(scope="session")
def html(results, tmp_path_factory) -> Path:
    """The page of these results."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    command = "nnrs compare --data ptb --methods mle,ss,nnrs,ss-nnrs --seeds 1-3 --out DIR"
    found, explorer = findings(results), make_explorer()
    path.write_text(
        build_page(results, title="A <b>bold</b> title", commands=[command], found=found, explorer=explorer)
    )
    return path


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, without a window. In CI it must be there."""
    place, module = shutil.which("chromium"), find_spec("playwright")
    if place is None or module is None:
        message = "no browser: apt-get install chromium, pip install playwright"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=place, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def opened(chromium, html) -> Iterator[Opened]:
    """The page, wide and light. Tests leave it as they found it, and nothing may go wrong in any of them."""
    shared = Opened(chromium, html)
    yield shared
    assert shared.errors == []
    assert shared.dialogs == []
    assert shared.asked() == [shared.url]
