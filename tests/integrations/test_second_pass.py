"""Scheduled sampling's second pass: what it reads, what it predicts, and how little of it is held at once."""

import copy

import pytest
import torch
from tests.integrations.tiny import IDS, VOCAB, embedded, gpt2, inputs_under, llama, t5
from torch import nn
from transformers import DynamicCache, Gemma2Config, Gemma2ForCausalLM, GPT2Config, LlamaForCausalLM

from nnrs.errors import ConfigError, DataError
from nnrs.integrations import second_pass, undone
from nnrs.integrations.curriculum import curriculum

GPT2, LLAMA = gpt2(), llama()
AT_ONCE = 5


def gemma2(cap):
    """A model that caps its logits after its output layer."""
    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        attn_implementation="eager",
        final_logit_softcapping=cap,
    )
    model = Gemma2ForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(30)  # so that a cap matters
    return model


def rows_of(layer):
    """How many hidden vectors the output layer is given, call by call."""
    rows = []
    layer.register_forward_hook(lambda _, args, out: rows.append(args[0].shape[:-1].numel()))
    return rows


@pytest.fixture
def few_at_once(monkeypatch):
    monkeypatch.setattr(second_pass, "LOGITS_AT_ONCE", AT_ONCE * VOCAB + 1)


@pytest.mark.parametrize("model", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_a_greedy_prediction_is_what_the_model_says_after_the_token_before(model):
    plain, mixed = inputs_under(model, prediction_rate=1.0, predict="greedy")
    said = model.eval()(input_ids=IDS).logits.argmax(-1)
    assert torch.equal(plain, IDS)  # the second pass reads gold
    assert torch.equal(mixed[:, 1:], said[:, :-1])
    assert torch.equal(mixed[:, 0], IDS[:, 0])


def test_the_second_pass_reads_the_neighbors_that_the_training_pass_reads():
    first, second = inputs_under(gpt2(), neighbor_rate=0.5, prediction_rate=0.5)
    neighbors, predictions = (first != IDS), (second != first)
    assert neighbors.any()
    assert predictions.any()
    assert not (neighbors & predictions).any()


def test_the_output_layer_sees_only_the_chosen_positions():
    model, rows = gpt2().train(), []
    with curriculum(model, steps=1, prediction_rate=0.2) as ours:
        model.lm_head.register_forward_hook(lambda _, args, out: rows.append(args[0].shape[:-1].numel()))
        model(input_ids=IDS, labels=IDS)
        chosen = ours.report()["effective_prediction_rate"] * 44  # of 4 rows of 11 changeable inputs
    assert rows == [round(chosen), 48]


def test_sampled_predictions_follow_the_models_distribution():
    model = gpt2().train()
    ids = IDS[:1].expand(4000, -1).contiguous()
    with torch.no_grad():
        expected = model(input_ids=IDS[:1]).logits[0, 4].softmax(-1)
    with embedded(model) as seen, curriculum(model, steps=1, prediction_rate=1.0):
        model(input_ids=ids, labels=ids)
    shares = torch.bincount(seen[1][:, 5], minlength=VOCAB) / 4000
    errors = (expected * (1 - expected) / 4000).sqrt()
    assert ((shares - expected).abs() < 5 * errors).all()  # 61 words, five standard errors


@pytest.mark.parametrize("predict", ["greedy", "sample"])
@pytest.mark.parametrize("make", [gpt2, llama, lambda: gemma2(0.5)], ids=["gpt2", "llama", "gemma2"])
def test_predictions_made_in_pieces_are_those_made_at_once(make, predict, monkeypatch):
    options = {"neighbor_rate": 0.3, "prediction_rate": 0.6, "predict": predict}
    whole = inputs_under(make(), **options)
    monkeypatch.setattr(second_pass, "LOGITS_AT_ONCE", AT_ONCE * VOCAB + 1)
    model = make()
    rows = rows_of(model.lm_head)
    pieces = inputs_under(model, **options)
    assert len(pieces) == 2  # all below the output layer runs once, then the training pass
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(pieces, whole, strict=True))
    *second, training = rows
    assert len(second) > 2
    assert second[:-1] == [AT_ONCE] * (len(second) - 1)
    assert second[-1] <= AT_ONCE
    assert training == IDS.numel()


class Dropping(nn.Module):
    """A model whose lower part runs twice in a forward, and whose vectors are dropped out after it."""

    def __init__(self, model):
        super().__init__()
        self.base_model, self.lm_head, self.drop = model.transformer, model.lm_head, nn.Dropout(0.5)

    def get_input_embeddings(self):
        return self.base_model.wte

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, input_ids, labels=None):
        first, second = (self.base_model(ids).last_hidden_state for ids in (input_ids, input_ids.roll(1, 1)))
        return self.lm_head(self.drop(first + 0.5 * second))


def test_pieces_are_those_of_one_forward_whatever_it_does_around_its_lower_part(monkeypatch):
    found = []
    for at_once in (1 << 27, AT_ONCE * VOCAB):
        monkeypatch.setattr(second_pass, "LOGITS_AT_ONCE", at_once)
        torch.manual_seed(3)
        found.append(inputs_under(Dropping(gpt2(dropout=0.2)), prediction_rate=0.8, predict="greedy")[-2])
    assert torch.equal(*found)
    assert (found[0] != IDS).any()


def test_what_a_model_does_to_its_logits_is_done_in_every_piece(few_at_once):
    """The cap leaves the logits nearly equal: words are drawn evenly, where uncapped some would never be."""
    ids = IDS[:1].expand(300, -1).contiguous()
    shares = []
    for cap in (0.01, None):
        model = gemma2(cap).train()
        with embedded(model) as seen, curriculum(model, steps=1, prediction_rate=1.0):
            model(input_ids=ids, labels=ids)
        shares.append(torch.bincount(seen[1][:, 1:].flatten(), minlength=VOCAB) / (300 * 11))
    error = (1 / VOCAB / (300 * 11)) ** 0.5
    assert (shares[0] - 1 / VOCAB).abs().max() < 5 * error + 0.02 / VOCAB  # e^0.01 / e^-0.01 is 1.02
    assert (shares[1] == 0).any()


def test_a_model_that_does_not_name_its_lower_part_makes_its_predictions_at_once(few_at_once):
    model = t5().train()
    rows = rows_of(model.lm_head)
    with curriculum(model, steps=1, prediction_rate=0.9):
        model(input_ids=IDS, labels=IDS)
    assert len(rows) == 2
    assert rows[0] > AT_ONCE


def test_one_of_several_processes_makes_its_predictions_at_once(few_at_once, monkeypatch):
    """Another may have a smaller batch, and so fewer pieces."""
    for name, value in (("is_initialized", True), ("get_world_size", 2), ("get_rank", 1)):
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    model = gpt2().train()
    rows = rows_of(model.lm_head)
    inputs_under(model, prediction_rate=0.9)
    assert len(rows) == 2


def test_an_error_in_a_piece_leaves_the_model_its_own_forward(few_at_once):
    model = gpt2().train()
    handle = model.lm_head.register_forward_hook(lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        inputs_under(model, prediction_rate=0.9)
    handle.remove()
    assert "forward" not in vars(model.transformer)
    assert torch.equal(
        inputs_under(model, prediction_rate=0.9)[1], inputs_under(gpt2(), prediction_rate=0.9)[1]
    )


class Own(nn.Module):
    """A model of one's own, with something to go wrong between its hidden vectors and its output."""

    def __init__(self, hidden=lambda vectors, labels: vectors, give=lambda logits: logits, vocab=VOCAB):
        super().__init__()
        self.embed, self.out = nn.Embedding(VOCAB, 8), nn.Linear(8, vocab)
        self.hidden, self.give = hidden, give

    def get_input_embeddings(self):
        return self.embed

    def get_output_embeddings(self):
        return self.out

    def forward(self, input_ids, labels):  # which has no default
        return self.give(self.out(self.hidden(self.embed(input_ids), labels)))


class Counting(Own):
    """A model whose buffers change with every forward; one of them its backward needs."""

    def __init__(self):
        super().__init__(hidden=self.counted)
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("written", torch.zeros(5, dtype=torch.complex64))
        self.register_buffer("scale", torch.full((8,), 2.0), persistent=False)

    def counted(self, vectors, labels):
        self.written += 1
        return self.norm((vectors * self.scale).transpose(1, 2)).transpose(1, 2)

    def forward(self, input_ids, labels=None):
        return super().forward(input_ids, labels)


def test_the_second_pass_leaves_a_models_buffers_as_they_were():
    ours, plain = (Counting().train() for _ in range(2))
    plain.load_state_dict(ours.state_dict())
    means = ours.norm.running_mean
    inputs = inputs_under(ours, steps=3, prediction_rate=1.0)[1::2]  # of the training passes
    for ids in inputs:
        plain(input_ids=ids)
    expected = dict(plain.named_buffers())
    assert expected["written"][0] == expected["norm.num_batches_tracked"] == 3
    assert all(torch.equal(value, expected[name]) for name, value in ours.named_buffers())
    assert ours.norm.running_mean is means


def test_a_backward_may_follow_several_forwards_that_need_a_buffer():
    model = Counting().train()
    with curriculum(model, steps=2, prediction_rate=0.5):
        losses = [model(input_ids=IDS, labels=IDS).square().mean() for _ in range(2)]
        sum(losses).backward()
    assert model.embed.weight.grad.any()


def test_masks_and_packed_weights_are_not_copied(monkeypatch):
    monkeypatch.setattr(undone, "MOST_COUNTS", 100)
    model, copied = Counting().train(), []
    model.register_buffer("mask", torch.ones(11, 11, dtype=torch.bool))
    model.register_buffer("shared", torch.ones(1, 4).expand(3, 4))  # which nothing can be written into
    model.register_buffer("means", torch.zeros(11, 11))
    clone = torch.Tensor.clone
    with monkeypatch.context() as patched:
        patched.setattr(
            torch.Tensor, "clone", lambda ours, **how: copied.append(id(ours)) or clone(ours, **how)
        )
        with undone.undone(model):
            pass
    kept = [name for name, value in model.named_buffers() if id(value) in copied]
    assert kept == [name for name, _ in model.named_buffers() if name not in ("mask", "shared")]


def test_buffers_are_as_they_were_also_after_an_error():
    model = Counting().train()
    model.scale = model.scale[:3]  # which breaks a forward after its count
    with pytest.raises(RuntimeError, match="size of tensor"), undone.undone(model):
        model(input_ids=IDS)
    assert not model.written.any()


def test_a_buffer_that_a_forward_makes_anew_for_long_rows_stays():
    """As the frequencies of dynamic rotary embeddings: the model notes elsewhere for which length they are."""
    scaled = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    config = llama().config
    config.max_position_embeddings, config.rope_parameters = IDS.shape[1] // 2, scaled
    model = LlamaForCausalLM(config).train()
    plain, short = copy.deepcopy(model), model.model.rotary_emb.inv_freq.clone()
    expected = plain(input_ids=IDS, labels=IDS).loss
    with curriculum(model, steps=1, prediction_rate=1e-9):
        assert torch.equal(model(input_ids=IDS, labels=IDS).loss, expected)
    assert not torch.equal(plain.model.rotary_emb.inv_freq, short)


def test_a_layer_that_takes_its_shape_from_the_first_input_may_take_it_in_the_second_pass():
    model = Counting()
    model.norm = nn.LazyBatchNorm1d()
    with curriculum(model.train(), steps=1, prediction_rate=0.5):
        model(input_ids=IDS, labels=IDS)
    assert model.norm.running_mean.shape == (8,)


WRONG = {
    "of the last position": lambda vectors, labels: vectors[:, -1:] if labels is None else vectors,
    "time-major": lambda vectors, labels: vectors.transpose(0, 1),
    "flat": lambda vectors, labels: vectors.flatten(0, 1),
}


@pytest.mark.parametrize("ids", [IDS, IDS.T.contiguous()], ids=["wide", "narrow"])
@pytest.mark.parametrize("hidden", WRONG.values(), ids=WRONG)
def test_hidden_vectors_that_are_not_those_of_the_inputs_are_refused(hidden, ids):
    with pytest.raises(
        ConfigError, match=rf"was given hidden vectors .* inputs are .* hand it \({len(ids)}, "
    ):
        inputs_under(Own(hidden), ids=ids, prediction_rate=0.5)


GIVEN = {
    "logits": lambda logits: logits,
    "a dictionary": lambda logits: {"logits": logits},
    "a list": lambda logits: [logits, None],
    "a loss before": lambda logits: (None, logits),
}


@pytest.mark.parametrize("give", GIVEN.values(), ids=GIVEN)
def test_logits_are_found_in_whatever_a_model_gives_back(give):
    torch.manual_seed(1)
    model = Own(give=give)
    said = model.out(model.embed(IDS)).argmax(-1)
    seen = inputs_under(model, prediction_rate=1.0, predict="greedy")
    assert torch.equal(seen[1][:, 1:], said[:, :-1])


@pytest.mark.parametrize(
    "give",
    [lambda logits: None, lambda logits: logits.mean(), lambda logits: {}, lambda logits: logits[:, :-1]],
)
def test_an_output_without_logits_is_refused(give):
    with pytest.raises(ConfigError, match="no logits were found in the model's output"):
        inputs_under(Own(give=give), prediction_rate=0.5)


def test_a_model_whose_output_layer_is_not_known_is_called_as_in_training_its_labels_beside():
    torch.manual_seed(1)
    model = Own(
        hidden=lambda vectors, labels: vectors + labels.sum() * 0,  # it cannot do without them
        give=lambda logits: (logits.sum(), logits),
    )
    model.get_output_embeddings = lambda: None
    said = model.out(model.embed(IDS)).argmax(-1)
    seen = inputs_under(model, prediction_rate=1.0, predict="greedy")
    assert torch.equal(seen[1][:, 1:], said[:, :-1])


def test_the_output_layer_that_is_named_goes_before_the_models_own():
    model = Own()
    rows, model.get_output_embeddings = rows_of(model.out), lambda: nn.Linear(8, VOCAB)
    inputs_under(model, prediction_rate=1.0, output_layer=model.out)
    assert len(rows) == 2  # of the pass that makes predictions, and of the training forward
    assert rows[0] < IDS.numel() == rows[1]


def test_no_prediction_is_an_id_that_the_model_does_not_embed():
    model = Own(vocab=VOCAB + 30)
    with torch.no_grad():
        model.out.bias[VOCAB:] += 50
    assert inputs_under(model, prediction_rate=1.0)[1].max() < VOCAB


@pytest.mark.parametrize("within", [False, True], ids=["of the model", "of a part"])
def test_no_prediction_stands_for_an_image(within):
    """As many of these ids are read as there are features of images: one more, and the model would fail."""
    model = gpt2()
    model.config.vision_config = GPT2Config()
    named = model.config.vision_config if within else model.config
    named.image_token_id, named.video_token_id, named.audio_token_id = (
        7,
        VOCAB,
        -200,
    )  # the last two are no words
    with torch.no_grad():
        model.lm_head.weight[7] = 0
        model.transformer.wte.weight[7] = 50 * model.transformer.ln_f.weight
    assert not (inputs_under(model, prediction_rate=1.0)[1][:, 1:] == 7).any()
    del named.image_token_id
    model.transformer.ln_f.bias.data.fill_(1.0)
    assert (inputs_under(model, prediction_rate=1.0)[1][:, 1:] == 7).all()


def test_a_cache_that_both_passes_would_fill_is_refused():
    model = gpt2().train()
    with (
        pytest.raises(DataError, match=r"called with past_key_values.* Leave the cache out"),
        curriculum(model, steps=1, prediction_rate=0.5),
    ):
        model(input_ids=IDS, labels=IDS, past_key_values=DynamicCache())


def test_neither_a_cache_nor_a_loss_is_made():
    model, given = gpt2().train(), []
    forward = model.forward
    model.forward = lambda **named: given.append(named) or forward(**named)
    inputs_under(model, prediction_rate=0.5)
    second, training = given
    assert second["use_cache"] is False
    assert not second.keys() & second_pass.LOSS_ARGUMENTS
    assert "labels" in training


def test_a_learned_prompt_before_the_tokens_is_no_position_of_theirs():
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(gpt2(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    seen = inputs_under(model, prediction_rate=1.0, predict="greedy")
    with torch.no_grad():
        said = model.eval()(input_ids=IDS).logits[:, 3:].argmax(-1)
    assert torch.equal(seen[-1][:, 1:], said[:, :-1])
