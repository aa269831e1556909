"""Shapes are checked while the tests run; the shared data is found once, or its tests skip."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

if find_spec("beartype"):  # a GPU machine may have come without it
    install_import_hook("nnrs", "beartype.beartype")

SHARED = Path(os.environ.get("NNRS_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))


if find_spec("hypothesis"):
    from hypothesis import settings

    # A busy machine is no failure; and what CI judges is the change, so it always tries the same examples.
    settings.register_profile("nnrs", deadline=None, derandomize=bool(os.environ.get("CI")))
    settings.load_profile("nnrs")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with PTB, WikiText-2 and the vectors, or a skip that says where it was looked for."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared data at {SHARED} (set NNRS_SHARED_DATA)")
    return SHARED


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither read nor write the user's table cache."""
    monkeypatch.setenv("NNRS_CACHE", str(tmp_path_factory.mktemp("cache")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """GPU tests skip, with a reason, on a machine without one."""
    import torch

    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
