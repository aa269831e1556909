"""`torchrun --nproc-per-node N -m nnrs train ...`: N processes that train one run."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from nnrs.cli.interrupt import hear_nothing_more
from nnrs.errors import ConfigError, NnrsError, RunError

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import Store

    from nnrs.training.group import Group

TURN = 60  # seconds in which the first process of a machine has long said what there is to say


def processes() -> int:
    """How many torchrun has started; 1 without it."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def refuse_several(what: str) -> None:
    """Refuse what is not for several processes; on each machine the first of them says so."""
    if processes() == 1:
        return
    if os.environ["LOCAL_RANK"] != "0":
        time.sleep(TURN)  # until torchrun ends it: were it the first to end, torchrun would silence the other
        raise typer.Exit(2)
    raise ConfigError(f"{what} does not go with torchrun, which is for one run of nnrs train. Leave it out.")


@contextmanager
def joined(device: str) -> "Iterator[tuple[Group, torch.device]]":
    """The processes of this run, which may be this one alone, and where this one trains.

    Of the errors that several meet, the first is told: the others are the same, or follow from it.
    """
    from nnrs.experiments.prepare import choose_device
    from nnrs.training.group import ALONE, PATIENCE, Processes

    if processes() == 1:
        yield ALONE, choose_device(device)
        return
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    with _meeting():
        shared, rank, size = next(rendezvous("env://", timeout=PATIENCE))
    # torchrun's store outlives the processes: those that it starts anew must not look for the dead.
    store = PrefixStore(f"life-{os.environ['TORCHELASTIC_RESTART_COUNT']}", shared)
    try:
        place = _own_device(device)
        backend = "gloo" if place.type == "cpu" else "cpu:gloo,cuda:nccl"
        with _meeting():
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
        yield Processes(), place
    except NnrsError:
        hear_nothing_more()  # torchrun ends this process soon after one that has nothing to tell
        if _is_told(store):
            raise typer.Exit(2) from None
        raise
    dist.destroy_process_group()


def _is_told(store: "Store") -> bool:
    """Whether another process has an error to tell; not where torchrun is gone, whose store knows it."""
    try:
        return store.add("errors", 1) > 1
    except RuntimeError:
        return False


@contextmanager
def _meeting() -> "Iterator[None]":
    """Say in one line that the processes did not find each other."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RunError(
            f"process {os.environ['RANK']} of this run did not find the others ({reason}). See that all of them can "
            "reach torchrun's endpoint and each other, and start them again."
        ) from error


def _own_device(name: str) -> "torch.device":
    """The device called `name`; of several GPUs the one of this process."""
    from nnrs.experiments.prepare import choose_device

    chosen = choose_device(name)
    if chosen.type == "cpu":
        return chosen
    if name not in ("auto", "cuda"):
        raise ConfigError(f"--device {name} is one GPU for several processes. Say cuda: each takes its own.")
    return choose_device(f"cuda:{os.environ['LOCAL_RANK']}")
