"""The benchmarks, which need a calm machine or a GPU and so run nowhere by themselves, still find what they call."""

import ast
import importlib
from pathlib import Path

import pytest
import torch

import nnrs

ROOT = Path(__file__).parents[1]
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda path: path.stem)
def test_what_a_benchmark_imports_from_us_is_there(benchmark, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))  # for the tests' made-up results
    imports = [
        node for node in ast.walk(ast.parse(benchmark.read_text())) if isinstance(node, ast.ImportFrom)
    ]
    ours = [node for node in imports if node.module.split(".")[0] in ("nnrs", "tests")]
    assert ours
    for node in ours:
        module = importlib.import_module(node.module)
        assert [name.name for name in node.names if not hasattr(module, name.name)] == [], node.module


def test_the_untrained_run_whose_evaluation_is_measured_can_be_loaded(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    (tmp_path / "text").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / "text" / f"{split}.txt").write_text("the cat sat on the mat\n" * 100)
    run = importlib.import_module("generation").untrained(tmp_path / "text", tmp_path / "run")
    loaded = nnrs.load(tmp_path / "run").model.state_dict()
    for name, tensor in run.parts.model.state_dict().items():
        torch.testing.assert_close(loaded[name], tensor, rtol=0, atol=0)
