"""One of several processes that train together: `torchrun --nproc-per-node 2 worker.py OUT`.

Every rank reads the same rows, of which rank 1 sees a shorter part in all ways but one, and notes the ids that
reached its embeddings.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.integrations.tiny import VOCAB, embedded, gpt2, llama, table_of
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from nnrs.integrations.curriculum import curriculum

STEPS = 4
ROWS = torch.randint(1, VOCAB, (STEPS, 4, 12), generator=torch.Generator().manual_seed(2))


def sharded_once(model: nn.Module) -> nn.Module:
    """FSDP as it first was: a wrapper around the model and around each block."""
    policy = ModuleWrapPolicy({type(model.transformer.h[0])})
    return FullyShardedDataParallel(
        model, auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True
    )


def sharded_in_place(model: nn.Module) -> nn.Module:
    """FSDP as it is now."""
    for block in model.transformer.h:
        fully_shard(block)
    return fully_shard(model)


def head_apart(model: nn.Module) -> nn.Module:
    """The output layer gathered from all ranks each time it is used: all must use it equally often."""
    fully_shard(model.lm_head)
    return fully_shard(model)


DDP = nn.parallel.DistributedDataParallel
WAYS = {
    "ddp": (gpt2, DDP),
    "ddp again": (gpt2, DDP),
    "ddp alike": (gpt2, DDP, 0),
    "fsdp": (gpt2, sharded_once),
    "fsdp2": (gpt2, sharded_in_place),
    "llama ddp": (llama, DDP),
    "llama fsdp2": (llama, head_apart),
}


def train(
    make: Callable[[], nn.Module], wrap: Callable[[nn.Module], nn.Module], shorter: int = 3
) -> dict[str, list[Any]]:
    """The ids and the losses of a few steps along the curriculum."""
    model = make()
    table = table_of(model)
    wrapped = wrap(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    width = 12 - shorter * dist.get_rank()
    losses = []
    with (
        embedded(model) as seen,
        curriculum(wrapped, table, steps=STEPS, neighbor_rate=0.3, prediction_rate=0.3),
    ):
        for rows in ROWS:
            rows = rows[:, :width]
            loss = wrapped.train()(input_ids=rows, labels=rows).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return {"ids": [ids.tolist() for ids in seen], "losses": losses}


def main(out: Path) -> None:
    dist.init_process_group("gloo")
    found = {name: train(*way) for name, way in WAYS.items()} | {"rows": ROWS.tolist()}
    (out / f"rank-{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
