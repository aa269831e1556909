"""The ladder of the library: a module imports from rungs above its own, never from one below."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "nnrs"
BESIDE = {
    "arguments",
    "errors",
    "registry",
    "seeding",
    "philox",
    "files",
    "checkpoints",
    "run_directory",
    "grid_directory",
    "wording",
}
LADDER = [
    "synthetic",
    "corpus",
    "parallel",
    "vocabulary",
    "batches",
    "pairs",
    "embeddings",
    "neighbors",
    "schedules",
    "temperature",
    "policies",
    "integrations",
    "models",
    "training",
    "metrics",
    "evaluation",
    "experiments",
    "report",
    "cli",
]
FORBIDDEN = {("models", "policies"), ("evaluation", "training")}  # neither needs to know the other exists


def imported_rungs(path: Path) -> set[str]:
    """The first name after `nnrs.` in every import of a file, lazy ones inside functions included."""
    rungs = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "nnrs":
            parts = node.module.split(".")
            rungs |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            rungs |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("nnrs.")}
    return {rung for rung in rungs if rung in LADDER or rung in BESIDE}


def rung_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def arrows_down(path: Path) -> list[str]:
    rung = rung_of(path)
    if rung in ("__init__", "__main__"):  # the front doors
        return []
    imported = imported_rungs(path) - {rung}
    if rung in BESIDE:
        return sorted(imported - BESIDE)
    assert rung in LADDER, f"{path.name} has no place on the ladder: add it to LADDER in {__file__}"
    below = LADDER[LADDER.index(rung) + 1 :]
    return sorted(name for name in imported if name in below or (rung, name) in FORBIDDEN)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_import_points_down_the_ladder(path):
    assert not arrows_down(path), (
        f"{path.relative_to(SOURCE)} imports {arrows_down(path)}, which stand below it"
    )


def test_an_arrow_that_points_down_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    (tmp_path / "models").mkdir()
    bad = tmp_path / "models" / "bad.py"
    bad.write_text(
        "def f():\n    from nnrs.policies.base import InputPolicy\n    import nnrs.training.loop\n"
    )
    assert arrows_down(bad) == ["policies", "training"]
    beside = tmp_path / "errors.py"
    beside.write_text("import nnrs.corpus\n")
    assert arrows_down(beside) == ["corpus"]
