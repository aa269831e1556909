"""A whole number is the same everywhere: a neighbor's count, a token's id, a setting of a curriculum."""

import numpy as np
import pytest
import torch
from tests.surroundings import unchecked

from nnrs.arguments import whole
from nnrs.errors import ConfigError
from nnrs.integrations.settings import token_ids
from nnrs.neighbors.arguments import candidates_among
from nnrs.neighbors.table import checked_k

ROWS = torch.eye(4)
ASKED = {
    "a number": lambda value: whole("seed", value),
    "k": lambda value: checked_k(value, torch.ones(4, dtype=torch.bool)),
    "protected ids": lambda value: candidates_among(ROWS, [value]).logical_not().nonzero().item(),
    "document ends": lambda value: token_ids("document_end", [value])[0],
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_whole_numbers_of_any_library_are_taken_and_truth_values_refused(asked):
    for number in (2, np.int64(2), np.array(2), torch.tensor(2)):
        with unchecked():
            assert asked(number) == 2
    for truth in (True, np.True_, np.array(True), torch.tensor(True), 2.0, "2"):
        with unchecked(), pytest.raises(ConfigError):
            asked(truth)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            0,
            "no word has a neighbor: 0 of 8 words can be replaced, for the others have no vector (a row of zeros",
        ),
        (1, "no word has a neighbor: 1 of 8 words can be replaced, "),
        (
            3,
            "k=3, the usual for 8 words, asks for more neighbors than a word has: only 3 words are replaceable. ",
        ),
    ],
)
def test_too_few_words_are_told_with_what_would_help(words, told):
    with pytest.raises(ConfigError) as error:
        checked_k(None, torch.arange(8) < words)
    assert str(error.value).startswith(told)
