"""The pictures of the page show the parts that they are named for, and are small."""

import pytest
from PIL import Image
from results import photograph


@pytest.mark.parametrize("name", photograph.PICTURES)
def test_a_photograph_shows_the_page_from_one_part_to_the_end_of_another_in_at_most_256_colors(
    name, chromium, html, tmp_path
):
    photograph.photograph(chromium, html, tmp_path / name)
    first, last, scheme = photograph.PICTURES[name]
    page = chromium.new_page(viewport={"width": 1140, "height": 900}, color_scheme=scheme)
    page.goto(html.as_uri())
    page.wait_for_selector("html[data-ready]")
    page.set_viewport_size({"width": 1140, "height": 20_000})
    page.wait_for_function(photograph.DRAWN)
    assert first == "body" or page.locator(f"{first} .plot svg").count() > 0
    top, bottom = page.locator(first).bounding_box()["y"], page.locator(last).bounding_box()
    with Image.open(tmp_path / name) as picture:
        assert picture.mode == "P"
        assert picture.size == (1140, pytest.approx(bottom["y"] + bottom["height"] - top + 16, abs=1))
        dark = sum(picture.convert("RGB").getpixel((2, 2))) < 3 * 128
    assert dark == (scheme == "dark")
    assert (tmp_path / name).stat().st_size < 200_000
    page.close()


def test_the_pictures_are_those_of_the_readme():
    readme = (photograph.IMAGES.parents[1] / "README.md").read_text(encoding="utf-8")
    assert [name for name in photograph.PICTURES if f"(docs/images/{name})" not in readme] == []
