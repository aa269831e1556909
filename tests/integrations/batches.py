"""Random batches, packed and padded, and the rules for them read one position at a time."""

import torch
from hypothesis import strategies as st
from tests.integrations.tiny import VOCAB


@st.composite
def packed_or_padded(draw):
    """(ids, labels, attention_mask or None, position_ids or None) of a random batch."""
    batch, time = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    ids = torch.randint(1, VOCAB, (batch, time), generator=generator)
    labels = torch.where(torch.rand(batch, time, generator=generator) < 0.3, -100, ids)
    mask = positions = None
    kind = draw(st.sampled_from(["plain", "left", "right", "packed"]))
    if kind in ("left", "right"):
        length = torch.randint(1, time + 1, (batch, 1), generator=generator)
        mask = (torch.arange(time) < length).long()
        mask = mask.flip(1) if kind == "left" else mask
        labels = torch.where(mask == 0, -100, labels)
    if kind == "packed":
        starts = torch.rand(batch, time, generator=generator) < 0.3
        starts[:, 0] = True
        where = torch.arange(time).expand(batch, time)
        positions = where - torch.where(starts, where, 0).cummax(1).values
    return ids, labels, mask, positions


def by_the_rules(ids, labels, mask, positions, row, t):
    """One position at a time, as the documentation says it."""
    if labels[row, t] == -100 or t == 0:
        return False
    if mask is not None and (mask[row, t] == 0 or mask[row, t - 1] == 0):
        return False
    return not (positions is not None and positions[row, t] == 0)


def expected_changes(batch):
    """Where the inputs of a batch may change, in nested lists."""
    rows, time = batch[0].shape
    return [[by_the_rules(*batch, row, t) for t in range(time)] for row in range(rows)]
