"""Eq. 8 on a two-word chain, small enough to be worked by hand: see docs/paper.md#eq-8.

Words a (0) and b (1); P(a|a) = 9/10, P(a|b) = 3/10. So π_a = 3/4, as 3/4 · 9/10 + 1/4 · 3/10 = 3/4, and the
chain's second eigenvalue is λ = 9/10 - 3/10 = 3/5. Each word is the other's only neighbor.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nnrs.neighbors.table import NeighborTable
from nnrs.policies.functional import replace_with_neighbors
from nnrs.schedules import Schedule
from nnrs.seeding import Random, Stream

CHAIN = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64)  # row: the word before
USE = torch.tensor([0.75, 0.25], dtype=torch.float64)  # π
SWAP = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)  # Ñ with k = 1
EIGENVALUE = 0.6  # λ

shares = st.floats(0.05, 0.95)
rates = st.floats(0.05, 1.0)


def two_words(a_after_a: float, a_after_b: float) -> tuple[Tensor, Tensor]:
    """The chain with these two entries, and how often it uses each word."""
    chain = torch.tensor([[a_after_a, 1 - a_after_a], [a_after_b, 1 - a_after_b]], dtype=torch.float64)
    use = torch.tensor([a_after_b, 1 - a_after_a], dtype=torch.float64)
    return chain, use / use.sum()


def joint_of_neighbors(chain: Tensor, use: Tensor, gamma: float) -> Tensor:
    """Pr(input, target) when the gold word is swapped for its neighbor at rate γ; the target stays gold."""
    noise = (1 - gamma) * torch.eye(2, dtype=torch.float64) + gamma * SWAP  # row: the gold word
    return torch.einsum("x,xi,xy->iy", use, noise, chain)


def conditional(joint: Tensor) -> Tensor:
    return joint / joint.sum(dim=1, keepdim=True)


def minimiser(joint: Tensor) -> Tensor:
    """The bigram model of least expected cross-entropy on this joint, by descent from a uniform start."""
    logits = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [logits],
        lr=1.0,
        max_iter=500,
        tolerance_grad=1e-12,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = -(joint * F.log_softmax(logits, dim=1)).sum()
        value.backward()
        return value

    optimizer.step(loss)
    return F.softmax(logits.detach(), dim=1)


def test_training_on_a_fifth_of_neighbors_gives_the_conditional_worked_by_hand():
    # Input a: gold a, kept, 3/4 · 4/5 = 0.60; gold b, swapped, 1/4 · 1/5 = 0.05.
    # Q(a|a) = (0.60 · 0.9 + 0.05 · 0.3) / 0.65 = 0.555 / 0.65
    # Input b: gold b, kept, 1/4 · 4/5 = 0.20; gold a, swapped, 3/4 · 1/5 = 0.15.
    # Q(a|b) = (0.20 · 0.3 + 0.15 · 0.9) / 0.35 = 0.195 / 0.35
    learned = minimiser(joint_of_neighbors(CHAIN, USE, 0.2))
    expected = torch.tensor([0.555 / 0.65, 0.195 / 0.35], dtype=torch.float64)
    torch.testing.assert_close(learned[:, 0], expected, atol=1e-7, rtol=0.0)
    assert learned[0, 0] < 0.854 < CHAIN[0, 0]  # 0.8538, where the language says 0.9
    assert learned[1, 0] > 0.557 > CHAIN[1, 0]  # 0.5571, where it says 0.3


@given(a_after_a=shares, a_after_b=shares, gamma=st.floats(0.0, 1.0))
def test_the_minimiser_is_the_mixture_conditional(a_after_a, a_after_b, gamma):
    joint = joint_of_neighbors(*two_words(a_after_a, a_after_b), gamma)
    torch.testing.assert_close(minimiser(joint), conditional(joint), atol=1e-5, rtol=0.0)


@given(a_after_a=shares, a_after_b=shares)
def test_without_replacement_the_minimiser_is_the_language(a_after_a, a_after_b):
    chain, use = two_words(a_after_a, a_after_b)
    torch.testing.assert_close(minimiser(joint_of_neighbors(chain, use, 0.0)), chain, atol=1e-5, rtol=0.0)


@given(a_after_a=shares, a_after_b=shares, gamma=rates)
def test_any_replacement_biases_words_that_are_not_alike_and_no_others(a_after_a, a_after_b, gamma):
    chain, use = two_words(a_after_a, a_after_b)
    joint = joint_of_neighbors(chain, use, gamma)
    learned, inputs = conditional(joint), joint.sum(dim=1)
    # Q(y|a) - P(y|a) = Pr(gold b | input a) · (P(y|b) - P(y|a)): no bias only where both words predict alike.
    difference = chain[1, 0] - chain[0, 0]
    bias = torch.stack([use[1] * difference, -use[0] * difference]) * gamma / inputs
    torch.testing.assert_close(learned[:, 0] - chain[:, 0], bias, atol=1e-12, rtol=0.0)
    assert (bias.abs() >= 0.05 * 0.05 * abs(difference) * (1 - 1e-12)).all()  # γ and π are at least 0.05


def test_exchangeable_synonyms_bias_nothing():
    # a and b are followed by the same words: replacing one by the other costs nothing at any rate.
    chain, use = two_words(0.4, 0.4)
    learned = conditional(joint_of_neighbors(chain, use, 0.7))
    torch.testing.assert_close(learned, chain)


def test_the_library_s_replacement_gives_the_same_bias():
    count = 200_000
    uniform = Random(1, Stream.TEXT).uniform(2, count).double()
    gold = (uniform[0] >= USE[0]).long()  # independent pairs, so that a standard error is the binomial one
    targets = (uniform[1] >= CHAIN[gold, 0]).long()
    table = NeighborTable.from_vectors(torch.tensor([[1.0, 0.0], [0.8, 0.6]]), k=1)
    inputs = replace_with_neighbors(gold, table, rate=0.2, generator=torch.Generator().manual_seed(1))
    for word, expected in enumerate((0.555 / 0.65, 0.195 / 0.35)):
        followers = targets[inputs == word]
        error = math.sqrt(expected * (1 - expected) / len(followers))
        assert abs((followers == 0).double().mean().item() - expected) < 4 * error


def joint_of_predictions(predictor: Tensor, epsilon: float, *, exact: bool) -> Tensor:
    """Pr(input, target) when the gold word gives way, at rate ε, to one drawn from `predictor`.

    One parallel pass predicts from the gold word before; `exact` from the input before, which may itself be a
    prediction: the joint of gold word and input is then the one that the next step reproduces.
    """
    kept = torch.diag(USE)  # Pr(gold, input) where the gold word is the input
    pair = kept  # one step before
    for _ in range(40 if exact else 1):
        after = torch.einsum("gi,gh,ij->hj", pair, CHAIN, predictor)  # the next gold word and the prediction
        now = (1 - epsilon) * kept + epsilon * after
        pair = now if exact else pair
    return torch.einsum("gi,gy->iy", now, CHAIN)


def fixed_point(start: Tensor, epsilon: float, *, exact: bool) -> Tensor:
    """Where training on inputs drawn from the model itself comes to rest."""
    model = start
    for _ in range(60):
        model = conditional(joint_of_predictions(model, epsilon, exact=exact))
    return model


def with_eigenvalue(value: float) -> Tensor:
    """The two-word chain with the same use of words as CHAIN and another second eigenvalue."""
    return value * torch.eye(2, dtype=torch.float64) + (1 - value) * USE.expand(2, 2)


@pytest.mark.parametrize("start", [CHAIN, with_eigenvalue(-0.2)], ids=["the language", "something else"])
@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("exact", [False, True], ids=["parallel", "exact"])
def test_scheduled_sampling_rests_at_a_weakened_language(start, epsilon, exact):
    # A model of eigenvalue μ reproduces itself where, with one parallel pass, μ = (1 - ε)λ + ελ²μ, and, exact,
    # ελμ² - μ + (1 - ε)λ = 0 (its smaller root).
    if exact and epsilon > 0:
        slope = epsilon * EIGENVALUE
        expected = (1 - math.sqrt(1 - 4 * slope * (1 - epsilon) * EIGENVALUE)) / (2 * slope)
    else:
        expected = (1 - epsilon) * EIGENVALUE / (1 - epsilon * EIGENVALUE**2)
    learned = fixed_point(start, epsilon, exact=exact)
    torch.testing.assert_close(learned, with_eigenvalue(expected), atol=1e-9, rtol=0.0)
    assert (expected == EIGENVALUE) == (epsilon == 0.0)


def test_scheduled_sampling_on_predictions_alone_forgets_the_history():
    # ε = 1: the best answer to an input that says nothing about the gold word is the unigram distribution.
    torch.testing.assert_close(fixed_point(CHAIN, 1.0, exact=True), USE.expand(2, 2), atol=1e-9, rtol=0.0)


def test_what_each_bias_costs_on_gold_histories():
    # Σ_x π(x) KL[P(·|x) ‖ Q(·|x)] in nats per token, as docs/paper.md gives it.
    learned = {
        0.041: conditional(joint_of_neighbors(CHAIN, USE, 0.2)),
        0.0037: fixed_point(CHAIN, 0.2, exact=False),
        0.0043: fixed_point(CHAIN, 0.2, exact=True),
    }
    for documented, model in learned.items():
        cost = float((USE[:, None] * CHAIN * (CHAIN / model).log()).sum())
        assert cost == pytest.approx(documented, abs=0.5 * 10.0 ** -(3 if documented > 0.01 else 4))


def test_the_pulse_schedule_ends_where_nothing_is_biased():
    assert Schedule("pulse", 0.0, 0.5)(1.0) == pytest.approx(0.0, abs=1e-15)
    assert Schedule("exponential", 0.0, 0.5)(1.0) == 0.5
