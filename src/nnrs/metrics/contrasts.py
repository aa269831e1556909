"""Whether two methods differ: paired by seed, an interval by t, an exact test by signs, Holm over several."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from nnrs.errors import ConfigError
from nnrs.seeding import Random, Stream

ALPHA = 0.05  # how often a family of tests may reject without an effect
FEWEST = 3  # seeds whose interval is worth a word
TOO_FEW, NOTHING_FOUND = "too few seeds", "no difference found"  # verdicts
EXACT = 40  # pairs whose sign patterns are all counted
SAMPLED = 100_000  # sign patterns that stand for all of them where there are more pairs

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """What two methods differ by on one metric, over the seeds that both have: ours minus theirs.

    Perplexities are compared in nats per token, so that their difference is a ratio: `percent`.
    """

    ours: str
    theirs: str
    metric: str
    better: str  # which of higher and lower it is
    seeds: tuple[int, ...]
    differences: tuple[float, ...]  # one a seed
    p: float  # of the exact sign-flip test, two-sided
    holm_p: float  # the same, corrected for the other contrasts of the family
    family: int = 1  # contrasts that were corrected together
    setting: str = ""  # text and model, where contrasts of several stand side by side

    @property
    def mean(self) -> float:
        """The mean difference."""
        return math.fsum(self.differences) / len(self.differences)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The paired t interval of the mean; None of a single seed."""
        return t_interval(self.differences)

    @property
    def in_nats(self) -> bool:
        """Whether it is one of perplexities."""
        return self.metric.split("|")[0].startswith("ppl")

    @property
    def percent(self) -> float | None:
        """How much larger our perplexity is, in percent; None of other metrics."""
        return 100.0 * math.expm1(self.mean) if self.in_nats else None

    @property
    def verdict(self) -> str:
        """`better` or `worse` where the corrected test says so, `probably` where the interval does, else neither.

        Of one or two seeds nothing is said, whatever their interval: a chance of theirs makes it narrow.
        """
        improved = (self.mean < 0) == (self.better == "lower")
        word = "better" if improved else "worse"
        if self.holm_p < ALPHA:
            return word
        if len(self.seeds) < FEWEST:
            return TOO_FEW
        ends = self.interval
        return f"probably {word}" if ends and not ends[0] <= 0.0 <= ends[1] else NOTHING_FOUND


def contrast(
    ours: str,
    theirs: str,
    metric: str,
    values: tuple[Mapping[int, float], Mapping[int, float]],
    better: str = "lower",
    setting: str = "",
) -> Contrast:
    """The contrast of two methods' values by seed, ours first; seeds that one of them lacks are left out."""
    mine, other = values
    seeds = tuple(sorted(mine.keys() & other.keys()))
    if not seeds:
        raise ConfigError(f"{ours} and {theirs} have no seed in common: they cannot be compared by pairs.")
    differences = tuple(mine[seed] - other[seed] for seed in seeds)
    p = sign_flip_p(differences)
    return Contrast(
        ours=ours,
        theirs=theirs,
        metric=metric,
        better=better,
        seeds=seeds,
        differences=differences,
        p=p,
        holm_p=p,
        setting=setting,
    )


def corrected(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """The same contrasts as one family, their p values corrected by Holm."""
    corrections = holm([item.p for item in contrasts])
    return [
        replace(item, holm_p=p, family=len(contrasts)) for item, p in zip(contrasts, corrections, strict=True)
    ]


def t_interval(values: Sequence[float], least: float = -math.inf) -> tuple[float, float] | None:
    """The ends of Student's interval of a mean, which is at `least` so much; None where a value alone has no spread.

    >>> [round(end, 3) for end in t_interval([1.0, 2.0, 3.0])]  # 2 ± 4.303 · 1/√3
    [-0.484, 4.484]
    """
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    reach = _t_quantile(count - 1, 1 - ALPHA / 2) * math.sqrt(variance / count)
    return max(mean - reach, least), mean + reach


def sign_flip_p(differences: Sequence[float]) -> float:
    """How many of all sign patterns give a sum as far from 0 as the one seen: the exact two-sided test.

    Without an effect the sign of a pair's difference is a fair coin. Sums that rounding keeps apart count as equal.

    >>> sign_flip_p([1.0, 2.0, 3.0])  # + + + and − − − of 8
    0.25
    """
    values = np.asarray(differences, dtype=np.float64)
    seen = abs(math.fsum(differences)) - 1e-12 * math.fsum(abs(value) for value in differences)
    if seen <= 0:
        return 1.0
    if len(values) > EXACT:
        return _sampled_p(values, seen)
    # All sums are those of one half beside those of the other: 2^20 and a sorted 2^20 instead of 2^40.
    half = len(values) // 2
    first, second = _signed_sums(values[:half]), np.sort(_signed_sums(values[half:]))
    above = len(second) - np.searchsorted(second, seen - first, side="left")
    return math.ldexp(float(above.sum()), 1 - len(values))  # those below are as many


def holm(p_values: Sequence[float]) -> list[float]:
    """P values corrected for being several (Holm 1979): the smallest times n, the next times n − 1, never falling.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    made, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        made[index] = largest
    return made


def fewest_seeds(contrasts: int) -> int:
    """The seeds with which one of so many contrasts can pass the corrected test at all.

    With n seeds no p is below 2/2^n, which the correction multiplies by the number of contrasts.

    >>> fewest_seeds(1), fewest_seeds(3), fewest_seeds(6)
    (6, 7, 8)
    """
    return next(n for n in range(1, 64) if smallest_p(n) * contrasts < ALPHA)


def smallest_p(seeds: int) -> float:
    """The least that the exact test can give: all differences on one side."""
    return min(1.0, 2.0 ** (1 - seeds))


def _signed_sums(values: Values) -> Values:
    """The sums of the values under all patterns of signs."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def _sampled_p(values: Values, seen: float) -> float:
    """The same from a sample of the patterns, the one seen among them."""
    extreme = 0
    for step in range(SAMPLED // 1000):
        heads = Random(0, Stream.DRAWS, step).uniform(1000, len(values)).numpy() < 0.5
        extreme += int((np.abs(np.where(heads, values, -values).sum(axis=1)) >= seen).sum())
    return (extreme + 1) / (SAMPLED + 1)


def _t_quantile(freedom: int, probability: float) -> float:
    try:
        from scipy.special import stdtrit
    except ImportError:
        raise ConfigError("intervals over seeds need scipy: pip install 'nnrs[report]'.") from None
    return float(stdtrit(freedom, probability))
