"""Exposure bias itself: how a model fares on its own history, step by step.

The model continues each prefix on its own. At every step the gold token of that step is scored under that history,
and beside it under the gold one. A model that ignores its history would look good here, so the curves never stand
alone: see repetition, recovery and the accumulated error.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nnrs.errors import ConfigError
from nnrs.evaluation.causal import CausalModel, device_of, evaluating, read
from nnrs.evaluation.generate import ROWS, Decoding, after_gold, draws
from nnrs.metrics.significance import bootstrap_interval
from nnrs.wording import counted

SMALLEST_ERROR = 1e-9  # nats per token: below, a model has no error that could accumulate


@dataclass(frozen=True, eq=False)
class Exposure:
    """What `evaluate` saw, a row for each prefix and a column for each step h = 1, 2, ...

    Where a recovery was asked for, its columns are the last: gold tokens follow the own history there.
    """

    own_nats: Float[Tensor, "n steps"]  # of the gold token, given the model's own history
    gold_nats: Float[Tensor, "n steps"]  # of the same token, given the gold history
    own_hits: Bool[Tensor, "n steps"]  # whether the likeliest token is the gold one
    gold_hits: Bool[Tensor, "n steps"]
    generated: Int[Tensor, "n length"]

    def curve(self) -> dict[str, list[float]]:
        """Means over the prefixes at each step, and the interval of the difference between the two losses."""
        excess = self.own_nats - self.gold_nats
        low, high = bootstrap_interval(excess)
        return {
            "own_nats": self.own_nats.mean(0).tolist(),
            "gold_nats": self.gold_nats.mean(0).tolist(),
            "excess_nats": excess.mean(0).tolist(),
            "excess_low": low.tolist(),
            "excess_high": high.tolist(),
            "own_accuracy": self.own_hits.double().mean(0).tolist(),
            "gold_accuracy": self.gold_hits.double().mean(0).tolist(),
        }


def evaluate(
    model: CausalModel,
    prefixes: Int[Tensor, "n prefix"],
    continuations: Int[Tensor, "gold steps"],
    *,
    decoding: Decoding | None = None,
    recovery: int = 0,
    seed: int = 0,
) -> Exposure:
    """Let a model continue the prefixes, and score the gold continuations along the way.

    For all but the last `recovery` steps the history grows by the model's own tokens, then by gold ones. `model` is
    one of ours or anything that makes logits (batch, time, vocab) of ids, such as a Hugging Face model as it is. A
    module is measured in eval mode, and left in the mode that it was in.
    """
    decoding = decoding or Decoding()
    steps = continuations.shape[1]
    _check_prefixes(prefixes)
    if len(prefixes) != len(continuations):
        raise ConfigError(
            f"each prefix needs a continuation, got {len(prefixes)} and {len(continuations)} of them."
        )
    if decoding.width > 1:
        raise ConfigError("beam search looks ahead: exposure needs greedy or sampled decoding.")
    if not 0 <= recovery < steps:
        raise ConfigError(f"recovery must be below the {counted(steps, 'step')}, got {recovery}.")
    device, parts = device_of(model), []
    with evaluating(model):
        for first in range(0, len(prefixes), ROWS):
            places = slice(first, first + ROWS)
            block, gold = prefixes[places].long().to(device), continuations[places].long().to(device)
            uniform = [draws(seed, step, len(prefixes), device)[places] for step in range(steps - recovery)]
            own = _follow(model, block, gold, decoding, uniform)
            nats, hits = _teacher_forced(model, block, gold)
            parts.append((own[0], nats, own[1], hits, own[2]))
    columns = [torch.cat(part).cpu() for part in zip(*parts, strict=True)]
    return Exposure(columns[0], columns[1], columns[2], columns[3], columns[4])


def _check_prefixes(prefixes: Tensor) -> None:
    if prefixes.ndim != 2 or not prefixes.numel():
        raise ConfigError(
            f"prefixes must be ids (n, prefix), at least one of each, got {tuple(prefixes.shape)}. "
            "To begin with nothing, begin with the id that ends a sentence."
        )


def _follow(
    model: CausalModel, prefixes: Tensor, gold: Tensor, decoding: Decoding, uniform: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses and hits of the gold tokens along the model's own path, and that path."""
    logits, memory = read(model, prefixes, last=True)
    nats, hits, path = [], [], []
    for step in range(gold.shape[1]):
        scores = logits[:, -1]
        nats.append(F.cross_entropy(scores.double(), gold[:, step], reduction="none"))
        hits.append(scores.argmax(dim=-1) == gold[:, step])
        on_its_own = step < len(uniform)
        token = decoding.choose(scores, uniform[step]) if on_its_own else gold[:, step]
        if on_its_own:
            path.append(token)
        if step + 1 < gold.shape[1]:
            logits, memory = read(model, token.unsqueeze(1), memory, last=True)
    return torch.stack(nats, dim=1), torch.stack(hits, dim=1), torch.stack(path, dim=1)


def _teacher_forced(model: CausalModel, prefixes: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    nats, hits = [], []
    for logits, wanted in after_gold(model, prefixes, gold):
        nats.append(F.cross_entropy(logits.double().transpose(1, 2), wanted, reduction="none"))
        hits.append(logits.argmax(dim=-1) == wanted)
    return torch.cat(nats), torch.cat(hits)


@dataclass(frozen=True, eq=False)
class AccumulatedError:
    """Regrets of a model against an oracle (Arora et al. 2022), in nats: a row for each prefix, a column a step.

    A regret is the divergence KL(oracle ‖ model) of the next token, exact over the vocabulary, at a history that the
    model or the oracle has written.
    """

    own: Float[Tensor, "n steps"]  # at the model's histories
    oracle: Float[Tensor, "n steps"]  # at the oracle's histories: the error without exposure

    def excess_percent(self) -> Float[Tensor, " steps"]:
        """%ExAccErr after l = 1, 2, ... steps: what has accumulated beyond l times the regret without exposure."""
        both = torch.cat([self.own, self.oracle], dim=1)
        return _excess(both.mean(0))

    def interval(self) -> tuple[Float[Tensor, " steps"], Float[Tensor, " steps"]]:
        """The ends of its bootstrap interval over prefixes."""
        return bootstrap_interval(torch.cat([self.own, self.oracle], dim=1), _excess)


def _excess(means: Float[Tensor, "*shape both"]) -> Float[Tensor, "*shape steps"]:
    own, oracle = means.chunk(2, dim=-1)
    accumulated, expected = own.cumsum(dim=-1), oracle.cumsum(dim=-1)
    steps = torch.arange(1, own.shape[-1] + 1, dtype=means.dtype)
    flawless = expected < SMALLEST_ERROR * steps
    return torch.where(flawless, 0.0, 100.0 * (accumulated / expected.clamp(min=1e-300) - 1.0))


def accumulated_error(
    model: CausalModel,
    oracle: CausalModel,
    prefixes: Int[Tensor, "n prefix"],
    *,
    length: int,
    decoding: Decoding | None = None,
    seed: int = 0,
) -> AccumulatedError:
    """The regret of `model` against `oracle` along what each of them writes, the oracle by drawing.

    They share their random numbers. On the synthetic language the oracle is the language itself; on text it is a
    model to be named beside the number. Modules are measured in eval mode, and left in the mode that they were in.
    """
    decoding = decoding or Decoding()
    _check_prefixes(prefixes)
    if length < 1:
        raise ConfigError(f"length must be at least 1, got {length}.")
    if decoding.width > 1:
        raise ConfigError("beam search looks ahead: accumulated errors need greedy or sampled decoding.")
    own, by_oracle = [], []
    with evaluating(model, oracle):
        for first in range(0, len(prefixes), ROWS):
            block = prefixes[first : first + ROWS].long().to(device_of(model))
            places = slice(first, first + len(block))
            uniform = [draws(seed, step, places.stop, block.device)[places] for step in range(length)]
            own.append(_regrets(model, oracle, block, uniform, decoding).cpu())
            by_oracle.append(_regrets(model, oracle, block, uniform, None).cpu())
    return AccumulatedError(torch.cat(own), torch.cat(by_oracle))


def _regrets(
    model: CausalModel,
    oracle: CausalModel,
    prefixes: Tensor,
    uniform: list[Tensor],
    decoding: Decoding | None,
) -> Float[Tensor, "n steps"]:
    """The regret at each step of what the model writes; of what the oracle writes, where there is no decoding."""
    here, there = prefixes.device, device_of(oracle)
    logits, memory = read(model, prefixes, last=True)
    true_logits, true_memory = read(oracle, prefixes.to(there), last=True)
    regrets = []
    for step, draw in enumerate(uniform):
        ours, truth = (F.log_softmax(part[:, -1].to(here).double(), dim=-1) for part in (logits, true_logits))
        regrets.append((truth.exp() * (truth - ours).masked_fill(truth == -torch.inf, 0.0)).sum(dim=-1))
        if step + 1 < len(uniform):
            speaker = (truth, Decoding()) if decoding is None else (ours, decoding)
            token = speaker[1].choose(speaker[0], draw.double()).unsqueeze(1)
            logits, memory = read(model, token, memory, last=True)
            true_logits, true_memory = read(oracle, token.to(there), true_memory, last=True)
    return torch.stack(regrets, dim=1)
