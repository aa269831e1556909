"""The runs that tell whether a method helps on a text."""

from collections.abc import Mapping, Sequence
from typing import Any

from nnrs.corpus import open_corpus
from nnrs.errors import ConfigError
from nnrs.experiments.generations import split_lack
from nnrs.experiments.options import spelled
from nnrs.experiments.plan import Plan, cells_of
from nnrs.experiments.subject import Request
from nnrs.policies.methods import METHODS
from nnrs.registry import look_up
from nnrs.run_directory import RunDirectory

ALWAYS = ("perplexity",)
OF_TEXT = ("bleu", "self-bleu", "exposure")  # cheap beside training


def plan(
    methods: Sequence[str],
    seeds: Sequence[int],
    options: Mapping[str, Any],
    metrics: tuple[str, ...] = (),
    *,
    command: str,
    oracle: str | None = None,
) -> Plan:
    """Each method with each seed, alike in all else; without `metrics`, those that the text is enough for.

    Distances between words are measured with the same vectors for all, also for methods that train without.
    """
    if len(methods) < 2:
        raise ConfigError(
            "a comparison needs two different methods or more, with commas between them: --methods mle,nnrs."
        )
    for option, value in options.items():
        _refuse_idle(option, value, methods)
    cells = cells_of(options, methods, seeds)
    corpus = open_corpus(cells[0].config.data.source)
    known = RunDirectory.open(oracle) if oracle else None  # refused before anything is trained
    request = Request(
        metrics=metrics or (*ALWAYS, *(() if split_lack(corpus, "test", Request()) else OF_TEXT)),
        vectors=cells[0].config.vectors.source,
        oracle=str(known.path.resolve()) if known else None,
    )
    title = f"{', '.join(methods[:-1])} and {methods[-1]} on {corpus.name}"
    return Plan(kind="compare", title=title, command=command, cells=tuple(cells), request=request)


def _refuse_idle(option: str, value: object, methods: Sequence[str]) -> None:
    """An option that none of the methods uses is a mistake."""
    if not any(look_up(METHODS, name, "method").takes(option, value) for name in methods):
        using = [name for name, method in METHODS.items() if method.takes(option, value)]
        shown = f"{spelled(option)} {value}" if option == "rule" else spelled(option)
        raise ConfigError(
            f"{', '.join(methods)} have no use for {shown}: leave it out, or add one of "
            f"{', '.join(using)} to --methods."
        )
