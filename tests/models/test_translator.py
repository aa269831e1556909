"""What is asked of a translator: its source is heard, what fills it up is not, and targets are read as any text."""

import pytest
import torch

from nnrs.batches import IGNORED, Window
from nnrs.errors import ConfigError
from nnrs.models import TRANSLATORS, ModelConfig, build_model
from nnrs.seeding import Random, Stream

ROWS, TIME, VOCAB, SOURCES, UNITS = 3, 7, 13, 19, 8
SOURCE = [[3, 4, 5, 0], [6, 0, IGNORED, IGNORED], [7, 8, 0, IGNORED]]
kinds = pytest.mark.parametrize("kind", TRANSLATORS)


def model_of(kind, layers=2, dropout=0.4):
    config = ModelConfig(kind=kind, units=UNITS, layers=layers, dropout=dropout)
    return build_model(config, VOCAB, Random(1, Stream.INITIALISATION), SOURCES).double()


def source():
    return torch.tensor(SOURCE)


def text():
    return (Random(1, Stream.TEXT).uniform(ROWS, TIME) * VOCAB).long()


def masks_of(model, time=TIME):
    return tuple(mask.double() for mask in model.draw_masks(ROWS, time, Random(1, Stream.DROPOUT)))


@pytest.mark.parametrize("layers", [1, 2, 3])
@kinds
def test_one_word_at_a_time_equals_the_whole_target_with_dropout_on(kind, layers):
    model = model_of(kind, layers)
    vectors, masks, state = model.embed(text()), masks_of(model), model.read(source())
    whole, _ = model.encode(vectors, state, masks)
    steps = []
    for step in range(TIME):
        here = slice(step, step + 1)
        hidden, state = model.encode(vectors[:, here], state, tuple(mask[:, here] for mask in masks))
        steps.append(hidden)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=1e-10, rtol=0)


@kinds
def test_a_row_reads_what_it_would_read_alone(kind):
    model = model_of(kind)
    together, _ = model(text(), model.read(source()))
    for row, words in enumerate(SOURCE):
        alone = torch.tensor([[word for word in words if word != IGNORED]])  # nothing fills it up
        logits, _ = model(text()[row : row + 1], model.read(alone))
        torch.testing.assert_close(together[row : row + 1], logits, atol=1e-10, rtol=0)


@pytest.mark.parametrize("layers", [1, 2])
@kinds
def test_every_word_of_a_source_is_heard_by_every_step_of_its_row_alone(kind, layers):
    model = model_of(kind, layers)
    before, _ = model(text(), model.read(source()))
    for row, words in enumerate(SOURCE):
        for place in (place for place, word in enumerate(words) if word != IGNORED):
            other = source()
            other[row, place] += 1
            after, _ = model(text(), model.read(other))
            changed = (before != after).any(dim=-1)
            assert changed[row].all(), (row, place)
            assert not changed[torch.arange(ROWS) != row].any()


@kinds
def test_both_directions_of_the_encoder_are_torchs_own_on_packed_sources(kind):
    model = model_of(kind, layers=1)
    words = source() != IGNORED
    vectors = model.source_embedding(source().clamp(min=0))
    both = model.layer_type(UNITS, UNITS // 2, batch_first=True, bidirectional=True).double()
    for suffix, layer in (("", model.ahead[0]), ("_reverse", model.behind[0])):
        for name, value in layer.named_parameters():
            getattr(both, name + suffix).data.copy_(value)
    lengths = words.sum(1)
    packed = torch.nn.utils.rnn.pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
    outputs, _ = torch.nn.utils.rnn.pad_packed_sequence(both(packed)[0], batch_first=True)
    *_, memory, heard = model.read(source())
    assert torch.equal(heard, words)
    torch.testing.assert_close(memory[words], outputs[words], atol=1e-12, rtol=0)


@kinds
def test_the_loss_teaches_every_parameter_of_encoder_and_decoder(kind):
    model = model_of(kind)
    window = Window(inputs=text(), targets=text(), previous=text(), source=source())
    logits, _ = model(window.inputs, model.first_state(window, None))
    torch.autograd.backward(logits.logsumexp(-1).sum() - logits[..., 0].sum())
    silent = [name for name, value in model.named_parameters() if value.grad is None or not value.grad.any()]
    assert silent == []


def test_sources_are_read_with_dropout_where_there_is_something_to_draw_from():
    model = model_of("lstm").float()
    window = Window(inputs=text(), targets=text(), previous=text(), source=source())

    def memory(random):
        return model.first_state(window, random)[-2]

    assert torch.equal(memory(Random(1, Stream.DROPOUT, 5)), memory(Random(1, Stream.DROPOUT, 5)))
    assert not torch.equal(memory(Random(1, Stream.DROPOUT, 5)), memory(Random(1, Stream.DROPOUT, 6)))
    assert torch.equal(memory(None), model.read(source())[-2])


def test_without_a_source_it_is_a_language_model():
    model = model_of("gru")
    logits, state = model(text())
    assert logits.isfinite().all()
    assert state[-2].shape == (ROWS, 0, UNITS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"units": 7}, "even"), ({"units": 8, "weight_dropout": 0.5}, "drops no weights")],
)
def test_an_odd_width_and_dropped_weights_are_refused(settings, message):
    config = ModelConfig(dropout=0.0, **settings)
    with pytest.raises(ConfigError, match=message):
        build_model(config, VOCAB, Random(1, Stream.INITIALISATION), SOURCES)


def test_another_kind_of_model_is_no_translator():
    with pytest.raises(ConfigError, match="unknown translator 'transformer'"):
        build_model(
            ModelConfig(kind="transformer", units=8, dropout=0.0), VOCAB, Random(1, Stream.TEXT), SOURCES
        )
