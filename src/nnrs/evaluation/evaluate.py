"""A model and a text give scores."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.batches import Windows
from nnrs.metrics.perplexity import Perplexity
from nnrs.models.base import SequenceModel

POSITIONS = 700  # scored at once: bounds the logits in memory, whatever the number of streams


def scoring_windows(ids: Int[Tensor, " tokens"], *, eos_id: int, streams: int = 1) -> Windows:
    """The windows in which a text is scored: every token once, the text read as so many streams."""
    streams = min(streams, len(ids))
    length = max(POSITIONS // streams, 1)
    return Windows(ids, batch_size=streams, length=length, eos_id=eos_id, pad_remainder=True)


@torch.no_grad()
def text_nats(
    model: SequenceModel, ids: Int[Tensor, " tokens"], *, eos_id: int, streams: int = 1
) -> tuple[Float[Tensor, " tokens"], Perplexity]:
    """The loss of every token in the order of the text, and the perplexity that they make.

    Teacher-forced: the first input is `<eos>`, the state is carried. More than one stream is faster, but each starts
    without a history: reported figures use one.
    """
    device = next(model.parameters()).device
    windows = scoring_windows(ids, eos_id=eos_id, streams=streams).to(device)
    metric, state, first = Perplexity(), None, 0
    # Filled in place: a small tensor kept from every window would pin the memory of that window's logits.
    rows = min(streams, len(ids))
    nats = torch.zeros(rows, -(-len(ids) // rows), dtype=torch.float64, device=device)
    for window in windows:
        logits, state = model(window.inputs, state)
        losses = metric.update(logits, window.targets)
        nats[:, first : first + losses.shape[1]] = losses
        first += losses.shape[1]
    return nats.flatten()[
        : len(ids)
    ], metric  # rows are consecutive pieces of the text; the last is filled up


def text_perplexity(
    model: SequenceModel, ids: Int[Tensor, " tokens"], *, eos_id: int, streams: int = 1
) -> Perplexity:
    """Teacher-forced perplexity, every token scored; see `text_nats`."""
    return text_nats(model, ids, eos_id=eos_id, streams=streams)[1]
