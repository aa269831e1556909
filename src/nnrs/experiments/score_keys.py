"""What scores of several runs are called, so that none is taken for another that was made in another way."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

from nnrs.experiments.store import Result
from nnrs.metrics.score import signature_parts
from nnrs.policies.methods import METHODS
from nnrs.run_directory import Json

COUNTING = ("wmd", "self-wmd")  # metrics whose n is an outcome: how many sentences could be compared

Parts = frozenset[tuple[str, str]]


class Made(NamedTuple):
    """All that tells how a score was made, apart from what its run is."""

    corpus: str
    head: str  # of the signature
    version: str  # empty where it is the one that the run was trained with
    sentences: int | None  # as many as were asked for


class ScoreKeys:
    """The keys of all scores of these results: `bleu4|test|sample` is metric, split, way of predicting.

    Where scores of one text were made in several ways, each key says in what: `bleu4|test|sample|n:500`.
    """

    def __init__(self, results: Iterable[Result]) -> None:
        made: dict[Made, None] = {}
        counts = set()  # whose n tells scores of one run apart: there it is no outcome
        for result in results:
            own = list(map(_reader(result), _signatures(result)))
            made.update(dict.fromkeys(own))
            alike = Counter((_base(one.head), _parts(one)) for one in dict.fromkeys(own) if _counts(one.head))
            counts |= {(result.corpus, base) for (base, _), times in alike.items() if times > 1}
        members: dict[tuple[str, str], list[Made]] = {}
        for one in made:
            members.setdefault((one.corpus, _base(one.head)), []).append(one)
        self._keys: dict[Made, str] = {}
        for place, ways in members.items():
            self._keys |= _named(place[1], {one: _parts(one, counted=place in counts) for one in ways})

    def named(self, result: Result) -> Iterator[tuple[str, Json]]:
        """The scores of one of these results, each under its key."""
        made = _reader(result)
        for score in result.scores:
            yield self._keys[made(score["signature"])], score


def version_of(signature: str) -> str:
    """The version that a score was made with; empty where its signature says none.

    >>> version_of("ppl|split:test|data:ptb|seed:1|v:0.1.0")
    '0.1.0'
    """
    return signature.rpartition("|v:")[2] if "|v:" in signature else ""


def _signatures(result: Result) -> Iterator[str]:
    """Of all scores of a run; its own perplexities are among them."""
    own = str(result.record["signature"])
    yield own
    yield own.replace("split:test", "split:valid")
    for score in result.scores:
        yield score["signature"]


def _reader(result: Result) -> Callable[[str], Made]:
    """What says of a signature of this result how its score was made; what the result is, is looked up once."""
    corpus, request = result.corpus, result.record.get("request")
    own = version_of(str(result.record["signature"]))
    sentences = request["sentences"] if request else None

    def made(signature: str) -> Made:
        head, _, run = signature.partition("|data:")
        version = "" if run.endswith(f"|v:{own}") else version_of(run)
        return Made(corpus, head, version, sentences if _counts(head) else None)

    return made


@cache  # the beginnings are few, however many runs there are
def _counts(head: str) -> bool:
    metric = head.partition("|")[0]
    return f"{metric}-".startswith(tuple(f"{name}-" for name in COUNTING))


@cache
def _base(head: str) -> str:
    """Metric, split and way of predicting."""
    parts = signature_parts(head)
    return "|".join([next(iter(parts)), *(parts[name] for name in ("split", "decode") if name in parts)])


def _parts(made: Made, *, counted: bool = False) -> Parts:
    """How a score was made, by name, without what its key has already."""
    parts = signature_parts(made.head)
    if (
        method := parts.get("noise-table")
    ) in METHODS:  # the run's own: that of all whose proposals are made alike
        parts["noise-table"] = next(
            name for name in METHODS if METHODS[name].proposal is METHODS[method].proposal
        )
    if made.version:
        parts["v"] = made.version
    if made.sentences is not None and not counted:
        parts["sentences"] = str(made.sentences)
    left_out = [next(iter(parts)), "split", "decode", *(["n"] if _counts(made.head) and not counted else [])]
    return frozenset((name, value) for name, value in parts.items() if name not in left_out)


def _named(base: str, ways: dict[Made, Parts]) -> dict[Made, str]:
    """A key for each way: the parts in which they differ behind the base, as far as it has them."""
    shared = frozenset.intersection(*ways.values())
    return {
        one: "|".join([base, *(f"{name}:{value}" for name, value in sorted(parts - shared))])
        for one, parts in ways.items()
    }
