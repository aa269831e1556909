"""The picture of the page ends below the table of results, and is small."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

SCRIPT = Path(__file__).parents[2] / "results" / "photograph.py"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("photograph", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_photograph_shows_the_page_down_to_the_end_of_its_table_in_at_most_256_colors(
    chromium, html, script, tmp_path
):
    script.photograph(chromium, html, tmp_path / "page.png")
    page = chromium.new_page(viewport={"width": script.WIDTH, "height": 900})
    page.goto(html.as_uri())
    page.wait_for_selector("html[data-ready]")
    table = page.locator("#table").bounding_box()
    with Image.open(tmp_path / "page.png") as picture:
        assert picture.mode == "P"
        assert picture.size == (1140, round(table["y"] + table["height"]) + script.MARGIN)
    assert (tmp_path / "page.png").stat().st_size < 200_000
    page.close()
