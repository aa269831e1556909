import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nnrs.batches import IGNORED, Windows
from nnrs.errors import ConfigError, DataError

EOS = 99


def joined(windows: Windows, name: str) -> list[list[int]]:
    """Each row of all windows, one after another."""
    return torch.cat([getattr(window, name) for window in windows], dim=1).tolist()


def test_windows_of_nine_tokens_in_two_rows_are_the_hand_worked_ones():
    # Targets 1..9; inputs <eos> 1..8; rows of 4, so 9 is dropped. Windows of 3: times 0-2, then time 3 alone.
    windows = Windows(torch.arange(1, 10), batch_size=2, length=3, eos_id=EOS)
    first, last = windows
    assert first.inputs.tolist() == [[EOS, 1, 2], [4, 5, 6]]
    assert first.targets.tolist() == [[1, 2, 3], [5, 6, 7]]
    assert first.previous.tolist() == [[EOS, EOS, 1], [3, 4, 5]]
    assert last.inputs.tolist() == [[3], [7]]
    assert last.targets.tolist() == [[4], [8]]
    assert last.previous.tolist() == [[2], [6]]
    assert (len(windows), windows.num_tokens) == (2, 8)


def test_the_remainder_is_padded_with_ignored_targets_when_asked():
    # Seven tokens in three rows of ceil(7 / 3) = 3: two targets too many.
    windows = Windows(torch.arange(1, 8), batch_size=3, length=5, eos_id=EOS, pad_remainder=True)
    window = windows[0]
    assert window.targets.tolist() == [[1, 2, 3], [4, 5, 6], [7, IGNORED, IGNORED]]
    assert window.inputs.tolist() == [[EOS, 1, 2], [3, 4, 5], [6, EOS, EOS]]
    assert (len(windows), windows.num_tokens) == (1, 7)


sizes = st.tuples(st.integers(1, 7), st.integers(1, 9), st.integers(0, 60))


@given(sizes=sizes, pad=st.booleans())
@settings(deadline=None)
def test_rows_equal_a_slow_walk_over_the_text(sizes, pad):
    batch_size, length, extra = sizes
    text = list(range(2 * batch_size + extra))
    windows = Windows(torch.tensor(text), batch_size=batch_size, length=length, eos_id=EOS, pad_remainder=pad)
    inputs, targets, previous = (joined(windows, name) for name in ("inputs", "targets", "previous"))
    row_length = len(targets[0])
    for row in range(batch_size):
        for time in range(row_length):
            place = row * row_length + time
            if place >= len(text):
                assert (targets[row][time], inputs[row][time]) == (IGNORED, EOS)
                continue
            assert targets[row][time] == text[place]
            assert inputs[row][time] == (text[place - 1] if place >= 1 else EOS)
            assert previous[row][time] == (text[place - 2] if place >= 2 else EOS)


@given(sizes=sizes)
@settings(deadline=None)
def test_every_token_is_scored_exactly_once_in_evaluation(sizes):
    batch_size, length, extra = sizes
    text = torch.arange(batch_size + extra)
    windows = Windows(text, batch_size=batch_size, length=length, eos_id=EOS, pad_remainder=True)
    scored = [token for row in joined(windows, "targets") for token in row if token != IGNORED]
    assert scored == text.tolist()
    assert windows.num_tokens == len(text)
    assert [window.num_tokens for window in windows] == [int(window.scored.sum()) for window in windows]


@given(sizes=sizes)
@settings(deadline=None)
def test_training_drops_fewer_tokens_than_there_are_rows(sizes):
    batch_size, length, extra = sizes
    text = torch.arange(2 * batch_size + extra)
    windows = Windows(text, batch_size=batch_size, length=length, eos_id=EOS)
    used = [token for row in joined(windows, "targets") for token in row]
    assert used == text.tolist()[: len(used)]
    assert windows.num_tokens == len(used) > len(text) - batch_size


def test_windows_are_int64_whatever_the_text_and_leave_it_alone():
    text = torch.arange(10, dtype=torch.int32)
    window = Windows(text, batch_size=2, length=4, eos_id=EOS)[0]
    assert {window.inputs.dtype, window.targets.dtype, window.previous.dtype} == {torch.int64}
    assert text.equal(torch.arange(10, dtype=torch.int32))


def test_moved_windows_are_the_same_windows_elsewhere():
    windows = Windows(torch.arange(10), batch_size=2, length=4, eos_id=EOS)
    moved = windows.to("meta")
    assert (len(moved), moved[0].inputs.device.type, moved[0].targets.device.type) == (2, "meta", "meta")
    assert windows[0].inputs.device.type == "cpu"


def test_there_is_no_window_beyond_the_last():
    windows = Windows(torch.arange(10), batch_size=2, length=4, eos_id=EOS)
    for index in (2, -1):
        with pytest.raises(IndexError, match=f"window {index} of 2"):
            windows[index]


@pytest.mark.parametrize(("pad", "needed"), [(False, 40), (True, 20)])
def test_a_text_smaller_than_one_batch_is_refused_by_its_numbers(pad, needed):
    message = f"{needed - 1} tokens cannot fill a batch of 20 rows \\(at least {needed}\\).*smaller batch"
    with pytest.raises(DataError, match=message):
        Windows(torch.zeros(needed - 1).int(), batch_size=20, length=35, eos_id=0, pad_remainder=pad)
    Windows(torch.zeros(needed).int(), batch_size=20, length=35, eos_id=0, pad_remainder=pad)


@pytest.mark.parametrize("bad", [{"batch_size": 0}, {"length": 0}])
def test_empty_windows_are_refused(bad):
    with pytest.raises(ConfigError, match="must be at least 1"):
        Windows(torch.arange(10), **{"batch_size": 2, "length": 4, "eos_id": 0, **bad})


def test_windows_are_equal_where_text_rows_and_length_are():
    ids = torch.arange(40) % 7
    made = Windows(ids, batch_size=2, length=5, eos_id=0)
    assert made.equals(Windows(ids, batch_size=2, length=5, eos_id=0))
    for other in (
        Windows(ids, batch_size=4, length=5, eos_id=0),
        Windows(ids, batch_size=2, length=4, eos_id=0),
        Windows(ids.flip(0), batch_size=2, length=5, eos_id=0),
    ):
        assert not made.equals(other)
