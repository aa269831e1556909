"""The examples and the tutorials run, offline, as a reader would run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "tiny_text")
TUTORIALS = [ROOT / "docs" / "tutorials" / f"{name}.md" for name in ("huggingface", "lightning", "pytorch")]


def run(script, folder):
    """What a script prints, in a folder of its own and without a network."""
    quiet = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "examples")}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, **quiet},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_has_learned_more_than_chance(example, tmp_path):
    perplexities = re.findall(r"validation perplexity ([\d.]+)", run(example, tmp_path))
    assert float(perplexities[-1]) < 10  # the vocabulary has more than a hundred tokens


@pytest.mark.slow
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_the_python_in_a_tutorial_runs(tutorial, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", tutorial.read_text(), re.MULTILINE | re.DOTALL)
    script = tmp_path / "tutorial.py"
    script.write_text("\n".join(blocks))
    run(script, tmp_path)


def test_an_example_that_trains_twice_claims_no_gain_of_the_second():
    printed = (ROOT / "examples" / "huggingface_causal.py").read_text()
    assert "after 100 plain steps" in printed
    assert "after 100 more" in printed
    assert "only runs of equal length show" in printed


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_that_takes_a_module_from_the_examples_first_says_where_to_start_python(tutorial):
    before, imported, _ = tutorial.read_text().partition("from tiny_text import")
    assert not imported or "start Python in `examples/`" in before


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_the_links_of_a_tutorial_lead_somewhere(tutorial):
    for target in re.findall(r"\]\(([^)\s]+)\)", tutorial.read_text()):
        assert "://" in target or (tutorial.parent / target).exists(), target
