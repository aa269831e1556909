"""Small texts and runs of them: some to be copied and scored, some to be compared with, file by file."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.experiments.short_cells import REQUEST, cells_on
from tests.experiments.small_runs import CPU, files

from nnrs.experiments import together
from nnrs.experiments.config import RunConfig
from nnrs.experiments.grid import Board, open_grid
from nnrs.experiments.plan import Plan
from nnrs.experiments.run import start


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 lines in which every word is frequent enough for a vector."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = [" ".join(f"w{(start * 7 + step * step) % 30}" for step in range(8)) for start in range(60)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[RunConfig], dict[str, Any]]:
    """`alone(config)`: the files of a run that was made by itself in the plain loop, once for all tests."""

    @cache
    def make(config: RunConfig) -> dict[str, Any]:
        out = tmp_path_factory.mktemp("alone") / "run"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(together, "can_batch", lambda config, device: False)  # whatever the test has there
            assert start(config, out, CPU).finish() is not None
        return files(out)

    return make


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An nnrs and an mle run of one small text, and vectors for it in a file. Copied before they are touched."""
    folder = tmp_path_factory.mktemp("runs")
    words = [f"w{index}" for index in range(30)]
    lines = [" ".join(words[(7 * row + step * step) % 30] for step in range(12)) for row in range(800)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    rows = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)).tolist()
    vectors = (" ".join([word, *map(str, row)]) for word, row in zip(words, rows, strict=True))
    (folder / "words.vec").write_text("30 4\n" + "\n".join(vectors) + "\n")
    for method in ("nnrs", "mle"):
        settings = {
            "data": {"source": str(folder / "text.txt")},
            "policy": {"method": method},
            "model": {"preset": "tiny", "units": 8},
            "training": {"epochs": 2, "batch_size": 8, "bptt": 10},
        }
        start(RunConfig.from_dict(settings), folder / method, CPU).finish()
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """The nnrs run, to be scored."""
    shutil.copytree(trained / "nnrs", tmp_path / "nnrs")
    return tmp_path / "nnrs"


@pytest.fixture
def plain_run(trained: Path, tmp_path: Path) -> Path:
    """The mle run, to be scored."""
    shutil.copytree(trained / "mle", tmp_path / "mle")
    return tmp_path / "mle"


@pytest.fixture
def short_text(tmp_path: Path) -> Path:
    """12 lines of 9 words."""
    path = tmp_path / "text.txt"
    rows = [" ".join(f"w{(row * 3 + step * step) % 9}" for step in range(5)) for row in range(12)]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def board(short_text: Path, tmp_path: Path) -> Board:
    """A plan of two methods with three seeds."""
    cells = tuple(cells_on(short_text, seeds="1-3"))
    plan = Plan(kind="grid", title="t", command="c", cells=cells, request=REQUEST)
    return Board(*open_grid(plan, tmp_path / "grid"))
