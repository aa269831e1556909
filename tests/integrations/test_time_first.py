"""The curriculum around ids (time, batch): which follows which, and which way round the model reads them."""

import pytest
import torch
import torch.nn.functional as F
from tests.integrations.outside import GREEDY, Outside, Recurrent, TimeFirst, words_read
from tests.integrations.tiny import IDS, VOCAB
from torch import nn

from nnrs.errors import ConfigError, DataError
from nnrs.integrations.curriculum import curriculum


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


@pytest.mark.parametrize("lies", ["as the ids", "batch first"])
def test_masks_and_positions_beside_ids_time_first_are_heeded(lies):
    model = Recurrent().train()
    mask, positions = torch.ones_like(IDS), torch.arange(12).expand(4, 12) % 6
    mask[0, 9:] = 0
    turned = (mask.t(), positions.t()) if lies == "as the ids" else (mask, positions)
    said, seen = model(IDS.t()).argmax(-1).t().roll(1, dims=1), words_read(model)
    with curriculum(model, inputs="x", batch_first=False, **GREEDY):
        model(IDS.t(), attention_mask=turned[0], position_ids=turned[1])
    stays = (mask == 0) | (positions == 0)
    assert torch.equal(seen[-1].t(), torch.where(stays, IDS, said))


ORDERS = {
    "time first, unsaid": (Recurrent, {}, "give inputs= and batch_first=False"),
    "batch first, denied": (Outside, {"batch_first": False}, "leave batch_first=False out"),
}


@pytest.mark.parametrize(("kind", "said", "advice"), ORDERS.values(), ids=ORDERS)
def test_ids_that_the_model_reads_the_other_way_round_are_refused(kind, said, advice):
    model, ids = kind().train(), IDS if said else IDS.t()
    message = f"GRU reads 4 rows of 12 words, .* its ids for 12 rows of 4 words. .*, {advice}"
    with curriculum(model, inputs="x", steps=2, prediction_rate=0.5, **said):
        model(ids[:4, :4])  # which does not tell
        with pytest.raises(ConfigError, match=message):
            model(ids)
    assert not model.encode._forward_pre_hooks


class TurnedWithin(Recurrent):
    """(batch, time) in and out, and time first in between; characters of each word are read beside."""

    def __init__(self):
        super().__init__()
        self.letters = nn.LSTM(16, 16)

    def forward(self, x):
        words = self.embed(x)
        letters = self.letters(words.flatten(0, 1).expand(3, -1, -1))[0][-1].view_as(words)
        return super().forward(x.t()).transpose(0, 1) + self.out(letters)


class WordByWord(Outside):
    """Each word is read as a row of its own."""

    def hidden(self, x):
        return self.encode(self.embed(x).view(-1, 1, 16))[0].view(*x.shape, 16)


def test_a_single_row_may_be_read_word_by_word():
    model = WordByWord().train()
    with curriculum(model, inputs="x", steps=2, prediction_rate=0.5):
        model(IDS[:1])
        model(IDS)


class Unbatched(Outside):
    """Its recurrent layer reads a row at a time."""

    def hidden(self, x):
        return torch.stack([self.encode(row)[0] for row in self.embed(x)])


def test_rows_may_be_read_one_by_one():
    model = Unbatched().train()
    with curriculum(model, inputs="x", steps=1, prediction_rate=0.5):
        model(IDS)


def test_a_model_that_turns_its_ids_within_is_not_refused():
    model = TurnedWithin().train()
    with curriculum(model, inputs="x", steps=1, prediction_rate=0.5):
        model(IDS)


def test_ids_time_first_of_the_wrong_shape_are_told_how_they_are_to_lie():
    with (
        pytest.raises(DataError, match=r"x must be token ids \(time, batch\), got torch\.int64 \(12,\)"),
        curriculum(TimeFirst().train(), steps=1, inputs="x", batch_first=False, prediction_rate=0.5) as ours,
    ):
        ours.model(IDS[0])


def test_ids_time_first_are_named():
    with pytest.raises(ConfigError, match="batch_first=False goes with inputs="):
        curriculum(Outside(), steps=1, prediction_rate=0.5, batch_first=False).__enter__()
