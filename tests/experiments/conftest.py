"""A small text, and the files of runs that were made by themselves."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.experiments.small_runs import CPU, files

from nnrs.experiments import together
from nnrs.experiments.config import RunConfig
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
