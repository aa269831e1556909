"""What a page needs to explore a run without its model: neighbors of words, and draws for a few real sentences."""

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from nnrs.experiments.load import LoadedRun, load
from nnrs.experiments.text import Text
from nnrs.neighbors.table import NeighborTable
from nnrs.policies.functional import sample_tokens
from nnrs.run_directory import Json, RunDirectory
from nnrs.seeding import Random, Stream
from nnrs.vocabulary import Vocabulary

FORMAT = 3
MOST_WORDS = 3_000  # whose neighbors are kept; the words of the sentences come on top
SENTENCES = 6
LENGTHS = (12, 26)  # tokens of a sentence, without its end: enough to see a rate, few enough to read
COLUMNS = {"tprs": "log p", "gsns": "logit"}  # what similarities are, where they are no cosines
DIGITS = 6  # of a similarity or a draw: what shows in a probability at τ = 0.05 is the sixth


def make_explorer(path: Path | str) -> Json | None:
    """The neighbors of a finished run's frequent words, and sentences with all draws made.

    None without a table, or with one whose rows are not those of the words that are replaced. The draws depend on the
    run's seed alone. What they decide depends on the rates and on τ, which the reader moves.
    """
    loaded = load(path)
    table, method = loaded.table, loaded.config.policy.method
    if table is None or table.k == 0 or loaded.config.policy.transition_row == "previous":
        return None
    vocabulary = loaded.vocabulary
    ids = Text.read(loaded.config.data).ids["train"].long()
    sentences = readable_sentences(ids, vocabulary, table.replaceable)
    wanted = [word for sentence in sentences for word in sentence.tolist()]
    rows = {word: table.row(word, 1.0) for word in kept_words(table, vocabulary, wanted)}
    named = [word for row in rows.values() for word, _, _ in row]
    places = {word: place for place, word in enumerate(dict.fromkeys([*rows, *named]))}
    return {
        "format": FORMAT,
        "method": method,
        "corpus": RunDirectory.open(path).config()["names"]["corpus"],
        "table": table_settings(loaded.config.as_dict(), RunDirectory.open(path).config()["names"]),
        "words": vocabulary.decode(places),
        "counts": [vocabulary.counts[word] for word in places],
        "neighbors": [[places[word] for word, _, _ in row] for row in rows.values()],
        "column": COLUMNS.get(method, "cosine"),
        "similarities": [[round(near, DIGITS) for _, near, _ in row] for row in rows.values()],
        "sentences": [_described(loaded, sentence, step, places) for step, sentence in enumerate(sentences)],
    }


def table_settings(config: Json, names: Json) -> Json:
    """All that a run's neighbors depend on beside its method: runs that agree in it draw from the same table."""
    data, policy = config["data"], config["policy"]
    chosen = {name: policy[name] for name in ("k", "search", "transition_row", "transition_whole")}
    vectors = {"vectors": names["vectors"], "protect": [*config["vectors"]["protect"]]}
    vocabulary = {"corpus": names["corpus"], **{name: data[name] for name in ("min_count", "max_vocabulary")}}
    return {**vocabulary, **vectors, **chosen}


def readable_sentences(
    ids: Int[Tensor, " tokens"], vocabulary: Vocabulary, replaceable: Bool[Tensor, " vocab"]
) -> list[Int[Tensor, " words"]]:
    """A few sentences from all over a text, each the one of its stretch whose words can be replaced most often."""
    ends = (ids == vocabulary.eos_id).nonzero().squeeze(1).tolist()
    starts = [0, *(end + 1 for end in ends)]
    lines = [ids[start:end] for start, end in zip(starts, ends, strict=False)]
    fitting = [line for line in lines if LENGTHS[0] <= len(line) <= LENGTHS[1]] or [
        line[: LENGTHS[1]] for line in lines if len(line)
    ]
    stretch = -(-len(fitting) // SENTENCES)
    parts = [fitting[first : first + stretch] for first in range(0, len(fitting), max(stretch, 1))]
    return [max(part, key=lambda line: float(replaceable[line].float().mean())) for part in parts]


def kept_words(table: NeighborTable, vocabulary: Vocabulary, wanted: Sequence[int]) -> list[int]:
    """The words whose neighbors are kept: the most frequent ones that have any, and those of the sentences."""
    having = table.replaceable.nonzero().squeeze(1).tolist()
    frequent = sorted(having, key=lambda word: (-vocabulary.counts[word], word))[:MOST_WORDS]
    return list(dict.fromkeys(frequent + [word for word in wanted if table.replaceable[word]]))


@torch.no_grad()
def _described(loaded: LoadedRun, sentence: Int[Tensor, " words"], step: int, places: dict[int, int]) -> Json:
    """A sentence with everything that is random about its inputs, and what the model would have said."""
    random = Random(loaded.config.seed, Stream.TEXT, step)
    prediction_draws, neighbor_draws, coins, picks = random.uniform(4, len(sentence))
    words = loaded.vocabulary.words
    history = torch.cat([torch.tensor([loaded.vocabulary.eos_id]), sentence[:-1]])
    logits, _ = loaded.model(history[None], None)
    predicted = sample_tokens(logits[0].float(), random.uniform(len(sentence)))
    having = loaded.table.replaceable if loaded.table else torch.zeros(len(words), dtype=torch.bool)
    return {
        "words": [words[word] for word in sentence.tolist()],
        "rows": [places[word] if having[word] else None for word in sentence.tolist()],
        "predictions": [words[word] for word in predicted.tolist()],
        "prediction_draws": _rounded(prediction_draws),
        "neighbor_draws": _rounded(neighbor_draws),
        "coins": _rounded(coins),
        "picks": _rounded(picks),
    }


def _rounded(values: Tensor) -> list[float]:
    return [round(value, DIGITS) for value in values.tolist()]
