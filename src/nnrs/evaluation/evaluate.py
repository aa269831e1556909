"""A model and a text give scores."""

import torch
from jaxtyping import Int
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
def text_perplexity(
    model: SequenceModel, ids: Int[Tensor, " tokens"], *, eos_id: int, streams: int = 1
) -> Perplexity:
    """Teacher-forced perplexity: the first input is `<eos>`, every token is scored, the state is carried.

    More than one stream is faster, but each starts without a history: reported figures use one.
    """
    windows = scoring_windows(ids, eos_id=eos_id, streams=streams).to(next(model.parameters()).device)
    metric, state = Perplexity(), None
    for window in windows:
        logits, state = model(window.inputs, state)
        metric.update(logits, window.targets)
    return metric
