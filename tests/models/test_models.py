"""What is asked of every model: windows of any length equal the whole text, and nothing sees ahead."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nnrs.models import MODELS, ModelConfig, build_model
from nnrs.seeding import Random, Stream

BATCH, TIME, VOCAB, UNITS = 3, 11, 17, 8
kinds = pytest.mark.parametrize("kind", MODELS)


def model_of(kind, dtype=torch.float64, **overrides):
    """A small model whose transformer context of 4 is far shorter than the text."""
    settings = {"units": UNITS, "heads": 2, "context": 4, "dropout": 0.4} | overrides
    config = ModelConfig(kind=kind, **settings)
    return build_model(config, VOCAB, Random(1, Stream.INITIALISATION)).to(dtype)


def text():
    return (Random(1, Stream.TEXT).uniform(BATCH, TIME) * VOCAB).long()


def masks_of(model, dtype=torch.float64):
    masks = model.draw_masks(BATCH, TIME, Random(1, Stream.DROPOUT))
    return tuple(mask.to(dtype) for mask in masks)


def encode_in_windows(model, vectors, masks, cuts):
    """The hidden vectors and last state of an encoder that is stopped and continued at the cuts."""
    state, pieces = model.init_state(len(vectors)), []
    for start, end in zip([0, *cuts], [*cuts, vectors.shape[1]], strict=True):
        window = tuple(mask[:, start:end] for mask in masks)
        hidden, state = model.encode(vectors[:, start:end], state, window)
        pieces.append(hidden)
    return torch.cat(pieces, dim=1), state


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@kinds
def test_one_token_at_a_time_equals_the_whole_text_with_dropout_on(kind, dtype, tolerance):
    model = model_of(kind, dtype)
    vectors, masks = model.embed(text()), masks_of(model, dtype)
    whole, whole_state = model.encode(vectors, model.init_state(BATCH), masks)
    steps, steps_state = encode_in_windows(model, vectors, masks, list(range(1, TIME)))
    torch.testing.assert_close(steps, whole, atol=tolerance, rtol=0)
    for a, b in zip(steps_state, whole_state, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=0)


@kinds
@settings(max_examples=15, deadline=None)
@given(cuts=st.sets(st.integers(1, TIME - 1)).map(sorted))
def test_windows_of_any_lengths_equal_one_long_window(kind, cuts):
    model = model_of(kind)
    vectors, masks = model.embed(text()), masks_of(model)
    whole, whole_state = model.encode(vectors, model.init_state(BATCH), masks)
    parts, parts_state = encode_in_windows(model, vectors, masks, cuts)
    torch.testing.assert_close(parts, whole, atol=1e-10, rtol=0)
    for a, b in zip(parts_state, whole_state, strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


@kinds
def test_the_state_matters(kind):
    model = model_of(kind)
    vectors = model.embed(text())
    _, state = model.encode(vectors[:, :5], model.init_state(BATCH), None)
    continued, _ = model.encode(vectors[:, 5:], state, None)
    afresh, _ = model.encode(vectors[:, 5:], model.init_state(BATCH), None)
    assert (continued[:, 0] - afresh[:, 0]).abs().amax() > 1e-4


@kinds
def test_changing_an_input_changes_nothing_before_it_or_in_another_row(kind):
    model = model_of(kind)
    vectors = model.embed(text())
    changed = vectors.clone()
    changed[1, 6, 0] += 1.0  # one coordinate: a norm would take out a shift of all
    before, _ = model.encode(vectors, model.init_state(BATCH), None)
    after, _ = model.encode(changed, model.init_state(BATCH), None)
    moved = (before - after).abs().amax(dim=-1) > 1e-9
    assert not moved[[0, 2]].any()
    assert not moved[1, :6].any()
    assert moved[1, 6:].all()


@kinds
def test_masks_of_ones_change_nothing_and_every_place_counts(kind):
    model = model_of(kind)
    vectors, state = model.embed(text()), model.init_state(BATCH)
    plain, _ = model.encode(vectors, state, None)
    ones = [torch.ones(BATCH, TIME, UNITS, dtype=torch.float64) for _ in range(model.dropout_places)]
    kept, _ = model.encode(vectors, state, tuple(ones))
    assert torch.equal(plain, kept)
    for place in range(model.dropout_places):
        masks = [mask.clone() for mask in ones]
        masks[place][:, 4:, 0] = 0
        dropped, _ = model.encode(vectors, state, tuple(masks))
        assert torch.equal(dropped[:, :4], plain[:, :4])
        assert not torch.equal(dropped[:, 4:], plain[:, 4:]), place


@kinds
def test_encoding_is_the_same_in_train_and_eval_mode_and_draws_nothing(kind):
    model = model_of(kind)
    generator = torch.get_rng_state()
    training, _ = model.train()(text(), masks=masks_of(model))
    evaluating, _ = model.eval()(text(), masks=masks_of(model))
    assert torch.equal(training, evaluating)
    assert torch.equal(torch.get_rng_state(), generator)


@kinds
def test_forward_is_embed_encode_head_and_starts_afresh_without_a_state(kind):
    model = model_of(kind)
    hidden, state = model.encode(model.embed(text()), model.init_state(BATCH), None)
    logits, after = model(text())
    assert torch.equal(logits, model.head(hidden))
    continued, _ = model(text(), after)
    expected, _ = model.encode(model.embed(text()), state, None)
    assert torch.equal(continued, model.head(expected))


@kinds
def test_the_tensors_passed_in_are_left_untouched(kind):
    model = model_of(kind)
    masks = masks_of(model)
    with torch.no_grad():
        _, state = model(text()[:, :3])
        vectors = model.embed(text())
        given = [vectors, *state, *masks]
        copies = [tensor.clone() for tensor in given]
        model.encode(vectors, state, masks)
    assert all(torch.equal(a, b) for a, b in zip(given, copies, strict=True))


@pytest.mark.parametrize("tied", [True, False])
@kinds
def test_gradients_reach_every_parameter(kind, tied):
    model = model_of(kind, tied=tied)
    logits, _ = model(text(), masks=masks_of(model))
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), text()[:, 1:].flatten()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@kinds
def test_gradients_cross_windows_until_the_caller_detaches_the_state(kind):
    model = model_of(kind)
    vectors = model.embed(text()).detach().requires_grad_()
    _, state = model.encode(vectors[:, :5], model.init_state(BATCH), None)
    attached, _ = model.encode(vectors[:, 5:], state, None)
    (through,) = torch.autograd.grad(attached.square().sum() + attached.sum(), vectors, retain_graph=True)
    assert through[:, 4].abs().amax() > 0
    detached, _ = model.encode(vectors[:, 5:], tuple(part.detach() for part in state), None)
    (cut,) = torch.autograd.grad(detached.square().sum() + detached.sum(), vectors)
    assert not cut[:, :5].any()
    assert cut[:, 5:].any()


@kinds
def test_rows_of_a_state_can_be_picked_and_repeated(kind):
    model = model_of(kind)
    _, state = model(text())
    rows = torch.tensor([2, 0, 2, 2])
    ids = text()[:, :2]
    picked, _ = model(ids[rows], tuple(part[rows] for part in state))
    whole, _ = model(ids, state)
    torch.testing.assert_close(picked, whole[rows], atol=1e-10, rtol=0)


@pytest.mark.gpu
@kinds
def test_windows_under_bfloat16_autocast_come_close_and_are_trainable(kind):
    model = model_of(kind, torch.float32)
    masks = masks_of(model, torch.float32)
    expected, _ = encode_in_windows(model, model.embed(text()), masks, [4, 5])
    model.cuda()
    with torch.autocast("cuda", torch.bfloat16):
        vectors = model.embed(text().cuda())
        rough, state = encode_in_windows(model, vectors, tuple(mask.cuda() for mask in masks), [4, 5])
        logits = model.head(rough)
    assert logits.dtype == torch.bfloat16
    assert all(part.dtype in (torch.float32, torch.bfloat16) for part in state)  # never float16
    # each rounding errs by up to 1/256, a few roundings deep; the norms enlarge that where few inputs were
    # kept, so the mean is asked to be close and not every number
    assert (rough.float().cpu() - expected).abs().mean() < 0.02 * expected.abs().mean()
    logits.float().logsumexp(dim=-1).mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.gpu
@kinds
def test_a_gpu_gives_what_the_cpu_gives(kind):
    model = model_of(kind, torch.float32)
    vectors, masks = model.embed(text()), masks_of(model, torch.float32)
    expected, _ = encode_in_windows(model, vectors, masks, [4, 5])
    model.cuda()
    hidden, _ = encode_in_windows(model, vectors.cuda(), tuple(mask.cuda() for mask in masks), [4, 5])
    torch.testing.assert_close(hidden.cpu(), expected, atol=2e-3, rtol=0)  # cuDNN may use tf32
