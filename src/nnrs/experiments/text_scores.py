"""Scores of text as it stands, whoever generated it: BLEU and WMD to gold text, self-BLEU and self-WMD."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nnrs import __version__
from nnrs.corpus import read_tokens
from nnrs.embeddings import read_vectors
from nnrs.errors import ConfigError, DataError
from nnrs.metrics.bleu import ORDERS, Overlap, corpus_bleu, overlap, pooled_bleu, self_bleu, sentence_bleu
from nnrs.metrics.score import Score
from nnrs.metrics.significance import bootstrap_interval
from nnrs.metrics.wmd import BagsOfWords, WordVectors, self_wmd, summarize, wmd
from nnrs.wording import counted

BATCH = 20  # consecutive sentences that self-BLEU and self-WMD compare with each other

Sentences = list[list[str]]
Interval = tuple[float, float]


class TooLittleTextError(DataError):
    """Text of which a metric can say nothing: too few sentences, or none with words that it knows."""


@dataclass(frozen=True, eq=False)
class WordSpace:
    """Words that have an id, and the vectors of these ids."""

    ids: Mapping[str, int]
    vectors: WordVectors
    name: str

    def bags(self, sentences: Iterable[Sequence[str]]) -> BagsOfWords:
        """The sentences made ready for WMD."""
        return self.vectors.bags([[self.ids[word] for word in sentence] for sentence in sentences])


@dataclass(frozen=True, eq=False)
class Texts:
    """Generated sentences, the gold ones they are compared with, and how their scores are signed."""

    generated: Sentences
    sign: Callable[[int, Sequence[str]], str]  # the number of sentences and a metric's own parts
    gold: Sentences | None = None
    space: Callable[[], WordSpace] | None = None  # called by what needs it

    def references(self, metric: str) -> Sentences:
        """The gold sentences."""
        if self.gold is None:
            raise ConfigError(
                f"{metric} compares with gold text: add --references, or ask for self-bleu alone."
            )
        return self.gold

    def words(self, metric: str) -> WordSpace:
        """The space in which words have distances."""
        if self.space is None:
            raise ConfigError(f"{metric} needs word vectors. Name some with --vectors.")
        return self.space()


def bleu_scores(texts: Texts) -> Iterator[Score]:
    """BLEU-4 in percent: the mean over sentences, and of all sentences together."""
    generated, gold = texts.generated, [[sentence] for sentence in texts.references("bleu")]
    count = len(generated)
    values = torch.from_numpy(100.0 * sentence_bleu(generated, gold))
    signature = texts.sign(count, ["smooth:1"])
    yield Score("bleu4", float(values.mean()), signature, interval(values[:, None]))
    together = 100.0 * corpus_bleu(generated, gold)
    ends = corpus_interval(generated, texts.references("bleu"), lambda pooled: 100.0 * pooled_bleu(pooled))
    yield Score("corpus-bleu4", together, texts.sign(count, ["smooth:floor0.1"]), ends)


def self_bleu_scores(texts: Texts) -> Iterator[Score]:
    """BLEU-4 in percent of each sentence with the others of its minibatch as references."""
    sentences, size = _minibatches(texts.generated, "self-bleu")
    values = torch.from_numpy(100.0 * self_bleu(sentences, np.arange(len(sentences)) // size))
    signature = texts.sign(len(sentences), ["smooth:1", f"within:batch{size}"])
    yield Score(
        "self-bleu4", float(values.mean()), signature, interval(values.view(-1, size).mean(1)[:, None])
    )


def wmd_scores(texts: Texts) -> Iterator[Score]:
    """The mean distance to the gold text, s = 1 − WMD and (1 + s)/2, over pairs that have words with vectors."""
    space = texts.words("wmd")
    distances = wmd(space.bags(texts.generated), space.bags(texts.references("wmd")))
    summary = summarize(distances)
    if not summary.compared:
        raise _incomparable(space)
    signature = texts.sign(summary.compared, [f"wmd-vectors:{space.name}"])
    ends = interval(torch.from_numpy(distances[~np.isnan(distances)])[:, None])
    low, high = ends or (None, None)
    similar = None if low is None or high is None else (1.0 - high, 1.0 - low)
    scaled = None if similar is None else ((1.0 + similar[0]) / 2, (1.0 + similar[1]) / 2)
    yield Score("wmd", summary.distance, signature, ends)
    yield Score("wmd-similarity", summary.similarity, signature, similar)
    yield Score("wmd-scaled", summary.scaled_similarity, signature, scaled)


def wmd_along(space: WordSpace, generated: Sentences, gold: Sentences) -> dict[str, list[float | None]]:
    """The mean distance of the first 1, 2, ... words of each sentence to as many gold ones, with its interval.

    A pair counts from the step on where both have a word with a vector. Nothing is known where no pair counts.
    """
    steps = max(map(len, gold))
    columns = [
        wmd(space.bags(line[:h] for line in generated), space.bags(line[:h] for line in gold))
        for h in range(1, steps + 1)
    ]
    distances = torch.from_numpy(np.stack(columns, axis=1))
    known = ~distances.isnan()
    if not known[:, -1].any():
        raise _incomparable(space)
    both = torch.cat([distances.nan_to_num(0.0), known.double()], dim=1)
    low, high = bootstrap_interval(both, lambda means: means[..., :steps] / means[..., steps:])
    nothing = torch.full_like(low, torch.nan)
    rows = (distances.nanmean(dim=0), *((low, high) if len(gold) > 1 else (nothing, nothing)))
    named = zip(("wmd", "wmd_low", "wmd_high"), rows, strict=True)
    curve = {name: [None if math.isnan(v) else v for v in row.tolist()] for name, row in named}
    return {**curve, "compared": known.double().sum(0).tolist()}


def self_wmd_scores(texts: Texts) -> Iterator[Score]:
    """The mean distance of each sentence to the others of its minibatch."""
    space = texts.words("self-wmd")
    sentences, size = _minibatches(texts.generated, "self-wmd")
    distances = self_wmd(space.bags(sentences), np.arange(len(sentences)) // size)
    summary = summarize(distances)
    if not summary.compared:
        raise _incomparable(space)
    signature = texts.sign(summary.compared, [f"wmd-vectors:{space.name}", f"within:batch{size}"])
    minibatches = torch.from_numpy(distances).view(-1, size)
    yield Score("self-wmd", summary.distance, signature, _interval_of_known(minibatches))


TEXT_METRICS: dict[str, Callable[[Texts], Iterator[Score]]] = {
    "bleu": bleu_scores,
    "self-bleu": self_bleu_scores,
    "wmd": wmd_scores,
    "self-wmd": self_wmd_scores,
}


def texts_of_files(text: Path, references: Path | None, vectors: str | None) -> Texts:
    """Sentences of any program, one a line, and their references in another file, line by line."""
    generated, gold = list(read_tokens(text)), list(read_tokens(references)) if references else None
    for path, lines in ((text, generated), (references, gold)):
        if lines is not None and not any(lines):
            raise DataError(f"{path} has no words. Give one sentence a line.")
    if gold is not None and len(gold) != len(generated):
        raise DataError(
            f"{text} has {counted(len(generated), 'line')} and {references} has {len(gold)}. "
            "Give each sentence one reference."
        )

    def sign(count: int, parts: Sequence[str]) -> str:
        beside = [f"references:{references.name}"] if references else []
        return "|".join([f"n:{count}", *parts, f"text:{text.name}", *beside, f"v:{__version__}"])

    def space() -> WordSpace:
        words = list(dict.fromkeys(word for line in (*generated, *(gold or [])) for word in line))
        found = read_vectors(Path(str(vectors)), words)
        every = np.ones(len(words), dtype=bool)  # there is no training text to ask
        ids = {word: index for index, word in enumerate(words)}
        return WordSpace(ids, WordVectors(found.vectors.numpy(), every), found.source)

    return Texts(generated, sign, gold, space if vectors else None)


def interval(rows: Float[Tensor, "n values"]) -> Interval | None:
    """The bootstrap interval of the mean of one value a row; None where there are not two rows."""
    low, high = bootstrap_interval(rows.double())
    return (float(low[0]), float(high[0])) if len(rows) > 1 else None


def _interval_of_known(groups: Float[Tensor, "groups size"]) -> Interval | None:
    """The bootstrap interval, over groups, of the mean of all values that are no NaN; each counts as much as any."""
    rows = torch.stack([groups.nansum(dim=1), (~groups.isnan()).sum(dim=1)], dim=1)
    rows = rows[rows[:, 1] > 0]
    low, high = bootstrap_interval(rows, lambda sums: sums[..., :1] / sums[..., 1:])
    return (float(low[0]), float(high[0])) if len(rows) > 1 else None


def corpus_interval(
    generated: Sentences, gold: Sentences, score: Callable[[Overlap], Float[np.ndarray, " n"]]
) -> Interval | None:
    """The bootstrap interval of corpus BLEU over sentences, whose counts are added up anew each time.

    `score` makes BLEU of added-up counts, and must smooth them as the value does that the interval is of.
    """
    count = len(generated)
    pairs = [sentence for pair in zip(generated, gold, strict=True) for sentence in pair]
    counts = overlap(pairs, np.arange(2 * count) // 2)
    columns = np.column_stack([counts.matches, counts.ngrams, counts.length, counts.closest])[::2]

    def statistic(means: Tensor) -> Tensor:
        sums = (means * count).round().long().numpy()
        pooled = Overlap(sums[:, :ORDERS], sums[:, ORDERS:-2], sums[:, -2], sums[:, -1])
        return torch.from_numpy(score(pooled))[:, None]

    low, high = bootstrap_interval(torch.from_numpy(columns).double(), statistic)
    return (float(low[0]), float(high[0])) if count > 1 else None


def _incomparable(space: WordSpace) -> TooLittleTextError:
    return TooLittleTextError(
        f"no two sentences can be compared: their words have no vector in {space.name}. Name others with --vectors."
    )


def _minibatches(sentences: Sentences, metric: str) -> tuple[Sentences, int]:
    """Whole minibatches, without the remainder, and their size; all as one where they do not fill one."""
    size = min(BATCH, len(sentences))
    if size < 2:
        raise TooLittleTextError(
            f"{metric} compares sentences with each other and needs at least 2, got {size}."
        )
    return sentences[: len(sentences) // size * size], size
