"""What a translator makes of sources, and how well it predicts their translations."""

import torch
from jaxtyping import Float
from torch import Tensor

from nnrs.evaluation.generate import ROWS, Decoding, generate
from nnrs.metrics.perplexity import Perplexity
from nnrs.models import Translator
from nnrs.models.base import SequenceModel
from nnrs.pairs import Pairs, Sentences

PAIRS = 50  # scored at once: bounds the logits in memory


def longest(source_words: int) -> int:
    """The most words a translation may have: one that long is no translation, and a model may never end.

    >>> longest(12)
    34
    """
    return 2 * source_words + 10


@torch.no_grad()
def target_nats(model: SequenceModel, pairs: Pairs) -> tuple[Float[Tensor, " sentences"], Perplexity]:
    """The loss of each sentence in the order of the text, its `<eos>` included, and the perplexity that they make."""
    device = next(model.parameters()).device
    placed, metric = pairs.to(device), Perplexity()
    order, nats = [], []
    for index in range(len(placed)):
        window = placed[index]
        logits, _ = model(window.inputs, model.first_state(window, None))
        nats.append(metric.update(logits, window.targets).double().sum(dim=1))
        order += placed.rows(index).tolist()
    return torch.cat(nats).cpu()[torch.tensor(order).argsort()], metric


def target_perplexity(model: SequenceModel, pairs: Pairs) -> Perplexity:
    """Teacher-forced perplexity of the targets given their sources; see `target_nats`."""
    return target_nats(model, pairs)[1]


@torch.no_grad()
def translate(
    model: Translator, sources: Sentences, *, eos_id: int, decoding: Decoding, seed: int = 0
) -> list[list[int]]:
    """The ids that the model makes of each source, without `<eos>`."""
    device = next(model.parameters()).device
    order, placed = sources.lengths.argsort(stable=True), sources.to(device)
    made: dict[int, list[int]] = {}
    for first in range(0, len(order), ROWS):
        rows = order[first : first + ROWS]  # of like lengths, so that none waits for a much longer one
        lengths = sources.lengths[rows].tolist()  # of words and an `<eos>`
        time = max(lengths)
        memory = model.read(placed.padded(rows.to(device), time))
        begin = torch.full((len(rows), 1), eos_id)
        words = generate(
            model,
            begin,
            length=longest(time - 1),
            decoding=decoding,
            seed=seed,
            end_id=eos_id,
            place=first,
            memory=memory,
        )
        lines = zip(rows.tolist(), words.tolist(), lengths, strict=True)
        made |= {row: until(line, eos_id)[: longest(length - 1)] for row, line, length in lines}
    return [made[row] for row in range(len(order))]


def until(ids: list[int], end_id: int) -> list[int]:
    """The ids before the first `end_id`, all of them where there is none.

    >>> until([5, 6, 0, 0], 0), until([5, 6], 0)
    ([5, 6], [5, 6])
    """
    return ids[: ids.index(end_id)] if end_id in ids else ids
