"""Where the predictions of a model of one's own come from: its output, or the layer that was named."""

import inspect

import pytest
import torch
import torch.nn.functional as F
from tests.integrations.outside import GREEDY, Outside, WithTargets, words_read
from tests.integrations.tiny import IDS, VOCAB, gpt2
from torch import nn

import nnrs
from nnrs.errors import ConfigError
from nnrs.integrations.curriculum import curriculum


class LossAlone(Outside):
    def forward(self, x, targets):
        logits = self.out(self.hidden(x)).view(*targets.shape, VOCAB)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Shortened(Outside):
    """The logits of all words but the last, under a name of their own."""

    def forward(self, x):
        return {"scores": self.out(self.hidden(x))[:, :-1]}


class TwoExits(Outside):
    """Logits of an early layer go into a loss, scaled ones of the last are given back."""

    def forward(self, x):
        hidden = self.hidden(x)
        self.out(self.embed(x))
        return self.out(hidden) * 0.5


class TwoExitsFailing(TwoExits):
    def forward(self, x):
        return super().forward(x).view(*x.shape, VOCAB)


NAMED_LAYER = {
    "targets beside": (WithTargets, lambda model: model(IDS, IDS)),
    "a loss alone": (LossAlone, lambda model: model(IDS, IDS)),
    "other logits": (Shortened, lambda model: model(IDS)),
}


@pytest.mark.parametrize(("kind", "call"), NAMED_LAYER.values(), ids=NAMED_LAYER)
def test_a_model_whose_layer_is_named_need_not_give_its_logits(kind, call):
    """Where it gives back none of those words, or fails behind that layer, what the layer gave counts."""
    model = kind().train()
    said, rows = model.out(model.hidden(IDS)).argmax(-1), []
    model.out.register_forward_hook(lambda _, args, out: rows.append(args[0].shape[:-1].numel()))
    seen = words_read(model)
    with curriculum(model, inputs="x", output_layer=model.out, **GREEDY):
        call(model)
    assert torch.equal(seen[-1], torch.cat([IDS[:, :1], said[:, :-1]], dim=1))
    assert rows == [4 * 11, 4 * 12]


@pytest.mark.parametrize("kind", [TwoExits, TwoExitsFailing])
def test_of_a_layer_that_is_used_twice_the_last_counts(kind):
    model = kind().train()
    said, seen = model.out(model.hidden(IDS)).argmax(-1), words_read(model)
    with curriculum(model, inputs="x", output_layer=model.out, **GREEDY):
        model(IDS)
    assert torch.equal(seen[-1][:, 1:], said[:, :-1])


@pytest.mark.parametrize("named", [False, True], ids=["its own", "named"])
@pytest.mark.parametrize("labels", [{}, {"labels": IDS}], ids=["ids alone", "labels"])
def test_what_a_model_does_to_the_logits_that_it_gives_back_is_done_to_predictions(named, labels):
    """Sharpened a thousandfold, sampled words are the likeliest."""
    model = gpt2().train()
    forward = model.forward
    with torch.no_grad():
        said = model(IDS).logits.argmax(-1)

    def sharpened(**given):
        outputs = forward(**given)
        outputs.logits = outputs.logits * 1e6
        return outputs

    seen = []
    model.transformer.wte.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    model.forward = sharpened
    model.forward.__signature__ = inspect.signature(forward)
    options = {"output_layer": model.lm_head} if named else {}
    options |= {} if labels else {"inputs": "input_ids"}
    with curriculum(model, steps=1, prediction_rate=1.0, **options):
        model(input_ids=IDS, **labels)
    assert torch.equal(seen[-1][:, 1:], said[:, :-1])


def test_no_memory_is_no_reason_to_take_less():
    model = Outside().train()

    def fails(module, args, logits):
        raise torch.OutOfMemoryError

    def forward(x):
        return tail(Outside.forward(model, x))

    tail = nn.Identity()
    tail.register_forward_hook(fails)
    model.forward = forward
    with (
        pytest.raises(torch.OutOfMemoryError),
        curriculum(model, inputs="x", output_layer=model.out, **GREEDY),
    ):
        model(x=IDS)


def test_an_error_of_the_models_own_forward_is_its_own():
    class Broken(Outside):
        def hidden(self, x):
            raise ValueError("its own")

    model = Broken().train()
    with (
        pytest.raises(ValueError, match="its own"),
        curriculum(model, inputs="x", output_layer=model.out, **GREEDY),
    ):
        model(IDS)
    assert not model.out._forward_hooks


def test_predictions_are_the_same_whether_the_output_layer_is_named_or_not():
    read = []
    for layer in (False, True):
        model = Outside(dropout=0.3).train()
        table = nnrs.NeighborTable.from_vectors(model.embed.weight, k=3)
        seen = words_read(model)
        options = {"output_layer": model.out} if layer else {}
        rates = {"neighbor_rate": 0.4, "prediction_rate": 0.5}
        with curriculum(model, table, steps=3, inputs="x", **rates, **options):
            for _ in range(3):
                model(IDS)
        read.append(seen[1::2])
    assert all(torch.equal(one, other) for one, other in zip(*read, strict=True))
    assert not torch.equal(read[0][0], IDS)


class Transposed(Outside):
    """(batch, time) in, (time, batch, words) out."""

    def forward(self, x):
        return super().forward(x).transpose(0, 1)


def test_logits_that_lie_otherwise_than_the_ids_are_refused():
    model = Transposed().train()
    message = (
        rf"inputs are \(4, 12\), .* logits \(12, 4, {VOCAB}\)\. .* \(4, 12, words\); or pass output_layer="
    )
    with pytest.raises(ConfigError, match=message), curriculum(model, inputs="x", **GREEDY):
        model(IDS)
    with curriculum(model, inputs="x", output_layer=model.out, **GREEDY):
        model(IDS)


class Headless(Outside):
    """Hidden vectors: an adaptive softmax makes its loss of them."""

    def forward(self, x):
        return self.hidden(x)


def test_hidden_vectors_that_are_taken_for_logits_are_warned_of_once():
    model = Headless().train()
    with curriculum(model, inputs="x", steps=2, prediction_rate=0.5):
        with pytest.warns(UserWarning, match="logits of 16 words, and what it embeds are 61 ids"):
            model(IDS)
        model(IDS)  # a second warning would be an error


class Wider(Outside):
    """More logits than words, as tensor cores like it."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, VOCAB + 3)


@pytest.mark.parametrize("named_layer", [False, True], ids=["all logits", "chosen logits"])
def test_logits_of_words_that_are_not_embedded_are_warned_of_with_what_helps(named_layer):
    model = Wider().train()
    layer = {"output_layer": model.out} if named_layer else {}
    with torch.no_grad():
        model.out.bias[VOCAB:] = -100.0
    message = r"logits of 64 words, .* are 61 ids\. A word beyond .* get_input_embeddings\(\)"
    with (
        pytest.warns(UserWarning, match=message),
        curriculum(model, inputs="x", steps=1, prediction_rate=0.5, **layer),
    ):
        model(IDS)
    model.get_input_embeddings = lambda: model.embed
    with torch.no_grad():
        model.out.bias[VOCAB:] = 100.0
    with curriculum(model, inputs="x", steps=1, prediction_rate=0.5, **layer):
        model(IDS)  # what the model says that it embeds is all that it may predict


def test_a_layer_that_makes_no_logits_is_warned_of():
    model = Headless().train()
    model.middle = nn.Linear(16, 16)
    model.hidden = lambda x: model.middle(model.encode(model.embed(x))[0])
    message = r"logits of 16 words, .* 61 ids\. .* output_layer= what makes .* Say what it embeds"
    with (
        pytest.warns(UserWarning, match=message),
        curriculum(model, inputs="x", steps=1, prediction_rate=0.5, output_layer=model.middle),
    ):
        model(IDS)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            lambda model: model.out(model.hidden(IDS)).sum(),
            r"a Tensor that has the shape \(\) for 48 words\. ",
        ),
        (
            lambda model: (model.out(model.hidden(IDS)[:, 0]), 7),
            r"a tuple .* shape \(4, 61\) for 48 words\. ",
        ),
        (lambda model: None, r"a NoneType\. .* with `logits`; or pass output_layer="),
    ],
    ids=["a loss", "too few", "nothing"],
)
def test_an_output_without_the_logits_of_all_words_is_told_by_what_it_is(given, told):
    model = Outside().train()
    model.forward = lambda x: given(model)
    with pytest.raises(ConfigError, match=told), curriculum(model, inputs="x", **GREEDY):
        model(x=IDS)


class WithPositions(Outside):
    """Positions are embedded as well, and the words with rows to spare."""

    def __init__(self, spare=0):
        super().__init__()
        self.embed, self.places = nn.Embedding(VOCAB + spare, 16), nn.Embedding(12, 16)
        self.order = nn.ModuleList([self.places, self.embed])

    def forward(self, x):
        return self.out(self.encode(self.embed(x) + self.places.weight)[0])


class Unembedded(Outside):
    """A matrix of its own in the place of an embedding layer."""

    def __init__(self):
        super().__init__()
        self.embed = None
        self.matrix = nn.Parameter(torch.randn(VOCAB, 16))

    def forward(self, x):
        return self.out(self.encode(self.matrix[x])[0])


@pytest.mark.parametrize("make", [WithPositions, lambda: WithPositions(spare=20), Unembedded])
def test_logits_as_wide_as_something_that_is_embedded_are_not_warned_of(make):
    model = make().train()
    with curriculum(model, inputs="x", steps=1, prediction_rate=0.5):
        model(IDS)  # a warning would be an error
