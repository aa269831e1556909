"""Which kinds of models a curriculum is for: those that read what they have written, and no part of another."""

import pytest
from tests.integrations.tiny import IDS, VOCAB, Adapted, Wrapped, embedded, gpt2, t5, table_of
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForTokenClassification,
    BertGenerationConfig,
    BertGenerationDecoder,
    BertLMHeadModel,
    BigBirdConfig,
    BigBirdForPreTraining,
    ElectraConfig,
    ElectraForPreTraining,
    FlaubertWithLMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    RobertaConfig,
    RobertaForCausalLM,
    XLMConfig,
    XLMForTokenClassification,
    XLMWithLMHeadModel,
    XLNetConfig,
    XLNetLMHeadModel,
)

from nnrs.errors import ConfigError
from nnrs.integrations.curriculum import Curriculum, curriculum
from nnrs.integrations.settings import Settings


def test_an_encoder_decoder_within_another_module_is_refused_and_a_causal_model_is_not():
    with pytest.raises(ConfigError, match="Give the curriculum that T5ForConditionalGeneration itself"):
        Curriculum(Wrapped(t5()), None, Settings(prediction_rate=0.1))
    inner = gpt2().train()
    with (
        embedded(inner) as seen,
        curriculum(Wrapped(inner).train(), table_of(inner), steps=1, neighbor_rate=1.0) as c,
    ):
        c.model(IDS, IDS)
    assert (seen[0] != IDS)[:, 1:].all()


@pytest.mark.parametrize(
    "part", [lambda: t5().encoder, lambda: t5().decoder, t5], ids=["encoder", "decoder", "teacher"]
)
def test_a_causal_model_may_hold_a_part_of_an_encoder_decoder_or_another_beside_it(part):
    wrapper = Wrapped(gpt2())
    wrapper.part = part()
    assert Curriculum(wrapper, table_of(wrapper.inner), Settings(neighbor_rate=0.1))


def test_a_wrapper_with_a_configuration_of_its_own_is_refused_as_one_without():
    wrapper = Wrapped(t5())
    wrapper.config = {"learning rate": 1}
    with pytest.raises(ConfigError, match="Give the curriculum that T5ForConditionalGeneration itself"):
        Curriculum(wrapper, None, Settings(prediction_rate=0.1))


SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
}


class Derived(BertForMaskedLM):
    """A class of one's own, made from one that is refused."""


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (BertForMaskedLM, BertConfig),
        (Derived, BertConfig),
        (BertForPreTraining, BertConfig),
        (BertForTokenClassification, BertConfig),
        (ElectraForPreTraining, ElectraConfig),
        (BigBirdForPreTraining, BigBirdConfig),
        (XLNetLMHeadModel, lambda **sizes: XLNetConfig(vocab_size=VOCAB, d_model=8, n_layer=1, n_head=1)),
    ],
    ids=lambda value: value.__name__,
)
def test_a_model_that_fills_in_masked_words_or_marks_given_ones_is_refused(kind, config):
    made = kind(config(**SIZES))
    for model in (made, Adapted(made)):
        with pytest.raises(ConfigError, match=f"{kind.__name__} fills in masked words"):
            Curriculum(model, None, Settings(prediction_rate=0.1))


def test_a_model_that_fills_in_masked_words_may_stand_beside_one_that_does_not():
    critic = gpt2()
    critic.critic = BertForMaskedLM(BertConfig(**SIZES))  # is not what is trained
    assert Curriculum(critic, None, Settings(prediction_rate=0.1))


class CausalForPreTraining(LlamaForCausalLM):
    """One's own, with a name that in transformers would fill in masked words."""


class SaysOfItself(LlamaForCausalLM):
    """One's own, causal whatever its configuration says."""

    def __init__(self, config):
        super().__init__(config)
        self.is_decoder = True


@pytest.mark.parametrize("kind", [XLMWithLMHeadModel, FlaubertWithLMHeadModel])
def test_a_model_that_may_be_causal_is_taken_if_its_configuration_says_so(kind):
    def made(causal):
        sizes = {"vocab_size": VOCAB, "emb_dim": 8, "n_layers": 1, "n_heads": 1}
        return kind(kind.config_class(**sizes, causal=causal))

    assert Curriculum(made(True), None, Settings(prediction_rate=0.1))
    with pytest.raises(ConfigError, match=f"{kind.__name__} fills in masked words"):
        Curriculum(made(False), None, Settings(prediction_rate=0.1))


def test_a_model_that_marks_words_is_refused_though_its_configuration_says_that_it_is_causal():
    config = XLMConfig(vocab_size=VOCAB, emb_dim=8, n_layers=1, n_heads=1, causal=True)
    with pytest.raises(ConfigError, match="XLMForTokenClassification fills in masked words, or marks"):
        Curriculum(XLMForTokenClassification(config), None, Settings(prediction_rate=0.1))


@pytest.mark.parametrize("kind", [CausalForPreTraining, SaysOfItself])
def test_a_causal_model_of_ones_own_is_not_taken_for_another_by_its_name_or_code(kind):
    model = kind(LlamaConfig(**SIZES))
    model.config.is_decoder = False
    assert Curriculum(model, None, Settings(prediction_rate=0.1))


class DerivedDecoder(BertLMHeadModel):
    """A class of one's own, made from one that is asked for."""

    def __init__(self, config):
        super().__init__(config)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (BertLMHeadModel, BertConfig),
        (DerivedDecoder, BertConfig),
        (RobertaForCausalLM, RobertaConfig),
        (BertGenerationDecoder, BertGenerationConfig),
    ],
)
def test_a_decoder_of_berts_kind_is_refused_unless_its_configuration_says_that_it_is_one(kind, config):
    made = kind(config(**SIZES))
    for model in (made, Adapted(made)):
        with pytest.raises(ConfigError, match=f"{kind.__name__} reads the words .* with is_decoder=True"):
            Curriculum(model, None, Settings(prediction_rate=0.1))
    assert Curriculum(kind(config(**SIZES, is_decoder=True)), None, Settings(prediction_rate=0.1))


def test_a_configuration_whose_is_decoder_is_never_looked_at_says_nothing():
    model = GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES))
    model.config.is_decoder = False  # as it is by default
    assert Curriculum(model, None, Settings(prediction_rate=0.1))
