"""The curriculum around models of one's own that are called with ids alone: what they read, how they are called."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from tests.integrations.outside import GREEDY, Outside, TimeFirst, WithTargets, words_read
from tests.integrations.tiny import IDS, gpt2, t5

import nnrs
from nnrs.errors import ConfigError, DataError, RunError
from nnrs.integrations.curriculum import curriculum


class LossFirst(Outside):
    def forward(self, x, targets):
        logits = self.out(self.hidden(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), logits


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


def test_the_text_that_is_encoded_is_not_taken_for_the_one_that_is_written():
    with pytest.raises(ConfigError, match=r"encodes, .* inputs='decoder_input_ids'"):
        curriculum(t5(), steps=1, inputs="input_ids", prediction_rate=0.5).__enter__()


class Nameless(Outside):
    def forward(self, x, /):
        return super().forward(x)


class ManyStates(Outside):
    def forward(self, x, *states):
        return super().forward(x)


def test_arguments_without_a_name_do_no_harm_where_none_are_given():
    model = ManyStates().train()
    with curriculum(model, inputs="x", **GREEDY) as ours:
        model(IDS)
    assert ours.report()["effective_prediction_rate"] == 1


class MayCache(Outside):
    """With a configuration as transformers' models have it; what it is told of a cache is written down."""

    def __init__(self, configured):
        super().__init__()
        self.told = []
        if configured:
            self.config = SimpleNamespace(use_cache=True)


class OwnCache(MayCache):
    def forward(self, x, use_cache=True):
        self.told.append(use_cache)
        return super().forward(x)


class AnyCache(MayCache):
    def forward(self, x, **given):
        self.told.append(given.get("use_cache", True))
        return super().forward(x)


class NoCache(MayCache):
    def forward(self, x):
        self.told.append(True)
        return super().forward(x)


@pytest.mark.parametrize(
    ("kind", "configured", "told"),
    [
        (OwnCache, True, False),
        (AnyCache, True, False),
        (NoCache, True, True),
        (OwnCache, False, True),
        (AnyCache, False, True),
    ],
)
def test_the_second_pass_has_no_cache_filled_where_the_model_has_one(kind, configured, told):
    model = kind(configured).train()
    with curriculum(model, inputs="x", **GREEDY):
        model(IDS)
    assert model.told == [told, True]  # the pass that makes predictions, then the training pass


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


def test_labels_do_not_stand_for_the_ids_that_were_named():
    model = t5().train()
    with (
        pytest.raises(RunError, match="without decoder_input_ids, which inputs= names"),
        curriculum(model, inputs="decoder_input_ids", **GREEDY),
    ):
        model(input_ids=IDS, labels=IDS)


def test_a_loop_whose_model_is_given_no_labels_is_told_to_name_its_ids():
    model = Outside().train()
    with (
        pytest.raises(RunError, match=r"given no labels\. .* inputs='input_ids'"),
        curriculum(model, steps=1, prediction_rate=0.5),
    ):
        model(IDS)
