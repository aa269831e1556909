"""Which models, tables and settings a curriculum takes, and what it refuses."""

import pytest
import torch
from tests.integrations.tiny import VOCAB, embedded, gpt2, table_of
from torch import nn

import nnrs
from nnrs.errors import ConfigError, RunError
from nnrs.integrations.curriculum import Curriculum, Settings, curriculum

IDS = torch.randint(1, VOCAB, (4, 12), generator=torch.Generator().manual_seed(3))
GPT2 = gpt2()


class Plain(nn.Module):
    """A model of one's own, whose forward gives a tuple."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(VOCAB, 8), nn.Linear(8, VOCAB)

    def get_input_embeddings(self):
        return self.embed

    def forward(self, input_ids, labels=None):
        logits = self.out(self.embed(input_ids))
        return logits, labels


def test_any_module_with_input_ids_and_labels_will_do_positional_or_not():
    model = Plain().train()
    options = {"steps": 1, "prediction_rate": 1.0, "predict": "greedy", "output_layer": model.out}
    with embedded(model) as seen, curriculum(model, **options):
        _, labels = model(IDS, IDS)
    assert labels is IDS
    assert torch.equal(seen[-1][:, 1:], model(IDS)[0].argmax(-1)[:, :-1])


def test_placeholders_that_no_table_knows_stay_where_they_are():
    model = Plain().train()
    model.embed.register_forward_pre_hook(lambda _, args: (args[0].clamp(min=0),))  # an image goes there
    ids, labels = IDS.clone(), IDS.clone()
    ids[:, 2:5], labels[:, 2:5] = -200, -100
    table = nnrs.NeighborTable.from_vectors(model.embed.weight, k=2)
    seen = []
    with curriculum(model, table, steps=1, neighbor_rate=1.0):
        model.register_forward_pre_hook(
            lambda _, args, kwargs: seen.append(kwargs["input_ids"]), with_kwargs=True
        )
        model(input_ids=ids, labels=labels)
    assert torch.equal((seen[0] != ids)[:, 1:], (labels != -100)[:, 1:])


def test_a_batch_of_no_width_goes_through():
    model = Plain().train()
    empty = IDS[:, :0]
    options = {"steps": 1, "neighbor_rate": 0.5, "prediction_rate": 0.5, "output_layer": model.out}
    table = nnrs.NeighborTable.from_vectors(model.embed.weight, k=2)
    with embedded(model) as seen, curriculum(model, table, **options):
        model(empty, empty)
    assert [ids.shape for ids in seen] == [(4, 0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a rate"),
        ({"neighbor_rate": 0.1}, "go together"),
        ({"prediction_rate": 1.1}, "probability"),
        ({"prediction_rate": 0.1, "predict": "best"}, "unknown way to predict 'best'"),
        ({"prediction_rate": 0.1, "rule": "pros"}, "Did you mean 'prose'"),
        ({"prediction_rate": 0.1, "granularity": "word"}, "unknown granularity"),
        ({"prediction_rate": 0.1, "temperature": 0.0}, "positive and finite"),
        ({"prediction_rate": 0.1, "steps": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(ConfigError, match=message), curriculum(GPT2, **{"steps": 1, **options}):
        pass


def test_a_table_of_another_model_is_refused_and_a_smaller_one_leaves_new_ids_alone():
    with pytest.raises(ConfigError, match="70 rows, but the model embeds 61"):
        Curriculum(
            GPT2, nnrs.NeighborTable.from_vectors(torch.randn(70, 4), k=2), Settings(neighbor_rate=1.0)
        )
    small = nnrs.NeighborTable.from_vectors(torch.randn(50, 4), k=2)
    with embedded(GPT2) as seen, curriculum(GPT2.train(), small, steps=1, neighbor_rate=1.0):
        GPT2(input_ids=IDS, labels=IDS)
    assert torch.equal((seen[0] != IDS)[:, 1:], (IDS < 50)[:, 1:])


class Adapter(nn.Module):
    """Around an embedding layer, as LoRA's are: it has no num_embeddings of its own."""

    def __init__(self, layer):
        super().__init__()
        self.base_layer = layer

    def forward(self, ids):
        return self.base_layer(ids)


class Weights(nn.Module):
    """An embedding layer of one's own."""

    def __init__(self, layer):
        super().__init__()
        self.weight = layer.weight

    def forward(self, ids):
        return self.weight[ids]


@pytest.mark.parametrize("wrap", [Adapter, Weights])
def test_how_many_ids_are_embedded_is_found_in_wrapped_layers_too(wrap):
    model = Plain().train()
    model.embed = wrap(model.embed)
    with pytest.raises(ConfigError, match="70 rows, but the model embeds 61"):
        Curriculum(
            model, nnrs.NeighborTable.from_vectors(torch.randn(70, 4), k=2), Settings(neighbor_rate=1.0)
        )
    small = nnrs.NeighborTable.from_vectors(torch.randn(50, 4), k=2)
    assert len(Curriculum(model, small, Settings(neighbor_rate=1.0)).policy.replaceable) == VOCAB


def test_a_model_whose_embedding_layer_says_nothing_is_taken_to_fit_the_table():
    model = Plain().train()
    model.embed = nn.Identity()
    ours = Curriculum(
        model, nnrs.NeighborTable.from_vectors(torch.randn(50, 4), k=2), Settings(neighbor_rate=1.0)
    )
    assert len(ours.policy.replaceable) == 50


def test_a_model_without_a_known_output_layer_is_refused():
    with pytest.raises(ConfigError, match="Plain does not say which module makes its logits"):
        Curriculum(Plain(), None, Settings(prediction_rate=0.1))


def test_an_output_layer_that_makes_no_logits_is_refused():
    model = Plain().train()
    with (
        pytest.raises(ConfigError, match="was not used in the model's forward"),
        curriculum(model, steps=1, prediction_rate=0.5, output_layer=nn.Linear(2, 2)),
    ):
        model(IDS, IDS)


def test_a_loop_whose_labels_never_reach_the_model_is_told_so():
    with (
        pytest.raises(RunError, match="given no labels"),
        curriculum(GPT2.train(), table_of(GPT2), steps=1, neighbor_rate=0.5),
    ):
        GPT2(input_ids=IDS)


def test_data_parallel_is_refused():
    model = gpt2().train()
    with curriculum(model, table_of(model), steps=1, neighbor_rate=0.5):
        model(input_ids=IDS, labels=IDS)
        replica = model._replicate_for_data_parallel()
        with pytest.raises(ConfigError, match="torchrun"):
            replica(input_ids=IDS, labels=IDS)
