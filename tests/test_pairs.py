import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nnrs.batches import IGNORED
from nnrs.errors import ConfigError, DataError
from nnrs.pairs import JITTER, Pairs, Sentences
from nnrs.seeding import Random, Stream

EOS = 0
lengths = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30)


def sentences(sizes, first):
    """Sentences of so many words, each word told from every other."""
    ids, rows = [], torch.tensor([size + 1 for size in sizes])
    for size in sizes:
        ids += [*range(first, first + size), EOS]
        first += size
    return Sentences(torch.tensor(ids, dtype=torch.int32), rows)


def pairs_of(sizes, batch_size=4):
    source, target = zip(*sizes, strict=True)
    return Pairs(sentences(source, 1), sentences(target, 1001), batch_size=batch_size, eos_id=EOS)


def test_two_pairs_become_the_hand_worked_batch():
    # Targets of 2 words and of none, sources of 1 and of 3; the shorter target comes first.
    [window] = list(pairs_of([(1, 2), (3, 0)]))
    assert window.source.tolist() == [[2, 3, 4, EOS], [1, EOS, IGNORED, IGNORED]]
    assert window.targets.tolist() == [[EOS, IGNORED, IGNORED], [1001, 1002, EOS]]
    assert window.inputs.tolist() == [[EOS, EOS, EOS], [EOS, 1001, 1002]]
    assert window.previous.tolist() == [[EOS, EOS, EOS], [EOS, EOS, 1001]]
    assert (window.padding, window.num_tokens) == (2, 4)
    assert window.scored.tolist() == [[True, False, False], [True, True, True]]


def rows_of(pairs):
    """Each sentence with its translation, without what fills it up."""
    for index in range(len(pairs)):
        window = pairs[index]
        for row, source, target in zip(pairs.rows(index), window.source, window.targets, strict=True):
            yield row, source[source != IGNORED].tolist(), target[target != IGNORED].tolist()


@settings(max_examples=50)
@given(sizes=lengths, epoch=st.integers(0, 3), batch_size=st.integers(1, 7))
def test_an_epoch_has_every_pair_once_with_its_own_translation(sizes, epoch, batch_size):
    pairs = pairs_of(sizes, batch_size)
    shuffled = pairs.shuffled(Random(1, Stream.ORDER, epoch))
    expected = list(zip(*(_lines(part) for part in (pairs._source, pairs._target)), strict=True))
    found = sorted((row, source, target) for row, source, target in rows_of(shuffled))
    assert found == [(row, source, target) for row, (source, target) in enumerate(expected)]
    assert len(shuffled) == len(pairs) == -(-len(sizes) // batch_size)
    tokens = sum(shuffled[index].num_tokens for index in range(len(shuffled)))
    assert tokens == sum(target + 1 for _, target in sizes)


def _lines(part):
    return [line.tolist() for line in part.ids.split(part.lengths.tolist())]


def test_epochs_differ_in_the_batches_and_in_their_order_and_repeat_from_their_seed():
    sizes = [(place % 7, place % 5) for place in range(60)]

    def order(seed, epoch):
        shuffled = pairs_of(sizes).shuffled(Random(seed, Stream.ORDER, epoch))
        return [shuffled.rows(index).tolist() for index in range(len(shuffled))]

    assert order(1, 1) == order(1, 1)
    assert order(1, 1) != order(1, 2)
    assert order(1, 1) != order(2, 1)
    assert {frozenset(batch) for batch in order(1, 1)} != {frozenset(batch) for batch in order(1, 2)}


def test_sentences_of_like_lengths_share_a_batch():
    sizes = [(place % 19, place % 11) for place in range(880)]
    shuffled = pairs_of(sizes, batch_size=8).shuffled(Random(1, Stream.ORDER))
    for index in range(len(shuffled)):
        window = shuffled[index]  # 80 targets of each length: batches of 8 never mix them
        assert window.padding == 0
        read = (window.source != IGNORED).sum(1)
        # Of 80 sources of 19 lengths, 8 in a row span about 2; noise of JITTER can part them by as much.
        assert int(read.max() - read.min()) <= 2 * JITTER


def test_sentences_that_are_no_pairs_are_refused():
    with pytest.raises(DataError, match="2 sentences cannot be paired with 1"):
        Pairs(sentences([1, 2], 1), sentences([1], 5), batch_size=2, eos_id=EOS)
    with pytest.raises(ConfigError, match="batch size"):
        pairs_of([(1, 1)], batch_size=0)
    with pytest.raises(IndexError):
        pairs_of([(1, 1)])[1]
