"""An invented language whose next-word probabilities, entropy and synonyms are known exactly."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.errors import ConfigError, DataError
from nnrs.seeding import Random, Stream

EOS = "<eos>"
END_RATE = 1 / 8  # chance that any word is the sentence's last, so sentences have 8 words on average
BRANCHES = 5  # concepts that may follow a concept, each half as likely as the one before
LANGUAGE_STEP = 0  # of Stream.TEXT: the language itself; sentences are drawn from later steps


@dataclass(frozen=True)
class SyntheticLanguage:
    """A Markov chain over concepts, each spoken by one of its synonyms whatever stands around it.

    Synonyms are perfectly exchangeable: the same words follow them, and the choice among them is independent
    of the context. Every sentence ends in `<eos>`, after which the next one begins afresh.

    >>> language = SyntheticLanguage(concepts=2, synonyms=2)
    >>> language.words, language.synonyms_of("c1a")
    (('<eos>', 'c0a', 'c0b', 'c1a', 'c1b'), ('c1b',))
    """

    concepts: int = 60
    synonyms: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.concepts < 1 or not 1 <= self.synonyms <= 26:
            raise ConfigError(
                f"a synthetic language needs at least 1 concept and 1 to 26 synonyms, "
                f"got {self.concepts} and {self.synonyms}."
            )

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Every word, `<eos>` first, then the synonyms of each concept from the most to the least used."""
        letters = "abcdefghijklmnopqrstuvwxyz"[: self.synonyms]
        width = len(str(self.concepts - 1))
        return (
            EOS,
            *(f"c{concept:0{width}}{letter}" for concept in range(self.concepts) for letter in letters),
        )

    @cached_property
    def concept_of(self) -> Int[Tensor, " vocab"]:
        """The concept of each word; 0 is that of `<eos>`."""
        concepts = torch.arange(1, self.concepts + 1).repeat_interleave(self.synonyms)
        return torch.cat([torch.zeros(1, dtype=torch.int64), concepts])

    @cached_property
    def concept_probabilities(self) -> Float[Tensor, "states states"]:
        """The next concept given the current one: rows sum to one, state 0 is `<eos>`.

        A sentence may open with any concept (Zipf), so every word is reached from every other.
        """
        ranks = torch.arange(1, self.concepts + 1, dtype=torch.float64)
        keys = Random(self.seed, Stream.TEXT, LANGUAGE_STEP).uniform(self.concepts, self.concepts)
        followers = 1 + keys.argsort(dim=1)[:, :BRANCHES]
        shares = 0.5 ** torch.arange(followers.shape[1], dtype=torch.float64)
        chain = torch.zeros(self.concepts + 1, self.concepts + 1, dtype=torch.float64)
        chain[0, 1:] = _normalised(1 / ranks)
        chain[1:, 0] = END_RATE
        chain[1:].scatter_(1, followers, ((1 - END_RATE) * _normalised(shares)).expand(followers.shape))
        return chain

    @cached_property
    def transition_probabilities(self) -> Float[Tensor, "vocab vocab"]:
        """The next word given the current word, in the order of `words`; rows sum to one."""
        usage = _normalised(1 / torch.arange(1, self.synonyms + 1, dtype=torch.float64))
        spoken = torch.cat([torch.ones(1, dtype=torch.float64), usage.repeat(self.concepts)])
        return self.concept_probabilities[self.concept_of][:, self.concept_of] * spoken

    @cached_property
    def stationary(self) -> Float[Tensor, " vocab"]:
        """How often each word is used in the long run: π with π = πT, whose entries sum to one."""
        size = len(self.words)
        system = self.transition_probabilities.T - torch.eye(size, dtype=torch.float64)
        system[0] = 1.0  # one of the equations follows from the others; the sum takes its place
        right = torch.zeros(size, dtype=torch.float64)
        right[0] = 1.0
        stationary: Tensor = torch.linalg.solve(system, right)
        return stationary

    def entropy_rate(self) -> float:
        """Nats per token, `<eos>` counted: the mean loss of a model that knows the language exactly."""
        return float(self.stationary @ torch.special.entr(self.transition_probabilities).sum(dim=1))

    def logits(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape vocab"]:
        """The log-probabilities of the next word after each word, ids being places in `words`: the perfect model."""
        return self.transition_probabilities.log()[ids]

    def synonyms_of(self, word: str) -> tuple[str, ...]:
        """The other words for the same concept, the most used first; none for `<eos>`."""
        if word not in self.words:
            raise DataError(
                f"'{word}' is not a word of this synthetic language ({self.words[1]} ... {self.words[-1]})."
            )
        concept = self.concept_of[self.words.index(word)]
        return tuple(
            w for w, c in zip(self.words, self.concept_of, strict=True) if c == concept and w != word
        )

    def vectors(self, dim: int) -> Float[Tensor, "vocab dim"]:
        """Word vectors in which the nearest neighbors of a word are its synonyms; zero for `<eos>`.

        Unit concepts at least d apart, moved by at most d/10: as unit vectors synonyms are then within 0.4 d
        of each other and other words at least 0.6 d away.
        """
        if dim < 2:
            raise ConfigError(f"synthetic vectors need at least 2 dimensions to tell words apart, got {dim}.")
        random = Random(self.seed, Stream.TEXT, LANGUAGE_STEP, rank=1)  # rank 0 made the chain
        centers = _directions(random, self.concepts, dim)
        apart = F.pdist(centers)
        reach = apart.min() / 10 if len(apart) else 0.1
        shifts = reach * _directions(random, self.concepts * self.synonyms, dim)
        spoken = centers.repeat_interleave(self.synonyms, dim=0) + shifts
        return torch.cat([torch.zeros(1, dim, dtype=torch.float64), F.normalize(spoken)]).float()

    def sentences(self, count: int, random: Random) -> Iterator[list[str]]:
        """`count` sentences without their `<eos>`, drawn one by one; use steps of Stream.TEXT above 0."""
        totals = self.transition_probabilities.cumsum(dim=1)
        rows = (totals / totals[:, -1:]).tolist()  # ends in exactly 1, so that no draw falls beyond it
        draws = _stream(random)
        for _ in range(count):
            sentence: list[str] = []
            word = bisect_right(rows[0], next(draws))
            while word != 0:
                sentence.append(self.words[word])
                word = bisect_right(rows[word], next(draws))
            yield sentence


def _normalised(weights: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    return weights / weights.sum()


def _directions(random: Random, count: int, dim: int) -> Float[Tensor, "count dim"]:
    points = random.uniform(count, dim).double() - 0.5
    return F.normalize(points)


def _stream(random: Random) -> Iterator[float]:
    while True:
        yield from random.uniform(4096).tolist()  # one call for each number would be a hundred times slower
