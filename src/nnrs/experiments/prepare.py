"""From a configuration to its live parts: text, vectors, policy and model."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from nnrs.arguments import checked_device
from nnrs.batches import Batches
from nnrs.corpus import is_built_in
from nnrs.embeddings import Coverage, Embeddings, project, read_vectors, vectors_from_text
from nnrs.errors import ConfigError, DataError
from nnrs.experiments.config import TRANSLATE, RunConfig, VectorsConfig
from nnrs.experiments.enough_memory import check_memory
from nnrs.experiments.text import Text
from nnrs.models import build_model
from nnrs.models.base import WORD_RANGE, SequenceModel
from nnrs.neighbors.cache import fingerprint_of
from nnrs.neighbors.table import default_k
from nnrs.parallel import choose_languages
from nnrs.policies.base import InputPolicy
from nnrs.policies.methods import METHODS, Material, PolicyConfig, shuffled_neighbors
from nnrs.seeding import Random, Stream
from nnrs.training.group import ALONE, Group
from nnrs.training.loop import TrainingConfig
from nnrs.vocabulary import MARKS, Vocabulary

SPECIAL = (*MARKS, "N")  # never replaced, never proposed; N is PTB's number token
Made = TypeVar("Made")


def choose_device(name: str) -> torch.device:
    """The device called `name`; `auto` is the first GPU where there is one, and Triton to program it with."""
    has_triton = find_spec("triton") is not None
    if name == "auto":
        return torch.device("cuda" if has_triton and torch.cuda.is_available() else "cpu")
    device = checked_device(name, beside="auto, ")
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device '{name}' is not supported. Use auto, cpu, cuda or cuda:0.")
    if device.type == "cuda" and not has_triton:
        raise ConfigError(
            f"device '{name}' needs Triton, which this PyTorch came without: install triton, or use --device cpu."
        )
    return device


def vectors_for(config: VectorsConfig, text: Text) -> Embeddings:
    """The word vectors of the vocabulary: from a file, or made from the training split."""
    if config.source == "corpus":
        return vectors_from_text(text.ids["train"], len(text.vocabulary))
    try:
        return read_vectors(Path(config.source), text.vocabulary.words)
    except DataError as error:
        raise DataError(f"{error} Or use corpus, for vectors from the text.") from None


def protected_ids(config: VectorsConfig, vocabulary: Vocabulary) -> tuple[int, ...]:
    """The ids of the special tokens and of the words the user protects."""
    unknown = [word for word in config.protect if word not in vocabulary.ids]
    if unknown:
        raise ConfigError(
            f"cannot protect {', '.join(map(repr, unknown))}: not in the vocabulary. Name words that it has: those "
            "of the training text that --min-count and --max-vocabulary keep."
        )
    return tuple(vocabulary.ids[word] for word in (*SPECIAL, *config.protect) if word in vocabulary.ids)


@dataclass(frozen=True, eq=False)
class Parts:
    """All that a run is made of, on its device."""

    config: RunConfig  # with k, precision and paths as they were resolved
    text: Text
    vectors: Embeddings | None
    policy: InputPolicy
    model: SequenceModel
    windows: Batches

    @property
    def coverage(self) -> Coverage | None:
        """How much of the text the vectors cover, where there are any."""
        vocabulary = self.text.vocabulary
        return self.vectors.coverage(vocabulary.words, vocabulary.counts) if self.vectors else None

    @property
    def vectors_fingerprint(self) -> str | None:
        """sha256 of the vectors that came from a file; those from the text are as good as its own fingerprint."""
        if self.vectors is None or self.config.vectors.source == "corpus":
            return None
        return fingerprint_of(self.vectors.vectors)

    @property
    def signature(self) -> str:
        """What this run's scores carry."""
        return self.config.signature(self.text.corpus.name, self.vectors.source if self.vectors else None)

    def anew(self, shelf: "Shelf") -> "Parts":
        """The same before any training: the model its seed gives, a policy that has learned nothing."""
        device = next(self.model.parameters()).device
        model = _model(self.config, self.text, self.vectors, shelf)
        return replace(self, model=model.to(device), policy=replace(self.policy))


class Shelf:
    """What was read or made for one run and serves the next: text, vectors, tables. Training changes none of it."""

    def __init__(self) -> None:
        self._made: dict[tuple[Hashable, ...], Any] = {}

    def take(self, make: Callable[..., Made], *settings: Hashable) -> Made:
        """`make(*settings)`, or what it gave for the same settings before."""
        key = (make, *settings)
        if key not in self._made:
            self._made[key] = make(*settings)
        made: Made = self._made[key]
        return made


def prepare(config: RunConfig, device: torch.device, shelf: Shelf, group: Group = ALONE) -> Parts:
    """Read the text, make or read the vectors, build policy and model; what the shelf has is not made again."""
    config = with_languages(config)
    text = shelf.take(Text.read, config.data)
    vectors = shelf.take(vectors_for, config.vectors, text) if config.uses_vectors else None
    config = resolved(located(config), text, device)
    windows = shelf.take(_windows, text, config.training, device)
    window = windows[0].inputs
    window = window[group.rows(len(window))]  # the logits of the others' rows are in their memory
    check_memory(config.model, device, len(text.vocabulary), window.numel())
    shuffles = METHODS[config.policy.method].proposal is shuffled_neighbors
    seed = config.seed if shuffles else 0  # no other table depends on it
    policy = shelf.take(_policy, config.policy, config.vectors, text, vectors, seed, device)
    model = _model(config, text, vectors, shelf)
    own = replace(policy)  # the tables are shared; the temperature and what is learned are the run's own
    return Parts(config, text, vectors, own, model.to(device), windows)


def resolved(config: RunConfig, text: Text, device: torch.device) -> RunConfig:
    """The same with what `auto` and defaults stand for, on this text and this device."""
    policy = config.policy.resolved(default_k(len(text.vocabulary)))
    return replace(config, policy=policy, training=config.training.resolved(device))


def located(config: RunConfig) -> RunConfig:
    """The same with files by their full paths, so that a run can be continued from anywhere."""
    config = with_languages(config)
    data, vectors = config.data, config.vectors
    if not is_built_in(data.source):
        data = replace(data, source=str(Path(data.source).resolve()))
    if vectors.source != "corpus":
        vectors = replace(vectors, source=str(Path(vectors.source).resolve()))
    return replace(config, data=data, vectors=vectors)


def with_languages(config: RunConfig) -> RunConfig:
    """The same with the languages by name that it translates between."""
    data = config.data
    if data.task != TRANSLATE:
        return config
    source, target = choose_languages(data.source, data.from_language, data.to_language)
    return replace(config, data=replace(data, from_language=source, to_language=target))


def start_from_vectors(
    model: SequenceModel, vectors: Embeddings, projected: Float[Tensor, "vocab dim"]
) -> None:
    """Give covered words their vectors, projected to the model's width, at the usual initial scale."""
    rows = projected[vectors.covered]
    scale = (WORD_RANGE / 3**0.5) / rows.pow(2).mean().sqrt()  # the deviation of a uniform in ± WORD_RANGE
    with torch.no_grad():
        model.embedding.weight[vectors.covered] = rows * scale


def _model(config: RunConfig, text: Text, vectors: Embeddings | None, shelf: Shelf) -> SequenceModel:
    random = Random(config.seed, Stream.INITIALISATION)
    model = build_model(config.model, len(text.vocabulary), random, text.source_size)
    if config.vectors.initialise and vectors:
        start_from_vectors(model, vectors, shelf.take(_projected, vectors, config.model.units))
    return model


def _projected(vectors: Embeddings, width: int) -> Float[Tensor, "vocab width"]:
    return project(vectors.vectors, width)


def _windows(text: Text, config: TrainingConfig, device: torch.device) -> Batches:
    return text.windows(config).to(device)


def _policy(
    config: PolicyConfig,
    vectors_config: VectorsConfig,
    text: Text,
    vectors: Embeddings | None,
    seed: int,
    device: torch.device,
) -> InputPolicy:
    vocabulary = text.vocabulary
    nothing = torch.zeros(len(vocabulary), 1)
    material = Material(
        train_ids=text.ids["train"],
        counts=torch.tensor(vocabulary.counts, dtype=torch.float64),
        vectors=vectors.vectors if vectors else nothing,
        protected=protected_ids(vectors_config, vocabulary),
        case_groups=vocabulary.case_groups(),
        unknown_id=vocabulary.unk_id,
        seed=seed,
    )
    return config.build(material, device)
