"""What a curriculum may be asked for, and how it refuses the rest."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.integrations.tiny import gpt2, table_of
from tests.surroundings import unchecked

from nnrs.arguments import whole
from nnrs.errors import ConfigError
from nnrs.integrations import huggingface
from nnrs.integrations.curriculum import Curriculum, curriculum
from nnrs.integrations.settings import Settings, token_ids

GPT2 = gpt2()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a rate"),
        ({"neighbor_rate": 0.1}, "go together"),
        ({"prediction_rate": 1.1}, "probability"),
        ({"prediction_rate": 0.1, "predict": "best"}, "unknown way to predict 'best'"),
        ({"prediction_rate": 0.1, "rule": "pros"}, "Did you mean 'prose'"),
        ({"prediction_rate": 0.1, "granularity": "word"}, "unknown granularity"),
        ({"prediction_rate": 0.1, "temperature": 0.0}, "temperature must be in"),
        ({"prediction_rate": 0.1, "steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"prediction_rate": 0.1, "accumulation": 0}, "accumulation must be a whole number of at least 1"),
        ({"prediction_rate": 0.1, "seed": -1}, r"seed must be in \[0, 2\^63\), got -1\."),
        ({"prediction_rate": 0.1, "seed": 2**63}, r"seed must be in \[0, 2\^63\), got 9223372036854775808\."),
        ({"prediction_rate": 0.1, "rank": -1}, "rank must be a whole number of at least 0, got -1"),
        ({"prediction_rate": 0.1, "document_end": [3, -1]}, r"document_end must be .* got \[3, -1\]"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(ConfigError, match=message), curriculum(GPT2, **{"steps": 1, **options}):
        pass


@pytest.mark.parametrize("rate", [1.5, -0.1])
def test_a_rate_that_is_no_probability_is_refused_by_its_name(rate):
    with pytest.raises(ConfigError, match="prediction_rate, where it is no Schedule, must be a probability"):
        Settings.named({"neighbor_rate": 0.1, "prediction_rate": rate})


def test_a_misspelt_setting_is_refused_with_the_right_one():
    with pytest.raises(ConfigError, match=r"'neighbour_rate'\. Did you mean 'neighbor_rate'\?"):
        huggingface.InputCurriculum(table_of(GPT2), neighbour_rate=0.1)


WRONG = [  # of another kind than was asked for, or text where a number goes
    ("accumulation", 1.5),
    ("steps", "5"),
    ("steps", True),
    ("seed", 1.5),
    ("seed", None),
    ("rank", "0"),
    ("document_end", "</s>"),
    ("document_end", ["</s>"]),
    ("document_end", 1.0),
    ("output_layer", "out"),
    ("inputs", 3),
    ("inputs", ""),
    ("batch_first", "no"),
    ("temperature", "0.5"),
]


def test_arguments_of_the_wrong_kind_are_refused_by_name_in_one_line():
    """In a process of its own: in this one, types are checked before our code can."""
    code = f"""
import torch, nnrs
from nnrs.errors import ConfigError
for name, given in {WRONG!r}:
    options = {{"steps": 1, "prediction_rate": 0.1, name: given}}
    try:
        with nnrs.curriculum(torch.nn.Linear(1, 1), **options):
            pass
    except ConfigError as error:
        print(error)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    lines = told.splitlines()
    assert [line.split()[0] for line in lines] == [name for name, _ in WRONG]
    assert all(f", got {given!r}." in line for line, (_, given) in zip(lines, WRONG, strict=True))


def test_numbers_and_ids_of_other_libraries_are_taken():
    assert whole("seed", torch.tensor(-3)) == -3
    assert whole("rank", np.int64(0), at_least=0) == 0
    for given in (np.array([4, 5]), torch.tensor([4, 5]), iter([4, 5])):
        assert token_ids("document_end", given) == (4, 5)
    assert token_ids("document_end", np.array(4)) == token_ids("document_end", torch.tensor(4)) == (4,)
    for given in (torch.tensor(4.0), np.array([4.0]), torch.tensor([[4]])[:, :0], b"ab"):
        with pytest.raises(ConfigError, match="document_end must be the id of a token or several"):
            token_ids("document_end", given)


def test_one_document_end_several_or_none_are_ids():
    ends = {None: (), 4: (4,), (4, 5): (4, 5)}
    assert {each: Settings(prediction_rate=0.1, document_end=each).document_end for each in ends} == ends


STATE = Curriculum(GPT2, None, Settings(prediction_rate=0.1)).state_dict()


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"step": 1, "micro_step": 0},
        {"step": 1, "micro_step": 0, "temperature": 0.5},
        {"step": 1, "micro_step": 0, "temperature": {"temperature": "warm", "best_valid_perplexity": 9.0}},
        {**STATE, "step": "a"},
        {**STATE, "step": -1},
        {**STATE, "micro_step": 0.5},
        {**STATE, "temperature": {**STATE["temperature"], "temperature": float("nan")}},
        {**STATE, "temperature": {**STATE["temperature"], "temperature": -1.0}},
    ],
)
def test_a_state_that_is_none_is_refused_and_changes_nothing(state):
    ours = Curriculum(GPT2, None, Settings(prediction_rate=0.1))
    message = r"a curriculum's state has .* Give it what state_dict\(\) gave"
    with unchecked(), pytest.raises(ConfigError, match=message):
        ours.load_state_dict(state)
    assert ours.step == 0


def test_what_is_no_table_is_refused_by_what_it_is():
    """In a process of its own: in this one, types are checked before our code can."""
    code = """
import torch, nnrs
from nnrs.errors import ConfigError
def tell(model, table):
    try:
        with nnrs.curriculum(model, table, steps=1, neighbor_rate=0.1):
            pass
    except ConfigError as error:
        print(error)
for given in (torch.ones(9, 2), "vectors.bin", ["a"] * 99):
    tell(torch.nn.ReLU(), given)
tell("gpt2", None)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    *tables, model = told.splitlines()
    assert [line.split(", got ")[0] for line in tables] == [
        "a curriculum's table must be a NeighborTable (NeighborTable.from_model)"
    ] * 3
    assert model == "a curriculum's model must be a torch.nn.Module, got str."
    assert [line.split(", got ")[1] for line in tables] == ["Tensor.", "str.", "list."]
