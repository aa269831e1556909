"""What a run's errors are measured against: the synthetic language itself, or a named run of the same vocabulary."""

from typing import NamedTuple

import torch

from nnrs.errors import RunError
from nnrs.evaluation.causal import CausalModel
from nnrs.experiments.subject import Subject
from nnrs.run_directory import RunDirectory
from nnrs.synthetic import SyntheticLanguage
from nnrs.vocabulary import Vocabulary


class Oracle(NamedTuple):
    """A model whose probabilities count as the truth, and its name in signatures."""

    model: CausalModel
    name: str


def oracle_of(subject: Subject) -> Oracle | None:
    """The run that was asked for, else the synthetic language where that is the text; None, and a note, elsewhere."""
    if subject.request.oracle:
        return _named(subject, RunDirectory.open(subject.request.oracle))
    if (subject.request.data or subject.config.data.source).split(":")[0] == "synthetic":
        exact = exact_language(subject.vocabulary)
        if exact:
            return Oracle(exact, "exact")
    subject.note(
        f"{subject.directory.path}: accumulated errors left out, for they need an oracle: a run of a better model on "
        "the same text (--oracle RUN)"
    )
    return None


def exact_language(vocabulary: Vocabulary) -> CausalModel | None:
    """The synthetic language over the ids of a vocabulary; None where a word of it is missing there.

    What the language never says has no probability; behind it, a sentence begins afresh.
    """
    language = SyntheticLanguage()
    if not vocabulary.ids.keys() >= set(language.words):
        return None
    places = torch.tensor(vocabulary.encode(language.words))
    truth = torch.full((len(vocabulary), len(vocabulary)), -torch.inf, dtype=torch.float64)
    truth[:, places] = language.transition_probabilities[0].log()
    truth[places[:, None], places] = language.transition_probabilities.log()
    return lambda ids: truth[ids]


def _named(subject: Subject, directory: RunDirectory) -> Oracle | None:
    model = directory.best_fingerprint()
    if model == subject.directory.best_fingerprint():
        subject.note(f"{subject.directory.path}: accumulated errors left out, for it is the oracle itself")
        return None
    loaded = subject.run_beside(directory.path)
    if loaded.vocabulary.words != subject.vocabulary.words:
        raise RunError(
            f"the oracle {directory.path} has another vocabulary than {subject.directory.path}. "
            "Name one that was trained on the same text."
        )
    name = directory.path.resolve().name.replace("|", "_")
    return Oracle(loaded.model, f"{name}@{str(model)[:8]}")
