"""A continuation is what feeding one token at a time gives, in any batch; beams find the best they can reach."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from nnrs.errors import ConfigError
from nnrs.evaluation import generate as generating
from nnrs.evaluation.generate import DECODINGS, Decoding, decoding_of, generate, nucleus, teacher_forced
from nnrs.models import MODELS
from nnrs.seeding import Random, Stream

VOCAB = 19


def prefixes(count, length=4, vocab=VOCAB):
    return (Random(5, Stream.TEXT).uniform(count, length) * vocab).long()


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_greedy_takes_the_likeliest_token_each_time(make_model, kind):
    model, given = make_model(kind), prefixes(3)
    made = generate(model, given, length=6, decoding=DECODINGS["greedy"])
    for row, start in zip(made.tolist(), given.tolist(), strict=True):
        ids = list(start)
        for _ in range(6):
            logits, _ = model(torch.tensor([ids]))
            ids.append(int(logits[0, -1].argmax()))
        assert row == ids[4:]


@pytest.mark.parametrize("decoding", DECODINGS.values(), ids=DECODINGS)
def test_a_row_is_continued_the_same_in_any_batch(make_model, decoding, monkeypatch):
    model, given = make_model(), prefixes(7)
    at_once = generate(model, given, length=5, decoding=decoding, seed=3)
    monkeypatch.setattr(generating, "ROWS", 2)
    assert torch.equal(at_once, generate(model, given, length=5, decoding=decoding, seed=3))
    some = generate(model, given[3:6], length=5, decoding=decoding, seed=3, place=3)
    assert torch.equal(at_once[3:6], some)


@pytest.mark.parametrize("decoding", DECODINGS.values(), ids=DECODINGS)
@pytest.mark.parametrize("form", ["tensor", "logits"])
def test_any_function_from_ids_to_logits_is_continued_like_a_model_of_ours(make_model, decoding, form):
    model, given = make_model(), prefixes(3)

    def other(ids):
        logits, _ = model(ids)
        return logits if form == "tensor" else SimpleNamespace(logits=logits)

    expected = generate(model, given, length=5, decoding=decoding, seed=3)
    assert torch.equal(generate(other, given, length=5, decoding=decoding, seed=3), expected)


def test_samples_repeat_with_their_seed_and_differ_within_and_between_seeds(make_model):
    model, given = make_model(), torch.zeros(3, 1, dtype=torch.long)
    first, again, other = (
        generate(model, given, length=20, decoding=Decoding(), seed=seed).tolist() for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert first[0] != first[1]


def test_first_tokens_are_sampled_as_often_as_the_model_says(make_model):
    model, count = make_model(), 20_000
    with torch.no_grad():
        logits, _ = model(torch.tensor([[0]]))
    shares = torch.softmax(logits[0, -1].float() / 0.8, -1)
    given = torch.zeros(count, 1, dtype=torch.long)
    drawn = generate(model, given, length=1, decoding=Decoding(temperature=0.8))[:, 0]
    seen = torch.bincount(drawn, minlength=VOCAB) / count
    assert ((seen - shares).abs() <= 4 * (shares * (1 - shares) / count).sqrt() + 1e-6).all()


def test_nucleus_keeps_the_smallest_sufficient_set():
    probabilities = torch.tensor([[0.1, 0.4, 0.2, 0.3]])
    torch.testing.assert_close(nucleus(probabilities, 0.71), torch.tensor([[0.0, 4 / 9, 2 / 9, 3 / 9]]))
    torch.testing.assert_close(nucleus(probabilities, 0.05), torch.tensor([[0.0, 1.0, 0.0, 0.0]]))
    torch.testing.assert_close(nucleus(probabilities, 1.0), probabilities)


@torch.no_grad()
def scored(model, start, sequence):
    logits, _ = model(torch.tensor([[*start, *sequence]]))
    steps = torch.log_softmax(logits[0].float(), -1)[len(start) - 1 : -1]
    return float(steps.gather(1, torch.tensor(sequence)[:, None]).sum())


def test_a_beam_of_width_one_is_greedy(make_model):
    model, given = make_model(), prefixes(4)
    beam = generating._beam_search(model, given, 6, Decoding(), None)
    assert torch.equal(beam, generate(model, given, length=6, decoding=DECODINGS["greedy"]))


@pytest.mark.parametrize("kind", MODELS)
def test_a_wide_beam_finds_the_likeliest_of_all_sequences(make_model, kind):
    vocab, length = 4, 4
    model, given = make_model(kind, vocab), prefixes(5, 2, vocab)
    best = [
        max(
            itertools.product(range(vocab), repeat=length),
            key=lambda sequence: scored(model, start, list(sequence)),
        )
        for start in given.tolist()
    ]
    wide = generate(model, given, length=length, decoding=Decoding(width=vocab**length))
    assert [tuple(row) for row in wide.tolist()] == best


def test_a_narrow_beam_is_at_least_as_likely_as_greedy_on_the_whole_and_may_miss_the_best(make_model):
    vocab, length = 4, 5
    model, given = make_model("lstm", vocab), prefixes(40, 2, vocab)
    totals = []
    for decoding in (DECODINGS["greedy"], Decoding(width=2), Decoding(width=vocab**length)):
        rows = generate(model, given, length=length, decoding=decoding).tolist()
        totals.append(sum(scored(model, start, row) for start, row in zip(given.tolist(), rows, strict=True)))
    assert totals[0] < totals[1] < totals[2]


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_with_an_end_the_best_is_the_likeliest_per_length_to_the_penalty(make_model, penalty):
    vocab, length, end = 3, 4, 0
    model, given = make_model("lstm", vocab), prefixes(10, 2, vocab)
    decoding = Decoding(width=vocab**length, length_penalty=penalty)
    made = generate(model, given, length=length, decoding=decoding, end_id=end)
    for start, row in zip(given.tolist(), made.tolist(), strict=True):
        candidates = {}
        for sequence in itertools.product(range(vocab), repeat=length):
            kept = sequence[: sequence.index(end) + 1] if end in sequence else sequence
            candidates[kept] = scored(model, start, list(kept)) / len(kept) ** penalty
        best = max(candidates, key=candidates.get)
        assert row == [*best, *[end] * (length - len(best))]


def test_a_sample_goes_on_with_its_end_once_it_has_ended(make_model):
    model = make_model("lstm", 3)
    made = generate(model, prefixes(50, 2, 3), length=8, decoding=Decoding(), end_id=1)
    ended = (made == 1).cumsum(dim=1) > 0
    assert ended.any()
    assert (made[ended] == 1).all()
    assert (~ended[:, 0]).any()


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_teacher_forced_predictions_have_the_gold_history(make_model, kind):
    model, given, gold = make_model(kind), prefixes(60), prefixes(60, 5).flip(0)
    made = teacher_forced(model, given, gold)
    for row in (0, 59):
        for step in range(5):
            logits, _ = model(torch.tensor([[*given[row].tolist(), *gold[row, :step].tolist()]]))
            assert made[row, step] == logits[0, -1].argmax()


def test_decodings_have_names_that_tell_them_apart():
    labels = [
        decoding.label()
        for decoding in (
            *DECODINGS.values(),
            Decoding(temperature=0.7),
            Decoding(width=4, length_penalty=0.6),
        )
    ]
    assert labels == ["greedy", "sample", "top-p0.9", "beam4-penalty1", "sample-t0.7", "beam4-penalty0.6"]


def test_a_decoding_is_called_by_its_name_or_with_a_number_of_its_own():
    assert {name: decoding_of(name) for name in DECODINGS} == DECODINGS
    assert (decoding_of("beam8"), decoding_of("top-p.5")) == (Decoding(width=8), Decoding(top_p=0.5))
    for bad, message in (
        ("bean", "unknown decoding 'bean'. Did you mean 'beam'"),
        ("beam1", "at least 2, got 'beam1'. A beam of 1 is greedy"),
        ("beam2.5", "whole width"),
        ("top-p0", r"top-p must be in \(0, 1\], got 0.0"),
    ):
        with pytest.raises(ConfigError, match=message):
            decoding_of(bad)


def test_bad_settings_are_refused(make_model):
    for bad in (
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"temperature": 1e-39},
        {"temperature": 1e39},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"width": 0},
    ):
        with pytest.raises(ConfigError):
            Decoding(**bad)
    for given, length in ((prefixes(1), 0), (torch.zeros(1, 0, dtype=torch.long), 1)):
        with pytest.raises(ConfigError, match="at least 1"):
            generate(make_model(), given, length=length, decoding=Decoding())
