"""Which inputs may change: compared with the rules read one position at a time."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from tests.integrations.batches import expected_changes, packed_or_padded
from tests.integrations.tiny import gpt2, t5
from torch import nn

from nnrs.errors import ConfigError, DataError
from nnrs.integrations.batch import changeable, read_batch


@given(packed_or_padded())
def test_an_input_may_change_where_the_rules_say_so_and_nowhere_else(batch):
    assert changeable(*batch).tolist() == expected_changes(batch)


def test_the_token_after_a_document_end_is_a_first_one():
    ids = torch.tensor([[5, 6, 0, 7, 8]])
    assert changeable(ids, ids, document_ends=(0,)).tolist() == [[False, True, True, False, True]]


def test_after_each_of_several_document_ends_comes_a_first_token():
    ids = torch.tensor([[5, 1, 6, 2, 7, 8]])
    assert changeable(ids, ids, document_ends=(1, 2)).tolist() == [[False, True, False, True, False, True]]


def test_a_mask_that_numbers_documents_shows_where_each_begins():
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    numbers = torch.tensor([[1, 1, 2, 2, 0]])
    assert changeable(ids, ids, numbers).tolist() == [[False, True, False, True, False]]


@pytest.mark.parametrize("lowest", [-torch.inf, torch.finfo(torch.float16).min])
def test_a_mask_to_be_added_to_scores_is_refused_for_it_would_spare_every_token(lowest):
    ids = torch.tensor([[5, 6, 7]])
    with pytest.raises(ConfigError, match=r"numbers below 0.* Give the model one with 1"):
        changeable(ids, ids, torch.tensor([[0.0, 0.0, lowest]]))


def test_a_mask_of_floats_is_read_as_one_of_whole_numbers():
    ids = torch.tensor([[5, 6, 7, 8]])
    for numbers in ([1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 2, 2]):  # padding, nothing to read, two documents
        mask = torch.tensor([numbers])
        assert changeable(ids, ids, mask.float()).equal(changeable(ids, ids, mask))


def test_a_mask_of_four_dimensions_tells_nothing():
    ids = torch.tensor([[5, 6]])
    assert changeable(ids, ids, torch.zeros(1, 1, 2, 2)).tolist() == [[False, True]]


def test_positions_of_one_row_are_every_rows_and_those_of_other_shapes_tell_nothing():
    ids = torch.tensor([[5, 6, 7], [5, 6, 7]])
    one = torch.tensor([[0, 1, 0]])
    for same in (one, one[0]):
        assert changeable(ids, ids, position_ids=same).tolist() == [[False, True, False]] * 2
    for other in (one[:, :2], one.expand(3, -1), one[None], torch.zeros(2, 1, dtype=torch.int64)):
        assert changeable(ids, ids, position_ids=other).tolist() == [[False, True, True]] * 2


def test_in_a_batch_of_no_width_nothing_may_change():
    ids = torch.zeros(2, 0, dtype=torch.int64)
    assert changeable(ids, ids, torch.ones(2, 0), ids, document_ends=(0,)).shape == (2, 0)


def test_decoder_inputs_are_made_as_the_model_makes_them_and_belong_to_the_label_before():
    labels = torch.tensor([[5, -100, 7, 8]])
    model = t5()
    batch = read_batch(model, {"input_ids": torch.tensor([[3, 1]]), "labels": labels})
    assert batch.name == "decoder_input_ids"
    assert (
        batch.ids.tolist() == model.prepare_decoder_input_ids_from_labels(labels).tolist() == [[0, 5, 0, 7]]
    )
    assert batch.may_change.tolist() == [[False, True, False, True]]


@pytest.mark.parametrize("missing", ["decoder_start_token_id", "pad_token_id"])
def test_a_decoder_whose_config_does_not_say_how_it_starts_is_refused(missing):
    model = nn.Module()
    said = {"is_encoder_decoder": True, "decoder_start_token_id": 1, "pad_token_id": 0, missing: None}
    model.config = SimpleNamespace(**said)
    named = {"labels": torch.tensor([[5, 6]])}
    with pytest.raises(ConfigError, match="pass decoder_input_ids"):
        read_batch(model, named)
    assert read_batch(model, named | {"decoder_input_ids": torch.tensor([[1, 5]])}).ids.tolist() == [[1, 5]]


def test_labels_that_are_no_text_are_refused():
    with pytest.raises(DataError, match=r"labels \(2,\) must be \(batch, time\)"):
        read_batch(t5(), {"input_ids": torch.tensor([[3, 1], [3, 1]]), "labels": torch.tensor([0, 1])})


def test_decoder_inputs_that_are_given_are_taken():
    ids, labels = torch.tensor([[0, 9, 9]]), torch.tensor([[5, 6, 7]])
    named = {"decoder_input_ids": ids, "labels": labels, "decoder_attention_mask": torch.tensor([[1, 1, 0]])}
    batch = read_batch(t5(), named)
    assert batch.ids is ids
    assert batch.may_change.tolist() == [[False, True, False]]


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (gpt2, {"inputs_embeds": torch.zeros(1, 2, 16)}),
        (t5, {"decoder_inputs_embeds": torch.zeros(1, 2, 16)}),
    ],
)
def test_vectors_instead_of_ids_are_refused(model, named):
    with pytest.raises(DataError, match="Pass ids by that name, not vectors"):
        read_batch(model(), {**named, "labels": torch.tensor([[1, 2]])})


def test_labels_of_another_shape_are_refused():
    with pytest.raises(DataError, match=r"\(1, 3\) and labels \(1, 2\)"):
        read_batch(
            gpt2(), {"input_ids": torch.ones(1, 3, dtype=torch.int64), "labels": torch.tensor([[1, 2]])}
        )
