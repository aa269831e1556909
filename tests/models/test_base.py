"""Settings, initialisation, word vectors, output layer and dropout masks: what the four models share."""

import math

import pytest
import torch

from nnrs.errors import ConfigError
from nnrs.models import MODELS, PRESETS, ModelConfig, build_model
from nnrs.seeding import Random, Stream

VOCAB = 50
kinds = pytest.mark.parametrize("kind", MODELS)


def tiny(kind, seed=1, **overrides):
    config = ModelConfig.preset(kind, "tiny", **overrides)
    return build_model(config, VOCAB, Random(seed, Stream.INITIALISATION))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # 10,000 x 200 word vectors and 10,000 output biases, and then per kind:
        (
            "lstm",
            2_010_000 + 2 * (4 * 200 * (200 + 200) + 2 * 4 * 200),
        ),  # four gates, two biases each: 643,200
        ("gru", 2_010_000 + 2 * (3 * 200 * (200 + 200) + 2 * 3 * 200)),  # three gates: 482,400
        ("highway", 2_010_000 + 200 * 400 + 2 * (200 * 400 + 400)),  # input, two micro-layers: 240,800
        # attention 4 u², network 8 u², two norms of 2 u, twice; the final norm: 962,000
        ("transformer", 2_010_000 + 2 * (4 * 40_000 + 8 * 40_000 + 4 * 200) + 400),
    ],
)
def test_the_small_preset_has_the_parameters_counted_by_hand(kind, expected):
    model = build_model(ModelConfig.preset(kind, "small"), 10_000, Random(1, Stream.INITIALISATION))
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_presets_are_those_of_the_method_and_single_settings_can_be_replaced():
    sizes = {name: (preset.units, preset.layers, preset.dropout) for name, preset in PRESETS.items()}
    assert sizes == {
        "tiny": (64, 2, 0.1),
        "small": (200, 2, 0.2),
        "medium": (640, 2, 0.5),
        "large": (1504, 2, 0.65),
    }
    config = ModelConfig.preset("gru", "medium", dropout=0.3, layers=3)
    assert (config.kind, config.dropout, config.label()) == ("gru", 0.3, "gru-3x640")


@pytest.mark.parametrize("preset", PRESETS)
@kinds
def test_every_preset_is_valid_for_every_kind(kind, preset):
    assert ModelConfig.preset(kind, preset).label() == f"{kind}-2x{PRESETS[preset].units}"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"units": 0}, "units must be at least 1, got 0"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"layers": 100_000_000}, "layers must be at most 1,000, got 100,000,000"),
        ({"context": 0}, "context must be at least 1, got 0"),
        ({"heads": -1}, "heads must be at least 1, got -1"),
        ({"dropout": -0.1}, r"dropout must be in \[0, 0.99\], got -0.1"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 0.99\], got 1.0"),
        ({"dropout": math.nan}, r"dropout must be in \[0, 0.99\], got nan"),
        ({"weight_dropout": 1.0}, r"weight_dropout must be in \[0, 0.99\], got 1.0"),
        ({"kind": "transformer", "weight_dropout": 0.1}, "no recurrent weights to drop"),
        ({"kind": "transformer", "heads": 3}, "multiple of 2 x heads = 6, got 64"),
        ({"kind": "transformer", "units": 20}, "multiple of 2 x heads = 8, got 20"),  # 4 heads of 5: odd
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**{"units": 64, "dropout": 0.1} | settings)


def test_heads_bind_only_the_transformer():
    assert ModelConfig(kind="lstm", units=7, dropout=0.0).units == 7


def test_unknown_names_are_answered_with_the_closest_known_one():
    with pytest.raises(ConfigError, match=r"unknown preset 'smal'\. Did you mean 'small'"):
        ModelConfig.preset("lstm", "smal")
    config = ModelConfig(kind="lstn", units=8, dropout=0.0)
    with pytest.raises(ConfigError, match=r"unknown model 'lstn'\. Did you mean 'lstm'"):
        build_model(config, VOCAB, Random(1, Stream.INITIALISATION))


@kinds
def test_one_seed_gives_one_model_bit_for_bit_and_another_seed_another(kind):
    torch.manual_seed(1)
    first = tiny(kind, seed=3)
    torch.manual_seed(2)
    same = tiny(kind, seed=3)
    other = tiny(kind, seed=4)
    for (name, a), b in zip(first.named_parameters(), same.parameters(), strict=True):
        assert torch.equal(a, b), name
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


@kinds
def test_building_a_model_leaves_the_global_generator_alone(kind):
    torch.manual_seed(7)
    before = torch.get_rng_state()
    tiny(kind, tied=False)
    assert torch.equal(torch.get_rng_state(), before)


@kinds
def test_every_parameter_is_in_memory_and_starts_in_its_range(kind):
    model = tiny(kind, tied=False)
    for name, parameter in model.named_parameters():
        assert parameter.device.type == "cpu", name
        if name in ("embedding.weight", "output_weight"):
            bound = 0.1
        elif parameter.dim() == 2:
            bound = 1 / math.sqrt(parameter.shape[1])
        else:  # biases and norms have their own tests
            continue
        assert 0.98 * bound < parameter.abs().max() <= bound, name
        # the mean of n uniform numbers has a standard error of bound / sqrt(3 n)
        assert abs(parameter.mean()) < 4 * bound / math.sqrt(3 * parameter.numel()), name
    assert torch.equal(model.output_bias, torch.zeros(VOCAB))


def test_norms_start_plain():
    model = tiny("transformer")
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert len(norms) == 5
    assert all((norm.weight == 1).all() and (norm.bias == 0).all() for norm in norms)


@kinds
def test_tied_models_read_and_write_words_with_the_same_weights(kind):
    tied, untied = tiny(kind), tiny(kind, tied=False)
    assert tied.head_weight is tied.embedding.weight
    assert not hasattr(tied, "output_weight")
    assert untied.head_weight.data_ptr() != untied.embedding.weight.data_ptr()
    with torch.no_grad():
        tied.embedding.weight.fill_(0.5)
        tied.output_bias.copy_(torch.arange(VOCAB))
    # 64 units of 1 x 0.5, and the bias
    assert torch.equal(tied.head(torch.ones(3, 64))[2], 32.0 + torch.arange(VOCAB))


def test_ids_and_hidden_vectors_of_any_shape_can_be_embedded_and_scored():
    model = tiny("lstm")
    ids = torch.tensor([[[1, 2], [3, 4], [5, 6]]])
    vectors = model.embed(ids)
    assert torch.equal(vectors[0, 2, 1], model.embedding.weight[6])
    logits = model.head(vectors)
    assert logits.shape == (1, 3, 2, VOCAB)
    by_hand = model.embedding.weight @ model.embedding.weight[6] + model.output_bias
    torch.testing.assert_close(logits[0, 2, 1], by_hand)


@kinds
def test_masks_drop_at_the_stated_rate_independently_at_every_place(kind):
    model = tiny(kind, dropout=0.25)
    masks = model.draw_masks(20, 35, Random(1, Stream.DROPOUT))
    assert len(masks) == model.dropout_places
    n = 20 * 35 * 64
    for mask in masks:
        assert mask.shape == (20, 35, 64)
        assert set(mask.unique().tolist()) == {0.0, torch.tensor(4 / 3).item()}
        assert abs((mask == 0).double().mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / n)
    both = ((masks[0] == 0) & (masks[1] == 0)).double().mean()  # 1/16 where the places are independent
    assert abs(both - 1 / 16) < 4 * math.sqrt(1 / 16 * 15 / 16 / n)


def test_masks_repeat_with_their_step_and_are_absent_without_dropout():
    model = tiny("gru", dropout=0.5)
    first, again, later = (model.draw_masks(4, 5, Random(1, Stream.DROPOUT, step=step)) for step in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], later[0])
    assert tiny("gru", dropout=0.0).draw_masks(4, 5, Random(1, Stream.DROPOUT)) is None
