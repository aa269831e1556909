"""The benchmarks, which need a calm machine or a GPU and so run nowhere by themselves, still find what they call."""

import ast
import importlib
from pathlib import Path

import pytest

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
