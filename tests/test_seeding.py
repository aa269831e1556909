import itertools
import math

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from nnrs.seeding import Drawn, Random, Stream


def test_seed_stream_step_and_rank_each_change_every_number():
    reference = (1, Stream.DRAWS, 2, 3)
    others = [
        (2, Stream.DRAWS, 2, 3),
        (1, Stream.DROPOUT, 2, 3),
        (1, Stream.DRAWS, 3, 3),
        (1, Stream.DRAWS, 2, 4),
    ]
    numbers = [Random(*arguments).uniform(1000) for arguments in (reference, *others)]
    for a, b in itertools.combinations(numbers, 2):
        assert (a == b).double().mean() < 0.01
    assert torch.equal(numbers[0], Random(*reference).uniform(1000))


def test_neighboring_steps_do_not_overlap_however_many_numbers_are_drawn():
    long = Random(1, Stream.DRAWS, 0).uniform(200_000)
    following = Random(1, Stream.DRAWS, 1).uniform(64)
    windows = long.unfold(0, 64, 1)
    assert not (windows == following).all(1).any()


def test_numbers_are_uniform_in_zero_to_one():
    numbers = Random(5, Stream.TEXT).uniform(100_000).double()
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert abs(numbers.mean().item() - 0.5) < 4 / math.sqrt(12 * len(numbers))
    for low in torch.arange(0, 1, 0.1).tolist():
        share = ((numbers >= low) & (numbers < low + 0.1)).double().mean().item()
        assert abs(share - 0.1) < 4 * math.sqrt(0.1 * 0.9 / len(numbers))


def test_a_stream_goes_on_from_call_to_call():
    random = Random(1, Stream.DRAWS)
    assert not torch.equal(random.uniform(10), random.uniform(10))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.65])
def test_dropout_masks_have_their_rate_and_mean_one(rate):
    mask = Random(1, Stream.DROPOUT, 4).dropout_mask(30, 50, 41, rate=rate)
    assert mask.shape == (30, 50, 41)
    count = mask.numel()
    dropped = (mask == 0).double().mean().item()
    assert abs(dropped - rate) < 4 * math.sqrt(rate * (1 - rate) / count) + 1 / 65536
    kept = mask[mask > 0].unique()
    assert len(kept) == 1
    assert kept.item() == pytest.approx(1 / (1 - rate), rel=1e-4)


def test_torchs_own_generator_is_left_alone():
    state = torch.get_rng_state()
    Random(1, Stream.DRAWS).uniform(10)
    assert torch.equal(state, torch.get_rng_state())


def numpy_words(seed, stream, step, rank, count):
    key, counter = (
        np.array(numbers, dtype=np.uint64) for numbers in ([seed % 2**64, stream], [0, 0, step, rank])
    )
    return np.random.Philox(key=key, counter=counter).random_raw(count)


@pytest.mark.parametrize("seed", [0, 1, 2**62 + 5, 2**63 - 1, -1])
def test_uniform_numbers_are_the_upper_bits_of_half_words(seed):
    words = numpy_words(seed, Stream.TEXT, 812, 2, 7)
    upper = (words.view(np.uint32) >> np.uint32(8)).astype(np.float64) / 2**24
    numbers = Random(seed, Stream.TEXT, 812, 2).uniform(2, 7)
    assert torch.equal(numbers.double(), torch.from_numpy(upper).view(2, 7))


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.99])
def test_dropout_masks_keep_what_their_16_bits_put_above_the_rate(rate):
    words = numpy_words(3, Stream.DROPOUT, 5, 0, 250)
    place = words.view(np.int16).astype(np.int64) + 32768  # in [0, 65536)
    kept = torch.from_numpy(place >= round(rate * 65536))
    mask = Random(3, Stream.DROPOUT, 5).dropout_mask(1000, rate=rate)
    assert torch.equal(mask != 0, kept)
    assert kept.any()


def test_every_call_begins_with_a_new_word():
    words = numpy_words(3, Stream.DRAWS, 0, 0, 4)
    random = Random(3, Stream.DRAWS)
    random.uniform(3)  # one and a half words
    random.dropout_mask(1, rate=0.5)  # a quarter of the third
    expected = (words[3:].view(np.uint32) >> np.uint32(8)).astype(np.float32) / 2**24
    assert torch.equal(random.uniform(2), torch.from_numpy(expected))


def test_words_drawn_before_give_the_numbers_that_would_be_drawn():
    words = numpy_words(6, Stream.DRAWS, 9, 0, 40).view(np.int64)
    one, other = Random(6, Stream.DRAWS, 9), Drawn(torch.from_numpy(words))
    for shape in ((3, 5), (1,), (4, 2)):
        assert torch.equal(one.uniform(*shape), other.uniform(*shape))
        assert torch.equal(one.dropout_mask(*shape, rate=0.4), other.dropout_mask(*shape, rate=0.4))


def test_shapes_are_checked_while_the_tests_run():
    pytest.importorskip("beartype")
    with pytest.raises(TypeCheckError):
        Drawn(torch.zeros(2, 2, dtype=torch.int64))


@pytest.mark.gpu
@pytest.mark.parametrize("seed", [1, 2**62 + 5, -1])
@pytest.mark.parametrize("stream", [Stream.ORDER, Stream.DRAWS])  # Triton compiles the number 1 in
def test_a_gpu_gives_the_numbers_that_the_cpu_gives_bit_for_bit(seed, stream):
    cpu, cuda = (Random(seed, stream, 812, 3, device=device) for device in ("cpu", "cuda"))
    for shape in ((1,), (3, 5), (4, 1000)):  # each goes on where the one before ended
        assert torch.equal(cpu.uniform(*shape), cuda.uniform(*shape).cpu())
        assert torch.equal(cpu.dropout_mask(*shape, rate=0.3), cuda.dropout_mask(*shape, rate=0.3).cpu())


def test_no_numbers_are_a_shape_too():
    random = Random(1, Stream.DRAWS)
    assert random.uniform(3, 0).shape == (3, 0)
    assert random.dropout_mask(0, rate=0.5).shape == (0,)
    assert torch.equal(random.uniform(4), Random(1, Stream.DRAWS).uniform(4))
