"""Text as a run reads it: a corpus as ids, and, where a run translates, its sources beside it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.batches import Windows
from nnrs.corpus import SPLITS, Corpus, is_built_in, open_corpus
from nnrs.errors import DataError
from nnrs.evaluation.evaluate import text_nats, text_perplexity
from nnrs.evaluation.translate import PAIRS, target_nats, target_perplexity
from nnrs.experiments.config import TRANSLATE, DataConfig
from nnrs.files import explained
from nnrs.metrics.perplexity import Perplexity
from nnrs.models.base import SequenceModel
from nnrs.neighbors.cache import fingerprint_of
from nnrs.pairs import Pairs, Sentences
from nnrs.parallel import choose_languages, open_parallel
from nnrs.training.loop import TrainingConfig
from nnrs.vocabulary import UNK, Vocabulary, token_ids

WORTH_SAYING = 0.01  # the share of a split's tokens


def check_still_there(config: DataConfig, run: Path, remedy: str) -> None:
    """Refuse a run whose text was moved, renamed or deleted."""
    path = Path(config.source)
    with explained(path, "read"):
        if not is_built_in(config.source) and not path.exists():
            raise DataError(f"the text of {run} is not there any more: {path}. {remedy}")


@dataclass(frozen=True, eq=False)
class Text:
    """A corpus as ids."""

    corpus: Corpus
    vocabulary: Vocabulary
    ids: dict[str, Int[Tensor, " tokens"]]

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the vocabulary and of every split's ids."""
        return fingerprint_of(self.vocabulary.fingerprint, *(self.ids[split] for split in SPLITS))

    @property
    def size(self) -> str:
        """The text in words for people."""
        sizes = ", ".join(f"{split} {len(ids):,}" for split, ids in self.ids.items())
        return f"{self.corpus.name}, {sizes} tokens, vocabulary {len(self.vocabulary):,}"

    @property
    def remark(self) -> str | None:
        """How much of it is words that are never trained; None where that is little, or `<unk>` is trained."""
        words = self.vocabulary
        if words.counts[words.unk_id]:
            return None
        shares = {
            split: float((self.ids[split] == words.unk_id).float().mean()) for split in ("valid", "test")
        }
        if max(shares.values()) < WORTH_SAYING:
            return None
        told = " and ".join(f"{share:.1%} of the {split} tokens" for split, share in shares.items())
        return (
            f"{told} are words that the training text lacks. They are scored as {UNK}, which never occurs in "
            f"training: each costs much, whatever the method. --min-count 2 trains {UNK} on words that occur once."
        )

    @property
    def source_size(self) -> int | None:
        """The size of the vocabulary that is translated from; None where nothing is translated."""
        return None

    @property
    def how_scored(self) -> list[str]:
        """What the signature of a reported perplexity says of it."""
        return ["streams:1"]

    def windows(self, config: TrainingConfig) -> Windows | Pairs:
        """What is trained on."""
        ids, eos_id = self.ids["train"], self.vocabulary.eos_id
        return Windows(ids, batch_size=config.batch_size, length=config.bptt, eos_id=eos_id)

    def perplexity(self, model: SequenceModel, split: str, streams: int) -> Perplexity:
        """Teacher-forced, every token of a split scored; a text may be read as several streams."""
        return text_perplexity(model, self.ids[split], eos_id=self.vocabulary.eos_id, streams=streams)

    def losses(self, model: SequenceModel, split: str) -> Float[Tensor, " pieces"]:
        """The loss of every token in nats, in the order of the text, which is read as one stream."""
        nats, _ = text_nats(model, self.ids[split], eos_id=self.vocabulary.eos_id)
        return nats.float().cpu()  # exact: each was computed in float32

    def perplexity_from(self, losses: Float[Tensor, " pieces"], split: str) -> float:
        """The perplexity that the losses of a split make."""
        return Perplexity(float(losses.sum(dtype=torch.float64)), len(self.ids[split])).compute()

    @staticmethod
    def read(config: DataConfig) -> "Text":
        """The text a configuration names, its vocabulary from the training split."""
        if config.task == TRANSLATE:
            return ParallelText.read_pairs(config)
        corpus = open_corpus(config.source)
        vocabulary = Vocabulary.from_corpus(corpus, config.min_count, config.max_vocabulary)
        return Text(corpus, vocabulary, {split: token_ids(corpus, split, vocabulary) for split in SPLITS})


@dataclass(frozen=True, eq=False)
class ParallelText(Text):
    """Text of one language, which is translated into, and what it is translated from, line by line."""

    source: Corpus
    source_vocabulary: Vocabulary
    sources: dict[str, Sentences]
    targets: dict[str, Sentences]

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of both vocabularies, of every split's ids in both languages, and of where lines end."""
        sides = [(side.ids, side.lengths) for part in (self.sources, self.targets) for side in part.values()]
        parts = [tensor for pair in sides for tensor in pair]
        return fingerprint_of(self.vocabulary.fingerprint, self.source_vocabulary.fingerprint, *parts)

    @property
    def size(self) -> str:
        """The text in words for people."""
        sizes = ", ".join(f"{split} {len(part):,}" for split, part in self.targets.items())
        words = f"{len(self.source_vocabulary):,} and {len(self.vocabulary):,} words"
        return f"{self.corpus.name}, {sizes} pairs, vocabularies of {words}"

    @property
    def source_size(self) -> int:
        """The size of the vocabulary that is translated from."""
        return len(self.source_vocabulary)

    @property
    def how_scored(self) -> list[str]:
        """Nothing: sentences are scored each by itself."""
        return []

    def windows(self, config: TrainingConfig) -> Pairs:
        """The pairs that are trained on."""
        return self.pairs("train", config.batch_size)

    def pairs(self, split: str, batch_size: int) -> Pairs:
        """The sentences of a split with their translations."""
        eos_id = self.vocabulary.eos_id
        return Pairs(self.sources[split], self.targets[split], batch_size=batch_size, eos_id=eos_id)

    def perplexity(self, model: SequenceModel, split: str, streams: int) -> Perplexity:
        """Teacher-forced, every target word scored, given its source; sentences are streams already."""
        return target_perplexity(model, self.pairs(split, PAIRS))

    def losses(self, model: SequenceModel, split: str) -> Float[Tensor, " pieces"]:
        """The loss of every sentence in nats, in the order of the text, each given its source."""
        return target_nats(model, self.pairs(split, PAIRS))[0]

    @staticmethod
    def read_pairs(config: DataConfig) -> "ParallelText":
        """The text a configuration names in both its languages, vocabularies from the training split."""
        languages = choose_languages(config.source, config.from_language, config.to_language)
        source, target = open_parallel(config.source, *languages)
        words, source_words = (
            Vocabulary.from_corpus(corpus, config.min_count, config.max_vocabulary)
            for corpus in (target, source)
        )
        targets = {split: Sentences.of(target, split, words) for split in SPLITS}
        return ParallelText(
            target,
            words,
            {split: part.ids for split, part in targets.items()},
            source=source,
            source_vocabulary=source_words,
            sources={split: Sentences.of(source, split, source_words) for split in SPLITS},
            targets=targets,
        )
