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


@pytest.mark.parametrize("capability", [90, pytest.param(80, marks=pytest.mark.slow)])
def test_every_kernel_compiles_for_a_gpu_and_fits_its_shared_memory(capability, tmp_path):
    surroundings = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    surroundings |= {"TRITON_CACHE_DIR": str(tmp_path)}  # whatever an earlier run compiled proves nothing
    process = subprocess.run(
        [sys.executable, "-m", "tests.training.compiled_kernels", str(capability)],
        cwd=ROOT,
        env=surroundings,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    compiled = json.loads(process.stdout)
    assert compiled.keys() == launched_kernels()
    assert max(size for sizes in compiled.values() for size in sizes) <= LENT
