import itertools
import math

import pytest
import torch

from nnrs.seeding import Random, Stream


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


@pytest.mark.gpu
def test_on_a_gpu_the_same_step_gives_the_same_numbers():
    first, second = (Random(1, Stream.DRAWS, 3, device="cuda") for _ in range(2))
    assert torch.equal(first.uniform(1000), second.uniform(1000))
    assert not torch.equal(first.uniform(1000), Random(1, Stream.DRAWS, 4, device="cuda").uniform(1000))
    mask = first.dropout_mask(1000, 1000, rate=0.25)
    assert abs((mask == 0).double().mean().item() - 0.25) < 0.003
