"""The transformer's cache, band and rotation against a slow reference that looks at one query at a time."""

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from nnrs.models import ModelConfig, build_model
from nnrs.models.transformer import rotate, visible_keys
from nnrs.seeding import Random, Stream

BATCH, TIME, UNITS, HEADS, CONTEXT = 2, 12, 12, 3, 5
DIM = UNITS // HEADS


def model_of(**overrides):
    shape = {"units": UNITS, "heads": HEADS, "context": CONTEXT, "dropout": 0.3} | overrides
    config = ModelConfig(kind="transformer", **shape)
    model = build_model(config, 10, Random(2, Stream.INITIALISATION)).double()
    with torch.no_grad():
        for module in model.modules():  # norms other than their start, so that each is seen to be used
            if isinstance(module, torch.nn.LayerNorm):
                module.weight.copy_(torch.linspace(0.5, 1.5, UNITS))
                module.bias.copy_(torch.linspace(-0.2, 0.2, UNITS))
    return model


def turned(vector, position):
    """The vector as complex numbers, each turned by its own angle times the position."""
    half = len(vector) // 2
    angles = position * 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    return torch.complex(vector[:half], vector[half:]) * torch.polar(torch.ones_like(angles), angles)


def attend_one(queries, keys, values, t):
    """One head's answer at position t of one row: a softmax over positions t - CONTEXT to t."""
    seen = range(max(0, t - CONTEXT), t + 1)
    query = turned(queries[t], t)
    scores = [(query * turned(keys[j], j).conj()).real.sum() / DIM**0.5 for j in seen]
    weights = torch.softmax(torch.stack(scores), dim=0)
    return sum(weight * values[j] for weight, j in zip(weights, seen, strict=True))


def norm(layer, x):
    centered = x - x.mean(-1, keepdim=True)
    return (
        centered / (centered.square().mean(-1, keepdim=True) + layer.eps).sqrt() * layer.weight + layer.bias
    )


def reference(model, vectors, masks):
    """The whole text of one row at once, (time, units), with positions counted from the start of the text."""
    stream = vectors * masks[0]
    for depth, block in enumerate(model.blocks):
        projected = norm(block.attention_norm, stream) @ block.projection.weight.T
        queries, keys, values = (part.view(TIME, HEADS, DIM) for part in projected.split(UNITS, dim=1))
        answers = [
            torch.cat([attend_one(queries[:, h], keys[:, h], values[:, h], t) for h in range(HEADS)])
            for t in range(TIME)
        ]
        stream = stream + torch.stack(answers) @ block.attended.weight.T * masks[2 * depth + 1]
        wide = F.gelu(norm(block.network_norm, stream) @ block.widen.weight.T)
        stream = stream + wide @ block.narrow.weight.T * masks[2 * depth + 2]
    return norm(model.final_norm, stream) * masks[-1]


def test_whole_text_and_cached_windows_equal_the_slow_reference_beyond_the_context():
    model = model_of()
    vectors = Random(1, Stream.TEXT).uniform(BATCH, TIME, UNITS).double()
    masks = tuple(mask.double() for mask in model.draw_masks(BATCH, TIME, Random(3, Stream.DROPOUT)))
    rows = [reference(model, vectors[row], [mask[row] for mask in masks]) for row in range(BATCH)]
    expected = torch.stack(rows)
    whole, _ = model.encode(vectors, model.init_state(BATCH), masks)
    torch.testing.assert_close(whole, expected, atol=1e-12, rtol=0)
    state = model.init_state(BATCH)
    for start, end in ((0, 1), (1, 4), (4, 11), (11, 12)):
        window = tuple(mask[:, start:end] for mask in masks)
        hidden, state = model.encode(vectors[:, start:end], state, window)
        torch.testing.assert_close(hidden, expected[:, start:end], atol=1e-12, rtol=0)


def test_one_layer_sees_exactly_its_context():
    model = model_of(layers=1)
    vectors = Random(1, Stream.TEXT).uniform(1, TIME, UNITS).double().requires_grad_()
    hidden, _ = model.encode(vectors, model.init_state(1), None)
    (gradient,) = torch.autograd.grad(hidden[0, 9].square().sum(), vectors)
    seen = gradient[0].abs().amax(dim=-1) > 0
    assert seen.nonzero().flatten().tolist() == [4, 5, 6, 7, 8, 9]


def test_the_cache_starts_empty_and_never_holds_more_than_the_context():
    model = model_of()
    state = model.init_state(BATCH)
    assert [part.shape for part in state] == [(BATCH, HEADS, 0, DIM)] * 4
    lengths = []
    for window in (3, 1, 1, 1, 20):
        _, state = model(torch.zeros(BATCH, window, dtype=torch.long), state)
        lengths.append({part.shape[2] for part in state})
    assert lengths == [{3}, {4}, {5}, {5}, {5}]


@settings(max_examples=30, deadline=None)
@given(a=st.integers(0, 300), b=st.integers(0, 300), shift=st.integers(0, 300))
def test_products_of_rotated_vectors_depend_on_the_distance_alone(a, b, shift):
    q, k = Random(1, Stream.TEXT).uniform(2, 1, 8).double()
    here = rotate(q, a) @ rotate(k, b).T
    there = rotate(q, a + shift) @ rotate(k, b + shift).T
    torch.testing.assert_close(here, there, atol=1e-9, rtol=0)
    torch.testing.assert_close(rotate(q, a).norm(), q.norm(), atol=1e-9, rtol=0)


def test_rotation_keeps_bfloat16_but_counts_positions_exactly():
    vector = torch.tensor([[1.0, 0.0]])
    far = rotate(vector.bfloat16(), 1001)  # bfloat16 itself would read 1000
    assert far.dtype == torch.bfloat16
    torch.testing.assert_close(far.float(), rotate(vector, 1001), atol=0.01, rtol=0)


@settings(max_examples=30, deadline=None)
@given(past=st.integers(0, 6), time=st.integers(1, 6), context=st.integers(1, 8))
def test_the_band_is_itself_and_the_context_before_it(past, time, context):
    band = visible_keys(past, time, context, torch.device("cpu"))
    expected = [[past + t - context <= key <= past + t for key in range(past + time)] for t in range(time)]
    assert band.tolist() == expected
