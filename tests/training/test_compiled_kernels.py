"""No GPU is here, but its compiler is: every kernel that is launched anywhere compiles for one."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
LENT = (
    99 * 1024
)  # bytes of shared memory that a program may have on the smallest GPUs with bfloat16 (8.6, 8.9)


def launched_kernels() -> set[str]:
    """Every function of the library that some line launches: `_name[grid](...)`."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        jitted = {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.decorator_list
        }
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Subscript) and isinstance(call.func.value, ast.Name):
                found |= {f"{module}.{name}" for name in {call.func.value.id} & jitted}
    return found


@pytest.fixture(scope="module", params=[90, pytest.param(80, marks=pytest.mark.slow)])
def compiled(request, tmp_path_factory):
    """Every kernel by name, with the shared memory and the narrow axes of its variants."""
    surroundings = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    cache = tmp_path_factory.mktemp("cache")  # whatever an earlier run compiled proves nothing
    surroundings |= {"TRITON_CACHE_DIR": str(cache)}
    process = subprocess.run(
        [sys.executable, "-m", "tests.training.compiled_kernels", str(request.param)],
        cwd=ROOT,
        env=surroundings,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_every_kernel_compiles_for_a_gpu_and_fits_its_shared_memory(compiled):
    assert compiled.keys() == launched_kernels()
    assert max(size for sizes, _ in compiled.values() for size in sizes) <= LENT


def test_what_runs_and_wide_rows_are_counted_by_is_multiplied_in_64_bits(compiled):
    """The runs of a fleet may have more than 2^31 parameters or logits; the tiles and rows of one have not."""
    narrow = {name.removeprefix("nnrs."): axes for name, (_, axes) in compiled.items() if axes}
    kinds = [f"training.kernels.{kind}._{kind}" for kind in ("lstm", "gru", "highway")]
    tiles = {f"{kind}_{way}": "xz" for kind in kinds for way in ("forward", "backward")}
    rows = ("training.kernels.rows._rows", "training.kernels.choice._choose", "integrations.kernel._choose")
    assert narrow == {**tiles, **dict.fromkeys(rows, "x")}
