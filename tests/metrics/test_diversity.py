import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nnrs.errors import ConfigError
from nnrs.metrics.diversity import distinct, repetition

texts = st.integers(1, 4).flatmap(
    lambda rows: st.integers(3, 9).flatmap(
        lambda length: st.lists(
            st.lists(st.integers(0, 3), min_size=length, max_size=length), min_size=rows, max_size=rows
        )
    )
)


@given(rows=texts, order=st.integers(1, 3))
def test_both_equal_counting_sets(rows, order):
    grams = [[tuple(row[at : at + order]) for at in range(len(row) - order + 1)] for row in rows]
    tokens = torch.tensor(rows)
    assert repetition(tokens, order).tolist() == pytest.approx([1 - len(set(of)) / len(of) for of in grams])
    everything = [gram for of in grams for gram in of]
    assert distinct(tokens, order) == pytest.approx(len(set(everything)) / len(everything))


def test_texts_shorter_than_the_order_are_refused():
    for tokens, order in ((torch.zeros(2, 3, dtype=torch.long), 4), (torch.zeros(0, 3, dtype=torch.long), 1)):
        with pytest.raises(ConfigError, match="at least that many"):
            repetition(tokens, order)
