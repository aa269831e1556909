"""The site is built without a warning, and needs no network to be read."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "src", "examples", "benchmarks", "results", "tests")  # pages, and what they link to


def build(root, out):
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The text of every page by its path in the site."""
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT, out)
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr
    return {page.relative_to(out).as_posix(): page.read_text() for page in out.rglob("*.html")}


def test_nothing_is_fetched_from_elsewhere(site):
    for name, text in site.items():
        fetched = re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]+)"|<link[^>]* href="([^"]+)"', text)
        assert [one or other for one, other in fetched if "//" in one + other] == [], name


def test_links_to_code_lead_to_a_page_with_that_code(site):
    assert 'href="repository/src/nnrs/temperature.py.html"' in site["paper.html"]
    shown = re.sub(r"<[^>]+>", "", site["repository/src/nnrs/temperature.py.html"])
    assert "def anchored_step(temperature: float)" in shown
    assert 'href="../repository/src/nnrs/neighbors.html"' in site["methods/nnrs.html"]
    assert 'href="neighbors/table.py.html"' in site["repository/src/nnrs/neighbors.html"]


def test_the_readme_is_the_first_page_and_leads_to_the_others(site):
    assert all(
        f'href="{page}.html"' in site["index.html"] for page in ("paper", "methods/index", "CHANGELOG")
    )
    assert 'src="images/report-summary.png"' in site["index.html"]


def test_formulas_are_markup_that_browsers_read_by_themselves(site):
    blocks = (ROOT / "docs" / "paper.md").read_text().count("```math")
    assert site["paper.html"].count('display="block"') == blocks > 0
    prose = re.sub(r"<(pre|code|script)\b.*?</\1>", "", site["paper.html"], flags=re.DOTALL)
    assert "$" not in prose


def test_broken_links_and_a_page_outside_the_navigation_fail_the_build(tmp_path):
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (ROOT / "mkdocs.yml", ROOT / "CITATION.cff", *ROOT.glob("*.md")):
        shutil.copy(file, tmp_path)
    with (tmp_path / "docs" / "fleet.md").open("a") as file:
        file.write("\n[a page](nowhere.md) and [a place](paper.md#nowhere)\n")
    (tmp_path / "docs" / "orphan.md").write_text("# Alone\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    told = done.stderr[done.stderr.index("WARNING") :]
    assert all(name in told for name in ("nowhere.md", "#nowhere", "orphan.md"))
    assert "Aborted with 3 warnings" in done.stdout + done.stderr
