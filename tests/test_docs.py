"""The documents hold: every method has a card, links lead somewhere, and the Python in the cards runs."""

import re
from pathlib import Path

import pytest

from nnrs.policies.methods import METHODS

ROOT = Path(__file__).parents[1]
CARDS = sorted((ROOT / "docs" / "methods").glob("*.md"))
README = ROOT / "README.md"
BESIDE = [
    ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "results/README.md")
]
PAGES = [*CARDS, README, *(ROOT / "docs").glob("*.md"), *BESIDE]
SECTIONS = ["How to use", "Suggested settings", "Details", "What to watch for", "Attribution"]


def test_every_method_has_a_card_and_a_line_in_the_index():
    assert {card.stem for card in CARDS} == {*METHODS, "README"}
    index = (ROOT / "docs" / "methods" / "README.md").read_text()
    assert [name for name in METHODS if f"]({name}.md)" not in index] == []


@pytest.mark.parametrize("name", METHODS)
def test_a_card_has_the_five_sections_in_order(name):
    text = (ROOT / "docs" / "methods" / f"{name}.md").read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert f"--method {name} " in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or f'<a id="{anchor}"></a>' in file.read_text(), f"{page.name} links to {target}"


def test_anchors_that_the_code_names_exist():
    paper = (ROOT / "docs" / "paper.md").read_text()
    for module in (ROOT / "src").rglob("*.py"):
        for anchor in re.findall(r"docs/paper\.md#([\w-]+)", module.read_text()):
            assert f'<a id="{anchor}"></a>' in paper, f"{module.name} names #{anchor}"


@pytest.mark.parametrize("card", [*CARDS, README], ids=lambda card: f"{card.parent.name}/{card.stem}")
def test_the_python_in_a_card_runs(card, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"^```python\n(.*?)^```", card.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(card), "exec"), {"__name__": "card"})
