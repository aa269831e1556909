"""Which models and tables a curriculum takes, and what it refuses."""

from types import SimpleNamespace

import pytest
import torch
from tests.integrations.tiny import IDS, VOCAB, Wrapped, embedded, gpt2, table_of
from torch import nn
from transformers import MarianConfig, MarianMTModel

import nnrs
from nnrs.errors import ConfigError, RunError
from nnrs.integrations.curriculum import Curriculum, curriculum
from nnrs.integrations.module import fitted
from nnrs.integrations.settings import Settings

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


def test_an_output_layer_that_makes_no_logits_is_refused():
    model = Plain().train()
    with (
        pytest.raises(ConfigError, match="was not used in the model's forward"),
        curriculum(model, steps=1, prediction_rate=0.5, output_layer=nn.Linear(2, 2)),
    ):
        model(IDS, IDS)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda model: model.train()(input_ids=IDS), "given no labels. Pass them to the model itself"),
        (lambda model: model.eval()(input_ids=IDS, labels=IDS), "in eval mode. Call model.train"),
        (lambda model: None, "the model was not called"),
        (torch.no_grad()(lambda model: model.train()(input_ids=IDS, labels=IDS)), "not called with gradient"),
    ],
    ids=["no labels", "eval mode", "no call", "no gradient"],
)
def test_a_loop_in_which_nothing_can_be_replaced_is_told_why(call, told):
    model = gpt2()
    with pytest.raises(RunError, match=told), curriculum(model, table_of(model), steps=1, neighbor_rate=0.5):
        call(model)


def test_a_loop_that_gives_no_labels_is_told_at_its_first_step():
    model, made = gpt2().train(), []

    def loop():
        with curriculum(model, table_of(model), steps=5, neighbor_rate=0.5):
            made.extend(model(input_ids=IDS).logits for _ in range(5))

    with pytest.raises(RunError, match="given no labels"):
        loop()
    assert not made
    assert not model._forward_pre_hooks


def test_what_is_generated_or_measured_before_the_first_step_needs_no_labels():
    model = gpt2().train()
    with curriculum(model, table_of(model), steps=1, neighbor_rate=0.5):
        model.generate(IDS[:1, :4], max_new_tokens=2, do_sample=False, pad_token_id=0)
        with torch.no_grad():
            model(input_ids=IDS)
        model.eval()(input_ids=IDS)
        model.train()(input_ids=IDS, labels=IDS)
        model(input_ids=IDS).logits.sum().backward()  # and after it, anything does


@pytest.mark.parametrize("by_itself", [True, False], ids=["by itself", "by the loop"])
def test_a_finished_run_may_be_resumed_and_have_no_step_left(by_itself):
    model, state = gpt2().train(), None
    for steps in (range(2), range(2, 2)):
        with curriculum(model, steps=2, prediction_rate=0.5) as ours:
            if state:
                ours.load_state_dict(state)
            for step in steps:
                if not by_itself:
                    ours.begin_step(step, 2)
                model(input_ids=IDS, labels=IDS)
            state = ours.state_dict()
            with torch.no_grad():
                model.eval()(input_ids=IDS, labels=IDS)
            model.train()
    assert state["step"] == 1


def test_a_resumed_run_that_replaces_nothing_is_told_why():
    model = gpt2()
    state = Curriculum(model, None, Settings(prediction_rate=0.5)).state_dict()

    def loop():
        with curriculum(model, steps=2, prediction_rate=0.5) as ours:
            ours.load_state_dict(state)
            model.eval()(input_ids=IDS, labels=IDS)

    with pytest.raises(RunError, match="eval mode"):
        loop()


def test_a_model_may_embed_a_few_ids_more_than_the_table_knows_but_not_another_tokenizers():
    table, model = nnrs.NeighborTable.from_vectors(torch.randn(300, 4), k=2), Plain()
    model.embed = nn.Embedding(428, 8)  # padded, as models are
    assert fitted(table, model).vocab_size == 428
    model.embed = nn.Embedding(429, 8)
    with pytest.raises(ConfigError, match="300 rows, but the model embeds 429 ids"):
        fitted(table, model)
    small = nnrs.NeighborTable.from_vectors(torch.randn(30, 4), k=2)
    model.embed = nn.Embedding(61, 8)  # more than twice as many is no padding
    with pytest.raises(ConfigError, match="30 rows, but the model embeds 61 ids"):
        fitted(small, model)


def test_of_two_vocabularies_the_decoders_is_the_tables():
    sizes = {
        "d_model": 8,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_ffn_dim": 8,
        "decoder_ffn_dim": 8,
    }
    heads = {"encoder_attention_heads": 1, "decoder_attention_heads": 1}
    ids = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1}
    config = MarianConfig(
        vocab_size=300,
        decoder_vocab_size=VOCAB,
        share_encoder_decoder_embeddings=False,
        **sizes,
        **heads,
        **ids,
    )
    model = MarianMTModel(config).train()
    table = nnrs.NeighborTable.from_vectors(model.get_decoder().get_input_embeddings().weight, k=2)
    source = IDS + 200
    with curriculum(model, table, steps=1, neighbor_rate=1.0, prediction_rate=0.5) as ours:
        model(input_ids=source, labels=IDS)
    assert ours.report()["effective_neighbor_rate"] > 0.5


@pytest.mark.parametrize("outer_first", [True, False])
def test_a_second_curriculum_on_a_part_of_the_model_or_around_it_is_refused(outer_first):
    inner, beside = gpt2().train(), gpt2().train()
    outer = Wrapped(inner).train()
    first, second = (outer, inner) if outer_first else (inner, outer)
    options = {"steps": 1, "neighbor_rate": 1.0}
    with embedded(inner) as seen, curriculum(first, table_of(inner), **options):
        with (
            pytest.raises(ConfigError, match="or on a part of it"),
            curriculum(second, table_of(inner), **options),
        ):
            pass
        first(input_ids=IDS, labels=IDS)
        with curriculum(beside, table_of(beside), **options):  # one of another model is its own
            beside(input_ids=IDS, labels=IDS)
    assert (seen[0] != IDS)[:, 1:].all()


def test_a_model_that_does_not_say_what_it_embeds_is_taken_as_it_is():
    model = Plain().train()
    model.get_input_embeddings = lambda: None
    model.config = SimpleNamespace(is_encoder_decoder=True)  # and has no get_decoder
    assert Curriculum(model, None, Settings(prediction_rate=0.1, output_layer=model.out))


class Silent(nn.Module):
    """A model of one's own that does not say what it embeds."""

    def __init__(self):
        super().__init__()
        self.positions, self.words, self.out = nn.Embedding(7, 8), nn.Embedding(VOCAB, 8), nn.Linear(8, VOCAB)

    def forward(self, input_ids, labels=None):
        return self.out(self.words(input_ids))


class Adaptive(Silent):
    """The same, whose words are embedded by two layers."""

    def __init__(self):
        super().__init__()
        self.frequent, self.rare = nn.Embedding(20, 8), nn.Embedding(VOCAB - 20, 8)
        del self.words

    def forward(self, input_ids, labels=None):
        rare = input_ids >= 20
        rows = self.frequent(input_ids.clamp(max=19)), self.rare((input_ids - 20).clamp(min=0))
        return self.out(torch.where(rare[..., None], rows[1], rows[0]))


def test_a_table_larger_than_each_layer_of_a_model_of_ones_own_is_warned_of_and_taken():
    table = nnrs.NeighborTable.from_vectors(torch.rand(VOCAB, 2), k=2)
    model, most = Adaptive().train(), max(20, VOCAB - 20)
    told = f"the table has {VOCAB} rows, and no embedding layer of the model more than {most} rows"
    ours = curriculum(model, table, steps=1, neighbor_rate=1.0)
    with pytest.warns(UserWarning, match=told):
        begun = ours.__enter__()
    model(IDS, labels=IDS)
    assert begun.report()["effective_neighbor_rate"] > 0.5
    ours.__exit__(None, None, None)


def test_ids_beyond_the_table_are_refused_in_the_first_training_forward_where_the_model_says_nothing():
    rows = int(IDS.max())  # one too few
    table = nnrs.NeighborTable.from_vectors(torch.rand(rows, 2), k=2)
    model = Silent().train()
    assert fitted(nnrs.NeighborTable.from_vectors(torch.rand(VOCAB, 2), k=2), model)  # without a warning
    with (
        pytest.raises(ConfigError, match=f"input_ids has the id {rows}, and the table {rows} rows"),
        curriculum(model, table, steps=1, neighbor_rate=1.0),
    ):
        model(IDS, labels=IDS)
    fits = nnrs.NeighborTable.from_vectors(torch.rand(rows + 1, 2), k=2)
    with curriculum(model, fits, steps=1, neighbor_rate=1.0) as ours:
        model(IDS, labels=IDS)
        assert ours.report()["effective_neighbor_rate"] > 0.5
        model(IDS + 1, labels=IDS)  # a second look would cost a wait each step


class ByPosition(Plain):
    def forward(self, input_ids, /, labels=None):
        return super().forward(input_ids, labels)


def test_a_call_keeps_its_form():
    model = ByPosition().train()
    table = nnrs.NeighborTable.from_vectors(model.embed.weight, k=2)
    with embedded(model) as seen, curriculum(model, table, steps=1, neighbor_rate=1.0):
        model(IDS, labels=IDS)
    assert (seen[0] != IDS)[:, 1:].all()


def test_data_parallel_is_refused():
    model = gpt2().train()
    with curriculum(model, table_of(model), steps=1, neighbor_rate=0.5):
        model(input_ids=IDS, labels=IDS)
        replica = model._replicate_for_data_parallel()
        with pytest.raises(ConfigError, match="torchrun"):
            replica(input_ids=IDS, labels=IDS)
