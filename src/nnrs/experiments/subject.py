"""A run that is being evaluated: what a metric may ask of it, read when it is first asked for."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.corpus import SPLITS, Corpus, open_corpus
from nnrs.embeddings import Embeddings, read_vectors
from nnrs.errors import ConfigError, DataError, RunError
from nnrs.evaluation.evaluate import text_nats
from nnrs.evaluation.generate import DECODINGS, NUMBERED, decoding_of
from nnrs.experiments.config import TRANSLATE, VectorsConfig
from nnrs.experiments.load import LoadedRun, config_of, load
from nnrs.experiments.prepare import Shelf, vectors_for
from nnrs.experiments.text import Text, check_still_there
from nnrs.experiments.text_scores import WordSpace
from nnrs.metrics.packages import POT
from nnrs.metrics.wmd import WordVectors
from nnrs.neighbors.cache import fingerprint_of
from nnrs.registry import look_up
from nnrs.run_directory import Json, RunDirectory
from nnrs.seeding import check_seed
from nnrs.vocabulary import MARKS, Vocabulary, token_ids

TEACHER_FORCED = "teacher-forced"  # the likeliest token at each gold step, the other way of predicting
UNFINISHED = "unfinished"  # the part of a signature that scores of a run have which has not come to its end


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be measured, and on which text."""

    metrics: tuple[str, ...] = ("perplexity",)
    splits: tuple[str, ...] = ("test",)
    decodings: tuple[str, ...] = ("sample",)
    sentences: int = 1000  # as many as there are, where the split has fewer
    prefix: int = 10
    length: int = 35
    seed: int = 0  # of the draws
    data: str | None = None  # another text than the run's own
    vectors: str | None = None  # other vectors than the run's own
    oracle: str | None = None  # a run against which errors are measured

    def __post_init__(self) -> None:
        for name in ("metrics", "splits", "decodings"):
            if not getattr(self, name):
                raise ConfigError(f"{name} must name at least one, got none. Leave it out for the usual.")
        for split in self.splits:
            look_up(dict.fromkeys(SPLITS), split, "split")
        for decoding in self.decodings:
            decoding_label(decoding)
        for name in ("sentences", "prefix", "length"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}.")
        check_seed(self.seed)


def decoding_label(name: str) -> str:
    """As it stands in a signature; refuses what is no decoding."""
    if not NUMBERED.fullmatch(name):
        look_up({**DECODINGS, TEACHER_FORCED: None}, name, "decoding")
    return name if name == TEACHER_FORCED else decoding_of(name).label()


class Subject:
    """The files of a run, its model, its text and its vectors. Text metrics never ask for the model."""

    def __init__(
        self, path: Path, device: torch.device, request: Request, note: Callable[[str], None], shelf: Shelf
    ) -> None:
        self.directory, self.device, self.request, self.note = RunDirectory.open(path), device, request, note
        self.record, self.config = self.directory.config(), config_of(self.directory)
        self.own = Shelf()  # what metrics of this run share
        self._shelf = shelf  # what runs share

    @cached_property
    def loaded(self) -> LoadedRun:
        """The best model and its table, on the device."""
        return load(self.directory.path, self.device)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The run's own."""
        return Vocabulary.from_json(self.directory.vocabulary())

    @cached_property
    def text(self) -> Text:
        """The text that the run was trained on, as it was then."""
        data, run = self.config.data, self.directory.path
        may_name = data.task != TRANSLATE and not self.request.data
        check_still_there(data, run, f"Put it back{', or name another with --data' if may_name else ''}.")
        text = self._shelf.take(Text.read, data)
        if text.fingerprint != self.record["text_sha256"]:
            instead = ", or name it with --data" if may_name else ""
            raise DataError(f"{data.source} has changed since {run} was trained. Restore it{instead}.")
        return text

    @cached_property
    def other(self) -> Corpus | None:
        """The text that was asked for instead of the run's own."""
        return open_corpus(self.request.data) if self.request.data else None

    def ids(self, split: str) -> Int[Tensor, " tokens"]:
        """A split of the text to be scored, in the run's vocabulary."""
        if self.other is None:
            return self.text.ids[split]
        return self.own.take(token_ids, self.other, split, self.vocabulary)

    def losses(self, split: str) -> Float[Tensor, " pieces"]:
        """Of the best model: those of the run's own text that it left at its end, all others computed now."""
        if self.other is not None:
            return text_nats(self.loaded.model, self.ids(split), eos_id=self.vocabulary.eos_id)[0].cpu()
        text, kept = self.text, self.directory.losses(split)
        return text.losses(self.loaded.model, split) if kept is None else kept

    def text_fingerprint(self, split: str) -> str:
        """What tells the text apart; of the run's own it is known without reading it."""
        return str(self.record["text_sha256"]) if self.other is None else fingerprint_of(self.ids(split))

    @property
    def vectors_source(self) -> str | None:
        """Where word vectors come from: as asked, or as the run had them; None where it had none."""
        return self.request.vectors or (self.config.vectors.source if self.config.uses_vectors else None)

    @property
    def no_distances(self) -> str | None:
        """Why words have no distances here; None where they have."""
        if not self.vectors_source:
            return "the run has no word vectors (--vectors)"
        return POT.lack

    @cached_property
    def vectors(self) -> Embeddings:
        """The word vectors of the run's vocabulary."""
        source = self.vectors_source
        assert source is not None  # or it would have been refused, or left out
        if source == "corpus":
            return self._shelf.take(vectors_for, VectorsConfig(), self.text)
        vectors = self._shelf.take(read_vectors, Path(source), self.vocabulary.words)
        if not self.request.vectors and fingerprint_of(vectors.vectors) != self.record["vectors_sha256"]:
            raise RunError(
                f"{source} has changed since {self.directory.path} was trained. Restore it, or use --vectors."
            )
        return vectors

    @cached_property
    def word_space(self) -> WordSpace:
        """Words of the training text that have a vector; `<eos>`, `<unk>` and `<pad>` are no words."""
        words, vectors = self.vocabulary, self.vectors
        allowed = np.array(words.counts) > 0
        allowed[[words.ids[mark] for mark in MARKS if mark in words.ids]] = False
        return WordSpace(words.ids, WordVectors(vectors.vectors.numpy(), allowed), vectors.source)

    def run_beside(self, path: Path) -> LoadedRun:
        """Another run that this one is compared with, on the same device."""
        return self._shelf.take(load, path, self.device)

    def sign(self, split: str, decoding: str, count: int, parts: Sequence[str]) -> str:
        """What a score of so many continuations carries, with a metric's own parts."""
        asked = self.request
        how = [
            f"n:{count}",
            f"len:{asked.length}",
            f"decode:{decoding_label(decoding)}",
            f"prefix:{asked.prefix}",
        ]
        drawn = [] if decoding == TEACHER_FORCED else [f"text-seed:{asked.seed}"]
        return self.signature(split, before=[*how, *parts, *drawn])

    def signature(self, split: str, *, before: Sequence[str] = (), after: Sequence[str] = ()) -> str:
        """What a score carries: the metric's own parts around the split, then what the run is."""
        names = self.record["names"]
        on = [f"on:{self.other.name}"] if self.other else []
        run = self.config.signature(names["corpus"], names["vectors"])
        return "|".join([*before, *on, f"split:{split}", *after, *self._so_far, run])

    @cached_property
    def _so_far(self) -> list[str]:
        """Of a run that is not finished, how many epochs its best model is the best of."""
        if self.directory.summary() is not None:
            return []
        return [f"{UNFINISHED}:{len(self.directory.records('metrics'))}"]

    def store(self, name: str, field: str, values: Collection[str], records: Iterable[Json]) -> bool:
        """Keep records of the present model in the run directory, in place of those whose `field` has these values.

        Where that cannot be written, say so and go on; gives whether they are kept.
        """
        model = self.directory.best_fingerprint()
        try:
            self.directory.replace(name, field, values, ({**record, "model": model} for record in records))
        except RunError as error:
            self.note(f"{name} are not kept: {error}")
            return False
        return True
