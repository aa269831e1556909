"""The documents hold: every method has a card, links lead somewhere, options exist, and the Python runs."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

import nnrs
from nnrs.cli.main import app
from nnrs.corpus import FAMILIES, SPLITS
from nnrs.experiments.config import DataConfig
from nnrs.experiments.text import Text
from nnrs.policies.methods import METHODS

ROOT = Path(__file__).parents[1]
CARDS = sorted((ROOT / "docs" / "methods").glob("*.md"))
README = ROOT / "README.md"
GRIDS = ROOT / "docs" / "grids.md"
BESIDE = [
    ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "results/README.md")
]
PAGES = [*CARDS, README, *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "studies").glob("*.md"), *BESIDE]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
GUIDES = [*TUTORIALS, *(page for page in PAGES if page.stem != "CHANGELOG")]  # which may name what is gone
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
TORCHRUN = {"--standalone", "--nproc-per-node", "--max-restarts", "--rdzv-id"}
OF_OTHERS = TORCHRUN | {"--head", "--address", "--check", "--strict"}  # these are Ray's, ruff's and mypy's
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


def test_pages_that_the_code_names_exist():
    named = {
        page
        for module in (ROOT / "src").rglob("*.py")
        for page in re.findall(r"docs/[\w/-]+\.md", module.read_text())
    }
    assert "docs/data.md" in named
    assert [page for page in named if not (ROOT / page).exists()] == []


def test_every_file_that_a_text_may_have_is_in_the_page_on_data():
    page = (ROOT / "docs" / "data.md").read_text()
    names = [f"`{family.format(split)}`" for family in FAMILIES for split in SPLITS]
    assert [name for name in names if name not in page] == []


@pytest.mark.data
@pytest.mark.parametrize("name", ["ptb", "wikitext-2"])
def test_the_sizes_in_the_page_on_data_are_those_that_are_printed(shared_data, name):
    size = Text.read(DataConfig(source=str(shared_data / name))).size
    assert f"\ntext: {size}\n" in (ROOT / "docs" / "data.md").read_text()


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_installs_from_the_clone_that_it_is_read_in(page):
    assert re.findall(r"pip install '?nnrs\b", page.read_text()) == []  # no index has it


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """Those of each command, and of none: `nnrs --debug`."""
    program = get_command(app)
    commands = {"": program, **program.commands}
    return {
        name: {"--help"}.union(*(given.opts + given.secondary_opts for given in command.params))
        for name, command in commands.items()
    }


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_options_that_a_page_names_exist_and_are_those_of_the_command_before_them(page, options):
    text = page.read_text().replace("\\\n", " ")
    assert set(OPTION.findall(text)) - OF_OTHERS.union(*options.values()) == set()
    for command, rest in re.findall(r"\bnnrs ([a-z]+)\b([^`\n#;]*)", text):
        assert set(OPTION.findall(rest)) <= options.get(command, set()), f"{page.name}: nnrs {command}{rest}"


@pytest.mark.parametrize("card", [*CARDS, README, GRIDS], ids=lambda card: f"{card.parent.name}/{card.stem}")
def test_the_python_in_a_card_runs(card, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"^```python\n(.*?)^```", card.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(card), "exec"), {"__name__": "card"})


@pytest.mark.parametrize(("steps", "last"), [(1, 0.0), (5, 0.2)])
def test_the_curriculum_of_the_readme_runs_for_any_number_of_steps(steps, last):
    [schedule] = re.findall(r"^schedule = (nnrs\.Schedule\(.*\))  #", README.read_text(), re.MULTILINE)
    [rate] = re.findall(r"^    rate=(schedule\(.*\)),$", README.read_text(), re.MULTILINE)
    known = {"schedule": eval(schedule, {"nnrs": nnrs}), "steps": steps}
    rates = [eval(rate, {**known, "step": step}) for step in range(steps)]
    assert (rates[0], rates[-1]) == (0.0, last)
