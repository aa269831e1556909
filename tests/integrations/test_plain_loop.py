"""The curriculum around models of one's own that are called with ids alone, their loss made elsewhere."""

import pytest
import torch
import torch.nn.functional as F
from tests.integrations.tiny import IDS, VOCAB, gpt2, t5
from torch import nn

import nnrs
from nnrs.errors import ConfigError, DataError, RunError
from nnrs.integrations.curriculum import curriculum

GREEDY = {"steps": 1, "prediction_rate": 1.0, "predict": "greedy"}


class Outside(nn.Module):
    """Ids to logits; the loss is made outside."""

    def __init__(self, dropout=0.0):
        super().__init__()
        torch.manual_seed(5)
        self.embed, self.out = nn.Embedding(VOCAB, 16), nn.Linear(16, VOCAB)
        self.encode, self.drop = nn.GRU(16, 16, batch_first=True), nn.Dropout(dropout)

    def hidden(self, x):
        return self.encode(self.drop(self.embed(x)))[0]

    def forward(self, x):
        return self.out(self.hidden(x))


class WithTargets(Outside):
    """As nanoGPT: the logits of all words beside targets, those of the last word without."""

    def forward(self, x, targets=None):
        if targets is None:
            return self.out(self.hidden(x)[:, [-1]]), None
        logits = self.out(self.hidden(x))
        return logits, F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


class LossFirst(Outside):
    def forward(self, x, targets):
        logits = self.out(self.hidden(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), logits


class TimeFirst(Outside):
    """As PyTorch's word language model: (time, batch), a state that is handed on, logits in one list."""

    def __init__(self):
        super().__init__()
        self.encode.batch_first = False

    def forward(self, x, state=None):
        hidden, state = self.encode(self.embed(x), state)
        return self.out(hidden).view(-1, VOCAB), state


class Translator(Outside):
    def forward(self, source, x):
        return self.out(self.hidden(x) + self.embed(source).mean(1, keepdim=True))


SOURCE = IDS.flip(1)[:, :5]
CALLS = {
    "logits": (Outside, lambda model, x: model(x)),
    "by name": (Outside, lambda model, x: model(x=x)),
    "targets beside": (WithTargets, lambda model, x: model(x, IDS)[0]),
    "loss before": (LossFirst, lambda model, x: model(x, targets=IDS)[1]),
    "source before": (Translator, lambda model, x: model(SOURCE, x)),
}


def words_read(model):
    """What reaches the embedding layer: in each forward its last call, which a source may stand before."""
    seen = []
    model.embed.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    return seen


@pytest.mark.parametrize(("kind", "call"), CALLS.values(), ids=CALLS)
def test_every_input_becomes_what_the_model_says_before_it_and_the_first_stays(kind, call):
    model = kind().train()
    said = call(model, IDS).argmax(-1)
    passed = []
    model.encode.register_forward_pre_hook(lambda _, args: passed.append(args[0]))
    with curriculum(model, inputs="x", **GREEDY) as ours:
        call(model, IDS)
    expected = torch.cat([IDS[:, :1], said[:, :-1]], dim=1)
    assert torch.equal(passed[-1], model.embed(expected))
    assert ours.report()["effective_prediction_rate"] == 1


def test_what_ends_a_document_is_followed_by_a_word_that_stays():
    model = Outside().train()
    said, seen = model(IDS).argmax(-1).roll(1, dims=1), words_read(model)
    with curriculum(model, inputs="x", document_end=int(IDS[2, 4]), **GREEDY):
        model(IDS)
    stays = F.pad(IDS[:, :-1] == IDS[2, 4], (1, 0))
    stays[:, 0] = True
    assert stays[2, 5]
    assert torch.equal(seen[-1], torch.where(stays, IDS, said))


class AnyArguments(Outside):
    def forward(self, **kwargs):
        return super().forward(kwargs["x"])


def test_a_forward_that_takes_arguments_of_any_name_takes_that_of_the_ids():
    model = AnyArguments().train()
    said, seen = model(x=IDS).argmax(-1), words_read(model)
    with curriculum(model, inputs="x", **GREEDY):
        model(x=IDS)
    assert torch.equal(seen[-1][:, 1:], said[:, :-1])


@pytest.mark.parametrize("batch_first", [True, False])
def test_the_ids_that_are_read_are_contiguous_and_no_view(batch_first):
    """In both passes: a model may view them, and a compiler looks at that."""
    model = Outside() if batch_first else TimeFirst()
    model.train()
    seen = []
    model.embed.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with curriculum(model, inputs="x", steps=1, prediction_rate=0.5, batch_first=batch_first):
        model(IDS if batch_first else IDS.t())
    assert [(ids.is_contiguous(), ids._is_view()) for ids in seen] == [(True, False)] * 2


@pytest.mark.parametrize("named_layer", [False, True], ids=["all logits", "chosen logits"])
def test_of_ids_time_first_each_follows_the_one_above_it(named_layer):
    model = TimeFirst().train()
    ids, state = IDS.t().contiguous(), torch.randn(1, 4, 16)
    said = model(ids, state)[0].view(12, 4, VOCAB).argmax(-1)
    seen = words_read(model)
    layer = {"output_layer": model.out} if named_layer else {}
    with curriculum(model, inputs="x", batch_first=False, document_end=int(ids[4, 2]), **GREEDY, **layer):
        model(ids, state)
    expected = torch.cat([ids[:1], said[:-1]])
    after_an_end = F.pad(ids[:-1] == ids[4, 2], (0, 0, 1, 0))
    assert after_an_end[5, 2]
    assert torch.equal(seen[-1], torch.where(after_an_end, ids, expected))


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


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which dynamo looks at
def test_compiled_it_reads_the_same():
    read = []
    for wrap in (lambda model: model, lambda model: torch.compile(model, backend="eager")):
        model = Outside().train()
        seen = words_read(model)
        called = wrap(model)
        with curriculum(called, steps=2, inputs="x", prediction_rate=0.5):
            for _ in range(2):
                called(IDS).sum().backward()
        read.append(seen)
    assert all(torch.equal(one, other) for one, other in zip(*read, strict=True))


def test_a_rate_of_zero_is_the_plain_loop_bit_for_bit():
    weights = []
    for is_ours in (False, True):
        model = Outside(dropout=0.3).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        torch.manual_seed(7)
        options = {"prediction_rate": 0.0} if is_ours else {}
        block = curriculum(model, inputs="x", steps=4, **options) if is_ours else torch.enable_grad()
        with block:
            for _ in range(4):
                loss = F.cross_entropy(model(IDS[:, :-1]).flatten(0, 1), IDS[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        weights.append(model.state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_evaluation_and_the_tensor_that_was_passed_are_left_alone():
    model = Outside().train()
    seen, before = words_read(model), IDS.clone()
    with curriculum(model, inputs="x", **GREEDY):
        with torch.no_grad():
            model(IDS)
        model.eval()(IDS)
        model.train()(IDS)
    assert torch.equal(seen[0], IDS)
    assert torch.equal(seen[1], IDS)
    assert not torch.equal(seen[-1], IDS)
    assert torch.equal(IDS, before)


def test_a_mask_and_positions_are_heeded_and_labels_are_not():
    model = gpt2().train()
    seen = []
    model.transformer.wte.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    mask, positions = torch.ones_like(IDS), torch.arange(12).expand(4, 12) % 6
    mask[0, 9:] = 0
    given = {"input_ids": IDS, "attention_mask": mask, "position_ids": positions}
    with torch.no_grad():
        said = model(**given, use_cache=False).logits.argmax(-1)
    with curriculum(model, inputs="input_ids", **GREEDY):
        model(**given, labels=torch.full_like(IDS, -100))
    stays = (mask == 0) | (positions == 0)
    assert torch.equal(seen[-1], torch.where(stays, IDS, said.roll(1, dims=1)))


def test_of_a_decoder_named_so_its_own_mask_is_heeded():
    model = t5().train()
    seen, mask = [], torch.ones_like(IDS)
    model.decoder.embed_tokens.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    mask[1, 5:] = 0
    given = {"input_ids": IDS, "attention_mask": mask.flip(0), "decoder_attention_mask": mask}
    with torch.no_grad():
        said = model(**given, decoder_input_ids=IDS).logits.argmax(-1)
    with curriculum(model, inputs="decoder_input_ids", **GREEDY):
        model(**given, decoder_input_ids=IDS)
    stays = mask == 0
    stays[:, 0] = True
    assert torch.equal(seen[-1], torch.where(stays, IDS, said.roll(1, dims=1)))


REFUSED = {
    "unknown": ("y", lambda model: model(IDS), ConfigError, r"forward has no argument 'y', .* It has: x\."),
    "floats": (
        "x",
        lambda model: model(torch.randn(4, 12)),
        DataError,
        "x must be token ids .* got torch.float32",
    ),
    "vectors": ("x", lambda model: model(IDS[..., None]), DataError, r"x must be token ids \(batch, time\)"),
    "a list": (
        "x",
        lambda model: model(IDS.tolist()),
        DataError,
        r"x must be token ids \(batch, time\), got list",
    ),
}


@pytest.mark.parametrize(("name", "call", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_what_holds_no_ids_is_refused(name, call, error, message):
    model = Outside().train()
    with pytest.raises(error, match=message), curriculum(model, steps=1, inputs=name, prediction_rate=0.5):
        call(model)


def test_ids_time_first_of_the_wrong_shape_are_told_how_they_are_to_lie():
    with (
        pytest.raises(DataError, match=r"x must be token ids \(time, batch\), got torch\.int64 \(12,\)"),
        curriculum(TimeFirst().train(), steps=1, inputs="x", batch_first=False, prediction_rate=0.5) as ours,
    ):
        ours.model(IDS[0])


def test_the_text_that_is_encoded_is_not_taken_for_the_one_that_is_written():
    with pytest.raises(ConfigError, match=r"encodes, .* inputs='decoder_input_ids'"):
        curriculum(t5(), steps=1, inputs="input_ids", prediction_rate=0.5).__enter__()


class Transposed(Outside):
    """(batch, time) in, (time, batch, words) out."""

    def forward(self, x):
        return super().forward(x).transpose(0, 1)


def test_logits_that_lie_otherwise_than_the_ids_are_refused():
    model = Transposed().train()
    message = (
        rf"inputs are \(4, 12\), .* logits \(12, 4, {VOCAB}\)\. .* \(4, 12, words\), or pass output_layer="
    )
    with pytest.raises(ConfigError, match=message), curriculum(model, inputs="x", **GREEDY):
        model(IDS)
    with curriculum(model, inputs="x", output_layer=model.out, **GREEDY):
        model(IDS)


class Nameless(Outside):
    def forward(self, x, /):
        return super().forward(x)


class ManyStates(Outside):
    def forward(self, x, *states):
        return super().forward(x)


@pytest.mark.parametrize(("kind", "given", "name"), [(Nameless, (), "x"), (ManyStates, (None,), "states")])
def test_arguments_without_a_name_are_refused_by_what_they_are_called(kind, given, name):
    model = kind().train()
    with (
        pytest.raises(ConfigError, match=f"{kind.__name__}.forward takes {name} without its name"),
        curriculum(model, inputs="x", **GREEDY),
    ):
        model(IDS, *given)
    table = nnrs.NeighborTable.from_vectors(model.embed.weight, k=3)
    with curriculum(model, table, steps=1, inputs="x", neighbor_rate=0.5):  # which needs no second pass
        model(IDS, *given)


def test_a_call_without_the_argument_that_was_named_is_refused():
    model = WithTargets().train()
    with (
        pytest.raises(
            RunError, match=r"without targets, which inputs= names\. Pass it by name: model\(targets="
        ),
        curriculum(model, steps=1, inputs="targets", prediction_rate=0.5),
    ):
        model(IDS)


def test_a_loop_whose_model_is_given_no_labels_is_told_to_name_its_ids():
    model = Outside().train()
    with (
        pytest.raises(RunError, match=r"given no labels\. .* inputs='x'"),
        curriculum(model, steps=1, prediction_rate=0.5),
    ):
        model(IDS)


def test_ids_time_first_are_named():
    with pytest.raises(ConfigError, match="batch_first=False goes with inputs="):
        curriculum(Outside(), steps=1, prediction_rate=0.5, batch_first=False).__enter__()


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
