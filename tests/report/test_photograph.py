"""The picture of the page ends below the table of results, and is small."""

from PIL import Image
from results import photograph


def test_a_photograph_shows_the_page_down_to_the_end_of_its_table_in_at_most_256_colors(
    chromium, html, tmp_path
):
    photograph.photograph(chromium, html, tmp_path / "page.png")
    page = chromium.new_page(viewport={"width": photograph.WIDTH, "height": 900})
    page.goto(html.as_uri())
    page.wait_for_selector("html[data-ready]")
    table = page.locator("#table").bounding_box()
    with Image.open(tmp_path / "page.png") as picture:
        assert picture.mode == "P"
        assert picture.size == (1140, round(table["y"] + table["height"]) + photograph.MARGIN)
    assert (tmp_path / "page.png").stat().st_size < 200_000
    page.close()
