"""Letting a model speak: free-running continuations of prefixes, and what it would say at each gold step."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.errors import ConfigError
from nnrs.evaluation.causal import CausalModel, Memory, device_of, read, rows_of
from nnrs.neighbors.probabilities import LEAST, MOST, is_temperature, pick
from nnrs.registry import look_up
from nnrs.seeding import Random, Stream

ROWS = 500  # continued at once: bounds memory, whatever the number of prefixes


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How the next token is chosen: drawn from the softmax, or the likeliest (temperature 0), or by beam search.

    A `width` of 2 or more keeps that many hypotheses; among those of different lengths (an `end_id` ends one) the
    best has the largest log-likelihood / length^length_penalty.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    width: int = 1
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        if self.temperature != 0.0 and not is_temperature(self.temperature):
            raise ConfigError(
                f"temperature must be in [{LEAST:g}, {MOST:g}], or 0 (greedy), got {self.temperature}."
            )
        if not 0.0 < self.top_p <= 1.0:
            raise ConfigError(f"top-p must be in (0, 1], got {self.top_p}.")
        if self.width < 1:
            raise ConfigError(f"beam width must be at least 1, got {self.width}.")

    def label(self) -> str:
        """As it stands in a score's signature.

        >>> Decoding(temperature=0.0).label(), Decoding(top_p=0.9).label(), Decoding(width=4).label()
        ('greedy', 'top-p0.9', 'beam4-penalty1')
        """
        if self.width > 1:
            return f"beam{self.width}-penalty{self.length_penalty:g}"
        if self.temperature == 0.0:
            return "greedy"
        name = "sample" if self.top_p == 1.0 else f"top-p{self.top_p:g}"
        return name if self.temperature == 1.0 else f"{name}-t{self.temperature:g}"

    def choose(
        self, logits: Float[Tensor, "batch vocab"], uniform: Float[Tensor, " batch"]
    ) -> Int[Tensor, " batch"]:
        """The next token of each row."""
        if self.temperature == 0.0:
            return logits.argmax(dim=-1)
        probabilities = F.softmax(logits / self.temperature, dim=-1)
        return pick(nucleus(probabilities, self.top_p) if self.top_p < 1.0 else probabilities, uniform)


DECODINGS = {
    "greedy": Decoding(temperature=0.0),
    "sample": Decoding(),
    "top-p": Decoding(top_p=0.9),
    "beam": Decoding(width=4),
}
NUMBERED = re.compile(r"(beam|top-p)(\d+|\d*\.\d+)")  # of their own


def decoding_of(name: str) -> Decoding:
    """One of DECODINGS, or one with a number of its own: a nucleus or a beam of another width.

    >>> decoding_of("beam8").width, decoding_of("top-p0.8").top_p
    (8, 0.8)
    """
    numbered = NUMBERED.fullmatch(name)
    if not numbered:
        return look_up(DECODINGS, name, "decoding")
    kind, number = numbered.groups()
    if kind == "top-p":
        return Decoding(top_p=float(number))
    if not number.isdecimal() or int(number) < 2:
        raise ConfigError(f"a beam has a whole width of at least 2, got '{name}'. A beam of 1 is greedy.")
    return Decoding(width=int(number))


def nucleus(probabilities: Float[Tensor, "batch vocab"], top_p: float) -> Float[Tensor, "batch vocab"]:
    """The smallest set of tokens that holds at least `top_p` of the mass, renormalised; the rest at 0.

    >>> nucleus(torch.tensor([[0.5, 0.2, 0.3]]), 0.7)
    tensor([[0.6250, 0.0000, 0.3750]])
    """
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(dim=-1) - ordered  # the mass of all that is likelier
    kept = ordered.masked_fill(before >= top_p, 0.0)
    return torch.zeros_like(probabilities).scatter(-1, order, kept / kept.sum(dim=-1, keepdim=True))


def generate(
    model: CausalModel,
    prefixes: Int[Tensor, "n prefix"],
    *,
    length: int,
    decoding: Decoding,
    seed: int = 0,
    end_id: int | None = None,
    place: int = 0,
    memory: Memory | None = None,
) -> Int[Tensor, "n length"]:
    """A continuation of `length` tokens for each prefix; after an `end_id`, nothing but `end_id`.

    A `memory` is what each row has read before its prefix: a source that is to be translated.

    What a row gets depends on its prefix, its place and the seed, not on how many rows are continued at once: of many
    prefixes some can be continued alone, `place` being that of their first.
    """
    if length < 1 or prefixes.shape[1] < 1:
        raise ConfigError(f"length and prefix must be at least 1, got {length} and {prefixes.shape[1]}.")
    device, made = device_of(model), []
    for first in range(0, len(prefixes), ROWS):
        block = prefixes[first : first + ROWS].long().to(device)
        read_before = memory and tuple(part[first : first + ROWS] for part in memory)
        if decoding.width > 1:
            made.append(_beam_search(model, block, length, decoding, end_id, read_before))
        else:
            places = slice(place + first, place + first + len(block))
            made.append(_sampled(model, block, length, decoding, seed, end_id, places, read_before))
    return torch.cat(made).to(prefixes.device) if made else prefixes.new_empty(0, length)


def draws(seed: int, step: int, rows: int, device: torch.device) -> Float[Tensor, " rows"]:
    """The random numbers that decide one step, one for each row; those of more rows begin with those of fewer."""
    return Random(seed, Stream.TEXT, step, device=device).uniform(rows)


def teacher_forced(
    model: CausalModel, prefixes: Int[Tensor, "n prefix"], gold: Int[Tensor, "n length"]
) -> Int[Tensor, "n length"]:
    """The likeliest token at each step of `gold` when everything before it is gold: the other way of predicting."""
    made = [logits.argmax(dim=-1) for logits, _ in after_gold(model, prefixes, gold)]
    return torch.cat(made).to(gold.device)


def after_gold(
    model: CausalModel, prefixes: Int[Tensor, "n prefix"], gold: Int[Tensor, "n length"]
) -> Iterator[tuple[Float[Tensor, "rows length vocab"], Int[Tensor, "rows length"]]]:
    """The logits of each step of `gold` after a gold history, and those rows of it; a few rows at a time."""
    rows, device = ROWS // 10, device_of(model)  # the logits of every position are needed
    whole = torch.cat([prefixes, gold[:, :-1]], dim=1).long()
    for block, wanted in zip(whole.split(rows), gold.split(rows), strict=True):
        logits, _ = read(model, block.to(device))
        yield logits[:, -gold.shape[1] :], wanted


def _sampled(
    model: CausalModel,
    prefixes: Tensor,
    length: int,
    decoding: Decoding,
    seed: int,
    end_id: int | None,
    places: slice,
    memory: Memory | None,
) -> Tensor:
    logits, memory = read(model, prefixes, memory, last=True)
    tokens: list[Tensor] = []
    for step in range(length):
        chosen = decoding.choose(logits[:, -1], draws(seed, step, places.stop, prefixes.device)[places])
        if end_id is not None and tokens:
            chosen = torch.where(tokens[-1] == end_id, end_id, chosen)
        tokens.append(chosen)
        if step + 1 < length:
            logits, memory = read(model, chosen.unsqueeze(1), memory, last=True)
    return torch.stack(tokens, dim=1)


def _beam_search(
    model: CausalModel,
    prefixes: Tensor,
    length: int,
    decoding: Decoding,
    end_id: int | None,
    memory: Memory | None = None,
) -> Tensor:
    rows = len(prefixes)
    logits, memory = read(model, prefixes, memory, last=True)
    scores = logits.new_zeros(rows, 1)  # of each hypothesis; there is one at first, the empty one
    sequences = prefixes.new_empty(rows, 1, 0)
    for step in range(length):
        beams = scores.shape[1]
        likelihoods = F.log_softmax(logits[:, -1], dim=-1).view(rows, beams, -1)
        if end_id is not None and step:
            likelihoods = _after_end(likelihoods, sequences[..., -1] == end_id, end_id)
        vocab = likelihoods.shape[-1]
        together = (scores.unsqueeze(-1) + likelihoods).flatten(1)
        scores, picked = together.topk(min(decoding.width, together.shape[1]), dim=1)
        parents, tokens = picked // vocab, picked % vocab
        before = sequences.gather(1, parents.unsqueeze(-1).expand(-1, -1, step))
        sequences = torch.cat([before, tokens.unsqueeze(-1)], dim=-1)
        if step + 1 < length:
            of_rows = torch.arange(rows, device=prefixes.device).unsqueeze(1) * beams + parents
            memory = rows_of(memory, of_rows.flatten())
            logits, memory = read(model, tokens.view(-1, 1), memory, last=True)
    best = _normalised(scores, sequences, decoding.length_penalty, end_id).argmax(dim=1)
    return sequences[torch.arange(rows, device=prefixes.device), best]


def _after_end(likelihoods: Tensor, ended: Tensor, end_id: int) -> Tensor:
    """A hypothesis that has ended goes on with its end alone, at no cost."""
    only_end = torch.full_like(likelihoods[0, 0], -torch.inf)
    only_end[end_id] = 0.0
    return torch.where(ended.unsqueeze(-1), only_end, likelihoods)


def _normalised(scores: Tensor, sequences: Tensor, penalty: float, end_id: int | None) -> Tensor:
    lengths = torch.full_like(scores, sequences.shape[-1])
    if end_id is not None:  # the end itself counts
        lengths = (
            ((sequences == end_id).cumsum(dim=-1) == 0).sum(dim=-1).add(1).clamp(max=sequences.shape[-1])
        )
    return scores / lengths.to(scores.dtype) ** penalty
