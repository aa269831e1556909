"""Compile every kernel for a GPU that is not there: `python -m tests.training.compiled_kernels 90`, its capability.

Fleets as wide as a medium model train and score a few tokens, and a curriculum chooses inputs; each launch compiles,
with the types, sizes and alignments that it is given, and computes nothing. Prints the kernels by name as JSON, each
with the shared memory that its variants ask for, and the axes of its grid whose numbers they multiply in 32 bits.
"""

import json
import re
import sys
from collections import defaultdict
from dataclasses import replace

import torch
from tests.training.fleet_cases import Sizes, make_trainer, valid_windows
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from nnrs.batches import Windows
from nnrs.integrations import kernel
from nnrs.integrations.choice import Key
from nnrs.integrations.settings import Settings
from nnrs.neighbors.table import NeighborTable
from nnrs.policies.base import Rates
from nnrs.training.fleet import Fleet

WIDE = Sizes(vocab=600, units=640, batch=20, bptt=2, tokens=20 * 4)
RUNS = {"ss-nnrs": 1, "ss-nnrs exact": 2, "gru ss-nnrs": 2, "highway ss-nnrs": 2}
RUNS |= {"adamw ss-nnrs": 2, "weights dropped ss-nnrs": 2}


class AbsentGpu:
    """What Triton asks its driver for in order to compile."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def main(capability: int) -> None:
    driver.set_active(AbsentGpu(capability))
    shared: dict[str, set[int]] = defaultdict(set)
    narrow: dict[str, set[str]] = defaultdict(set)

    def launch(function, grid):
        def compile_only(*arguments, **options):
            compiled = function.warmup(*arguments, grid=grid, **options)
            name = f"{function.fn.__module__}.{function.fn.__name__}"
            shared[name].add(compiled.metadata.shared)
            narrow[name] |= narrow_axes(compiled.asm["ttir"])

        return compile_only

    JITFunction.__getitem__ = launch
    for name, runs in RUNS.items():
        for precision in ("bf16", "fp32"):
            train(name, runs, precision)
    for k in (None, 13):
        choose(k)
    print(json.dumps({name: [sorted(shared[name]), "".join(sorted(narrow[name]))] for name in shared}))


def narrow_axes(code: str) -> set[str]:
    """The axes whose program numbers are multiplied as they come, in 32 bits, and could run over."""
    axes = dict(re.findall(r"(%\w+) = tt\.get_program_id (\w)", code))
    factors = re.findall(r"= arith\.muli (%\w+), (%\w+)[^:\n]*: i32", code)
    return {axes[factor] for pair in factors for factor in pair if factor in axes}


def train(name, runs, precision):
    trainers = [make_trainer(name, sizes=WIDE, epochs=1) for _ in range(runs)]
    for trainer in trainers:  # which the plain loop refuses to do in bf16 on a CPU
        trainer.config = replace(trainer.config, precision=precision)
    fleet = Fleet(trainers, valid_windows())
    fleet.fit()
    text = torch.zeros(5, dtype=torch.int32)
    fleet.losses(Windows(text, batch_size=1, length=3, eos_id=0))


def choose(k):
    table = NeighborTable(torch.zeros(600, k, dtype=torch.int64), torch.zeros(600, k)) if k else None
    settings = Settings(
        neighbor_rate=0.5 if k else None, prediction_rate=0.5, rule="constant", temperature=0.5
    )
    gold = torch.zeros(8, 1024, dtype=torch.int64)
    counts = torch.zeros(3, dtype=torch.int64)
    policy = settings.policy(table)
    kernel.choose(
        policy, gold, torch.ones_like(gold, dtype=torch.bool), Rates(0.5, 0.5), Key(0, 0, 0), counts
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
