"""Shapes are checked while the tests run; the shared data is found once, or its tests skip."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

SOURCE = Path(__file__).parents[1] / "src"
# Triton must see their functions as they are written.
KERNELS = ("nnrs.philox", "nnrs.neighbors.kernel", "nnrs.integrations.kernel", "nnrs.training.kernels")

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # looked at when the kernels are imported

collect_ignore = [] if find_spec("triton") else ["test_philox.py"]


# Half a minute and more each: begun first, so that processes which share the files end together.
LONGEST = (
    "training/test_fleet.py",
    "integrations/test_compile.py",
    "cli/test_grid_killed.py",
    "cli/test_grid.py",
    "cli/test_resume.py",
    "cli/test_torchrun.py",
    "training/test_loop.py",
    "report/test_browser_plots.py",
    "cli/test_commands.py",
    "experiments/test_together_fleets.py",
    "cli/test_compare.py",
    "experiments/test_work.py",
)


def checked_modules() -> list[str]:
    """The modules whose shapes are checked: all but those with kernels, and the packages around them."""
    paths = [path.relative_to(SOURCE).with_suffix("") for path in SOURCE.rglob("*.py")]
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    apart = [f"{kernel}." for kernel in KERNELS]
    return sorted(
        name
        for name in names
        if not any(kernel.startswith(f"{name}.") or f"{name}.".startswith(kernel) for kernel in apart)
    )


if find_spec("beartype"):  # a GPU machine may have come without it
    install_import_hook(checked_modules(), "beartype.beartype")

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


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Where Triton's kernels run: on the CPU in its interpreter, which is off where there is a GPU."""
    if request.param == "cpu" and torch.cuda.is_available():
        pytest.skip("with a GPU the kernels are compiled for it")
    return str(request.param)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first; GPU tests skip, with a reason, on a machine without one."""
    rank = {str(Path(__file__).parent / name): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(str(item.path), len(rank)))
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
