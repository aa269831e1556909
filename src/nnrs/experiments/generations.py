"""Text that a run's model makes of gold prefixes: made once, kept with the run, read from there."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from nnrs.errors import DataError, RunError
from nnrs.evaluation.generate import DECODINGS, generate, teacher_forced
from nnrs.experiments.subject import TEACHER_FORCED, Request, Subject
from nnrs.run_directory import Json


class Continuations(NamedTuple):
    """What a model made of prefixes, and what stands there in the text; all as words."""

    gold: list[list[str]]
    generated: list[list[str]]


def cut(
    ids: Int[Tensor, " tokens"], request: Request
) -> tuple[Int[Tensor, "n prefix"], Int[Tensor, "n length"]]:
    """Prefixes and the gold text that follows each: windows evenly spread over a text, none over another.

    >>> cut(torch.arange(11), Request(sentences=3, prefix=1, length=2))
    (tensor([[0], [3], [7]]), tensor([[1, 2], [4, 5], [8, 9]]))
    """
    size = request.prefix + request.length
    count = min(request.sentences, len(ids) // size)
    if count == 0:
        raise DataError(
            f"a text of {len(ids)} tokens holds no window of {request.prefix} + {request.length}. "
            "Use a smaller --prefix or --length."
        )
    starts = torch.arange(count) * len(ids) // count
    windows = ids[starts[:, None] + torch.arange(size)].long()
    return windows[:, : request.prefix], windows[:, request.prefix :]


def decoding_label(name: str) -> str:
    """As it stands in a signature."""
    return name if name == TEACHER_FORCED else DECODINGS[name].label()


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
    stored = [record for record in subject.directory.records("generations") if record.get("key") == key]
    if not stored or not _is_current(subject, split, stored[0]):
        stored = _make(subject, split, name, key)
        subject.store("generations", "key", stored)
    return Continuations([record["gold"] for record in stored], [record["generated"] for record in stored])


def _is_current(subject: Subject, split: str, record: Json) -> bool:
    model = subject.directory.best_fingerprint()
    return model in (None, record["model"]) and record["text"] == subject.text_fingerprint(split)


def _make(subject: Subject, split: str, name: str, key: str) -> list[Json]:
    try:
        model = subject.loaded.model
    except RunError as error:
        raise RunError(f"no stored text is of {key}, and none can be made: {error}") from None
    prefixes, gold = cut(subject.ids(split), subject.request)
    if name == TEACHER_FORCED:
        made = teacher_forced(model, prefixes, gold)
    else:
        length, seed = subject.request.length, subject.request.seed
        made = generate(model, prefixes, length=length, decoding=DECODINGS[name], seed=seed)
    decode, text = subject.vocabulary.decode, subject.text_fingerprint(split)
    rows = zip(prefixes.tolist(), gold.tolist(), made.tolist(), strict=True)
    return [
        {"key": key, "prefix": decode(a), "gold": decode(b), "generated": decode(c), "text": text}
        for a, b, c in rows
    ]
