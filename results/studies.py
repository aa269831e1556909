"""What is in the records: the arms of a study, and the differences between them that were named in advance."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from nnrs.experiments.findings import PERPLEXITY, findings
from nnrs.experiments.groups import Group, grouped, names_of
from nnrs.experiments.store import Result, collect
from nnrs.metrics.contrasts import Contrast, contrast, corrected

RESULTS = Path(__file__).parent
REGULARISATION = ("dropout", "weight_dropout")
KINDS = ("model", "learning_rate", "dropout")  # each kind of model with settings of its own
OF_METHODS = (("ss", "mle"), ("nnrs", "mle"), ("ss-nnrs", "ss"))
# The contrasts named before a study of arms that were tuned one by one, and so may differ in more than their method.
TUNED = (
    *OF_METHODS,
    ("nnrs", "unigram"),
    ("nnrs, targets", "mle"),
)
NAMED_OF_ARMS = {
    "ptb-best-seeds": TUNED,
    "ptb-targets": (
        ("unigram, targets", "nnrs, targets"),
        ("shuffled, targets", "nnrs, targets"),
        ("unigram, targets", "mle"),
        ("shuffled, targets", "mle"),
    ),
    "synthetic-best-seeds": TUNED,
    "synthetic-cells-gru": OF_METHODS,
    "wikitext-2-best-seeds": TUNED,
}
BESIDE = {"ptb-targets": "ptb-best-seeds"}  # the study, of the same seeds, that has the other arms
# Of several degrees of regularisation: the two between which the gain of each of the methods was named to differ.
NAMED_OF_DEGREES = {
    "synthetic-regularised": (
        ("dropout 0.1", "dropout 0.4 · weight_dropout 0.4"),
        ("ss", "nnrs", "ss-nnrs"),
    ),
}
# Of several kinds of model: those that have contrasts, and which, all at low rates.
LOW = {
    "mle": "mle",
    "ss": "ss · static · prediction_rate 0.05",
    "nnrs": "nnrs · static · neighbor_rate 0.3 · k 3",
    "ss-nnrs": "ss-nnrs · static · prediction_rate 0.05 · neighbor_rate 0.3 · k 3",
}
NAMED_OF_KINDS = {
    "synthetic-cells": (
        ("model gru · learning_rate 2.5 · dropout 0.1", "model highway · learning_rate 5 · dropout 0.4"),
        [(LOW[ours], LOW[theirs]) for ours, theirs in OF_METHODS],
    ),
}


def records(study: str) -> list[Result]:
    """All runs of a study."""
    return collect(RESULTS / f"{study}.jsonl.xz")


def contrasts(study: str, results: Sequence[Result]) -> list[Contrast]:
    """The paired differences in test perplexity that were named in advance: of arms, degrees, kinds or methods."""
    if study in NAMED_OF_ARMS:
        others = records(BESIDE[study]) if study in BESIDE else []
        return contrasts_of_arms([*others, *results], NAMED_OF_ARMS[study])
    if study in NAMED_OF_DEGREES:
        return contrasts_of_degrees(results, *NAMED_OF_DEGREES[study])
    if study in NAMED_OF_KINDS:
        return contrasts_of_kinds(results, *NAMED_OF_KINDS[study])
    return findings(results).contrasts


def arms(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The settings of each arm: of a method that replaces inputs, or of one that replaces targets."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        replaced = group.results[0].record["config"]["policy"]["replace"]
        arm = group.method if replaced == "inputs" else f"{group.method}, {replaced}"
        found.setdefault(arm, []).append(group)
    return found


def contrasts_of_arms(results: Sequence[Result], pairs: Sequence[tuple[str, str]]) -> list[Contrast]:
    """The pairs of arms as one family, whatever else the two differ in; each arm must have one setting."""
    nats = {arm: group.nats("test") for arm, (group,) in arms(grouped(results)).items()}
    return corrected(
        [contrast(ours, theirs, PERPLEXITY, (nats[ours], nats[theirs])) for ours, theirs in pairs]
    )


def degrees(results: Sequence[Result], labels: Sequence[str] = REGULARISATION) -> dict[str, dict[str, Group]]:
    """The groups by their regularisation, or by other labels, and by what they are called beside that."""
    found: dict[str, list[Group]] = {}
    for group in grouped(results):
        given = [f"{name} {group.labels[name]}" for name in labels if name in group.labels]
        found.setdefault(" · ".join(given), []).append(group)
    return {degree: dict(zip(names_of(groups), groups, strict=True)) for degree, groups in found.items()}


def gains(groups: Mapping[str, Group], split: str) -> dict[str, Contrast]:
    """What each setting of one degree has beside its teacher forcing."""
    forced = groups["mle"].nats(split)
    return {
        name: contrast(name, "mle", PERPLEXITY, (group.nats(split), forced))
        for name, group in groups.items()
        if name != "mle"
    }


def gain_by_seed(groups: Mapping[str, Group], method: str) -> dict[int, float]:
    """The same of a method on the test text; it must have one setting."""
    (found,) = [item for name, item in gains(groups, "test").items() if groups[name].method == method]
    return dict(zip(found.seeds, found.differences, strict=True))


def contrasts_of_degrees(
    results: Sequence[Result], ends: tuple[str, str], methods: Sequence[str]
) -> list[Contrast]:
    """What the methods have beside teacher forcing at one degree against another, on test, as one family."""
    found = degrees(results)
    one, other = (found[degree] for degree in ends)
    return corrected(
        [
            contrast(
                f"gain of {method}: {ends[0]}",
                ends[1],
                PERPLEXITY,
                (gain_by_seed(one, method), gain_by_seed(other, method)),
            )
            for method in methods
        ]
    )


def contrasts_of_kinds(
    results: Sequence[Result], kinds: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> list[Contrast]:
    """Settings against each other, within each kind of model, on test, as one family."""
    found = degrees(results, KINDS)
    nats = {kind: {name: group.nats("test") for name, group in found[kind].items()} for kind in kinds}
    return corrected(
        [
            contrast(f"{_model_of(kind)}: {ours}", theirs, PERPLEXITY, (nats[kind][ours], nats[kind][theirs]))
            for kind in kinds
            for ours, theirs in pairs
        ]
    )


def _model_of(kind: str) -> str:
    """What a kind is called in short.

    >>> _model_of("model gru · learning_rate 2.5 · dropout 0.1")
    'gru'
    """
    return kind.partition(" · ")[0].removeprefix("model ")
