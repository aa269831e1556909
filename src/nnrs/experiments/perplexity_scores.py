"""How well a model predicts gold text: all of it, rare words apart, and after histories that were tampered with."""

import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.evaluation.noise import noised_nats
from nnrs.experiments.prepare import protected_ids
from nnrs.experiments.subject import Subject
from nnrs.experiments.text_scores import Interval
from nnrs.metrics.frequency import DECILES, decile_perplexities, frequency_deciles
from nnrs.metrics.perplexity import Perplexity
from nnrs.metrics.score import Score
from nnrs.metrics.significance import bootstrap_interval
from nnrs.neighbors.table import NeighborTable
from nnrs.policies.base import Proposal
from nnrs.policies.controls import UnigramNoise
from nnrs.policies.methods import METHODS

WINDOW = 35  # tokens that the bootstrap of a perplexity keeps together
NOISE_RATES = (10, 20, 30, 40, 50)  # percent
NOISE_STREAMS = 20


def perplexity_scores(subject: Subject, split: str) -> Iterator[Score]:
    """Teacher-forced perplexity, every token scored, in one stream."""
    nats = subject.own.take(_token_nats, subject, split)
    ends = _intervals(nats, torch.zeros(len(nats), dtype=torch.int64), 1)
    value = Perplexity(float(nats.sum()), len(nats)).compute()
    yield Score("ppl", value, subject.signature(split, after=["streams:1"]), ends[0])


def decile_scores(subject: Subject, split: str) -> Iterator[Score]:
    """The same apart for the tenths of the training text, from the most frequent words to the rarest."""
    nats = subject.own.take(_token_nats, subject, split)
    targets = subject.ids(split).long()
    deciles = frequency_deciles(torch.tensor(subject.vocabulary.counts, dtype=torch.float64))
    values = decile_perplexities(nats, targets, deciles).tolist()
    ends = _intervals(nats, deciles[targets], DECILES)
    signature = subject.signature(split, after=["streams:1"])
    empty = set()
    for tenth, (value, both) in enumerate(zip(values, ends, strict=True), start=1):
        if math.isnan(value):  # a tenth without a token has no perplexity
            empty.add(tenth)
        else:
            yield Score(f"ppl-decile{tenth}", value, signature, both)
    _note_empty(subject, split, empty, {place + 1 for place in deciles.tolist()})


def _note_empty(subject: Subject, split: str, empty: set[int], of_words: set[int]) -> None:
    """Say which tenths are left out, and why."""
    reasons = {
        "no word belongs there (a frequent one, such as <unk>, may fill more than a tenth)": empty - of_words,
        "the text measured has no such word": empty & of_words,
    }
    for why, tenths in reasons.items():
        if tenths:
            names = ", ".join(f"ppl-decile{tenth}" for tenth in sorted(tenths))
            subject.note(f"{subject.directory.path}: {names} ({split}) left out, for {why}")


def noise_scores(subject: Subject, split: str) -> Iterator[Score]:
    """Perplexity of gold text after histories of which a part became neighbors, frequent words or the model's own."""
    for kind, proposal, temperature, parts in _noises(subject):
        yield from _noised(subject, split, kind, proposal, temperature, parts)


def _token_nats(subject: Subject, split: str) -> Float[Tensor, " tokens"]:
    return subject.losses(split).double()


def _intervals(
    nats: Float[Tensor, " tokens"], kinds: Int[Tensor, " tokens"], count: int
) -> list[Interval | None]:
    """The bootstrap interval of the perplexity of each kind of token, over windows of the text."""
    rows = -(-len(nats) // WINDOW)
    places = torch.arange(len(nats)) // WINDOW * count + kinds
    sums = torch.zeros(rows * count, dtype=torch.float64).index_add_(0, places, nats)
    tokens = torch.bincount(places, minlength=rows * count).double()
    columns = torch.cat([sums.view(rows, count), tokens.view(rows, count)], dim=1)
    low, high = bootstrap_interval(columns, lambda means: (means[..., :count] / means[..., count:]).exp())
    ends = zip(low.tolist(), high.tolist(), strict=True)  # NaN where a sample may be without such a token
    return [(a, b) if rows > 1 and math.isfinite(a + b) else None for a, b in ends]


def _noises(subject: Subject) -> Iterator[tuple[str, Proposal | None, float, list[str]]]:
    """The kinds of noise: where replacements come from, at which temperature, and what a signature says of it."""
    found = _noise_table(subject)
    if found:
        table, temperature, name = found
        yield "neighbor", table, temperature, [f"noise-table:{name}", f"noise-tau:{temperature:g}"]
    else:
        by_previous = subject.config.policy.transition_row == "previous"
        kind = "a table of the words after the one before" if by_previous else "no neighbor table"
        subject.note(f"{subject.directory.path} has {kind}: neighbor noise left out (--vectors)")
    counts = torch.tensor(subject.vocabulary.counts, dtype=torch.float64)
    replaceable = counts > 0
    replaceable[list(protected_ids(subject.config.vectors, subject.vocabulary))] = False
    yield "unigram", UnigramNoise.of(counts, replaceable), 1.0, []
    yield "own", None, 1.0, []


def _noise_table(subject: Subject) -> tuple[NeighborTable, float, str] | None:
    """The nearest by the vectors that were asked for, else the run's own table; and the temperature to draw at.

    None where there is no table with a row for each word's own replacements.
    """
    policy, words = subject.config.policy, subject.vocabulary
    if subject.request.vectors:
        protected, groups = protected_ids(subject.config.vectors, words), words.case_groups()
        table = NeighborTable.from_vectors(subject.vectors.vectors, protected=protected, groups=groups)
        return table, METHODS["nnrs"].temperature, f"{subject.vectors.source}-k{table.k}"
    table_of_run = subject.loaded.table if policy.transition_row == "own" else None
    learned = policy.method == "gsns"  # its probabilities are those at 1
    temperature = 1.0 if learned else METHODS[policy.method].temperature
    return (table_of_run, temperature, policy.method) if table_of_run else None


def _noised(
    subject: Subject,
    split: str,
    kind: str,
    proposal: Proposal | None,
    temperature: float,
    parts: Sequence[str],
) -> Iterator[Score]:
    """Of one kind of noise, all rates at once; the rate of 0, which is of no kind, beside the model's own words."""
    percents = NOISE_RATES if proposal else (0, *NOISE_RATES)
    rows = noised_nats(
        subject.loaded.model,
        subject.ids(split),
        eos_id=subject.vocabulary.eos_id,
        rates=[percent / 100 for percent in percents],
        proposal=proposal.to(subject.device) if proposal else None,
        temperature=temperature,
        streams=NOISE_STREAMS,
        seed=subject.request.seed,
    )
    how = [f"streams:{NOISE_STREAMS}", *parts, f"noise-seed:{subject.request.seed}"]
    signature = subject.signature(split, after=how)
    for percent, nats in zip(percents, rows, strict=True):
        ends = _intervals(nats, torch.zeros(len(nats), dtype=torch.int64), 1)
        name = f"ppl-{kind}-noise{percent}" if percent else "ppl-noise0"
        yield Score(name, Perplexity(float(nats.sum()), len(nats)).compute(), signature, ends[0])
