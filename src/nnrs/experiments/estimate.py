"""What a run will take, from a few windows tried before its first epoch."""

import resource
import time
from dataclasses import dataclass

import torch

from nnrs.experiments.run import Run
from nnrs.policies.base import Rates
from nnrs.schedules import progress

SAMPLED = 1000  # of very many epochs, about so many are asked for their rates


@dataclass(frozen=True)
class Estimate:
    """Of what is left of a run."""

    seconds: float
    bytes: int


def estimate(run: Run) -> Estimate:
    """Time and memory of what is left of the run, from a few windows at no rate and at the highest."""
    parts, first = run.parts, run.trainer.live.position.epoch
    epochs = parts.config.training.epochs
    step = max(1, (epochs - first) // SAMPLED)
    rates = [parts.policy.rates(progress(epoch, epochs)) for epoch in range(first, epochs, step)]
    highest = max(rates, key=lambda rate: rate.prediction + rate.neighbor, default=Rates())
    plain, replacing = _seconds_per_window(run, Rates()), _seconds_per_window(run, highest)
    per_epoch = [plain if rate == Rates() else replacing for rate in rates]
    valid_share = len(parts.text.ids["valid"]) / len(parts.text.ids["train"])
    seconds = step * sum(per_epoch) * len(parts.windows) * (1 + valid_share / 3)  # validation is forward only
    adaptive = parts.config.optimizer.name == "adamw"
    moments = 8 * run.parameters if adaptive else 0  # made by the first step, so not yet in the peak
    return Estimate(seconds, _peak_bytes(run.device) + moments)


def _seconds_per_window(run: Run, rates: Rates) -> float:
    """Median of three tries; the gradient is thrown away and no parameter moves."""
    live, window = run.trainer.live, run.parts.windows[len(run.parts.windows) // 2]
    carry = live.carry
    seconds = []
    for _ in range(4):  # the first warms up
        live.carry = carry
        started = time.perf_counter()
        float(run.trainer.backward(window, rates).loss)
        seconds.append(time.perf_counter() - started)
    live.carry = carry
    live.optimizer.zero_grad(set_to_none=True)
    return sorted(seconds[1:])[1]


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # kilobytes on Linux
