"""Text that a run's model makes of gold prefixes: made once, kept with the run, read from there."""

from collections.abc import Callable, Iterable, Iterator
from sys import intern
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from nnrs.corpus import Corpus
from nnrs.errors import DataError, RunError
from nnrs.evaluation.generate import ROWS, decoding_of, generate, teacher_forced
from nnrs.experiments.subject import TEACHER_FORCED, Request, Subject, decoding_label
from nnrs.models.base import SequenceModel
from nnrs.run_directory import Json
from nnrs.vocabulary import count_tokens
from nnrs.wording import counted

WITHOUT_WINDOW = (
    "Use a longer text, fewer metrics, or a smaller prefix or length (options of nnrs evaluate, and keys under "
    "[evaluate] in a grid file)."
)


class Continuations(NamedTuple):
    """What a model made of prefixes, and what stands there in the text; all as words."""

    gold: list[list[str]]
    generated: list[list[str]]


def window_lack(tokens: int, request: Request) -> str | None:
    """What a text of so many tokens lacks for the windows of a request, if anything."""
    if tokens >= request.prefix + request.length:
        return None
    window = f"{request.prefix} + {request.length} (prefix + length)"
    return f"a text of {counted(tokens, 'token')} holds no window of {window}"


def split_lack(corpus: Corpus, split: str, request: Request) -> str | None:
    """The same of a split, which is read no further than one window goes."""
    return window_lack(count_tokens(corpus, split, request.prefix + request.length), request)


def cut(
    ids: Int[Tensor, " tokens"], request: Request
) -> tuple[Int[Tensor, "n prefix"], Int[Tensor, "n length"]]:
    """Prefixes and the gold text that follows each: windows evenly spread over a text, none over another.

    >>> cut(torch.arange(11), Request(sentences=3, prefix=1, length=2))
    (tensor([[0], [3], [7]]), tensor([[1, 2], [4, 5], [8, 9]]))
    """
    if lack := window_lack(len(ids), request):
        raise DataError(f"{lack}. {WITHOUT_WINDOW}")
    size = request.prefix + request.length
    count = min(request.sentences, len(ids) // size)
    starts = torch.arange(count) * len(ids) // count
    windows = ids[starts[:, None] + torch.arange(size)].long()
    return windows[:, : request.prefix], windows[:, request.prefix :]


def continuations(subject: Subject, split: str, name: str) -> Continuations:
    """The stored text of a decoding, made now where there is none of the present model.

    Where the model is not at hand (on another machine, say) the stored text is taken as it is.
    """
    return subject.own.take(_continuations, subject, split, name)


def _continuations(subject: Subject, split: str, name: str) -> Continuations:
    asked = subject.request
    on = f"|on:{subject.other.name}" if subject.other else ""
    key = (
        f"n:{asked.sentences}|len:{asked.length}|decode:{decoding_label(name)}|prefix:{asked.prefix}"
        f"|text-seed:{asked.seed}|split:{split}{on}"
    )
    return kept_text(subject, split, key, lambda model: _made(subject, model, split, name, key))


def kept_text(
    subject: Subject, split: str, key: str, made: Callable[[SequenceModel], Iterator[Json]]
) -> Continuations:
    """What the run directory holds under a key, where it is of the present model and text; else what is made now."""
    directory = subject.directory
    first = next(directory.each("generations", key=key), None)
    if first and _is_current(subject, split, first):
        return _as_words(directory.each("generations", key=key))
    model = _model(subject, key)
    kept = subject.store("generations", "key", {key}, made(model))
    return _as_words(directory.each("generations", key=key) if kept else made(model))


def _is_current(subject: Subject, split: str, record: Json) -> bool:
    model = subject.directory.best_fingerprint()
    return model in (None, record["model"]) and record["text"] == subject.text_fingerprint(split)


def _as_words(records: Iterable[Json]) -> Continuations:
    """What the lines hold, each word once in memory, however often it is said."""
    both = Continuations([], [])
    for record in records:
        both.gold.append([intern(word) for word in record["gold"]])
        both.generated.append([intern(word) for word in record["generated"]])
    return both


def _model(subject: Subject, key: str) -> SequenceModel:
    try:
        return subject.loaded.model
    except RunError as error:
        raise RunError(f"no stored text is of {key}, and none can be made: {error}") from None


def _made(subject: Subject, model: SequenceModel, split: str, name: str, key: str) -> Iterator[Json]:
    """A line for each sentence; they are made as they are taken, so many at once as the model continues at once."""
    asked, (prefixes, gold) = subject.request, cut(subject.ids(split), subject.request)
    decode, text = subject.vocabulary.decode, subject.text_fingerprint(split)
    for first in range(0, len(prefixes), ROWS):
        before, behind = prefixes[first : first + ROWS], gold[first : first + ROWS]
        if name == TEACHER_FORCED:
            made = teacher_forced(model, before, behind)
        else:
            how = decoding_of(name)
            made = generate(model, before, length=asked.length, decoding=how, seed=asked.seed, place=first)
        for row in zip(before.tolist(), behind.tolist(), made.tolist(), strict=True):
            words = dict(zip(("prefix", "gold", "generated"), map(decode, row), strict=True))
            yield {"key": key, **words, "text": text}
