"""The trainer on sentence pairs: every batch begins anew, and what fills rows up teaches nothing."""

import pytest
import torch
from tests.digits import write_digits

from nnrs.batches import IGNORED
from nnrs.experiments.options import configure
from nnrs.experiments.prepare import Shelf, prepare
from nnrs.policies.base import Rates
from nnrs.training.loop import Trainer


@pytest.fixture
def trainer(tmp_path):
    given = {"task": "translate", "data": str(write_digits(tmp_path / "digits")), "from_language": "num"}
    size = {"preset": "tiny", "units": 16, "dropout": 0.0, "batch_size": 250, "method": "mle", "epochs": 2}
    parts = prepare(configure({**given, **size}), torch.device("cpu"), Shelf())
    return Trainer(
        model=parts.model.double(),
        policy=parts.policy,
        windows=parts.windows,
        validate=lambda model: 1.0,
        config=parts.config.training,
        optimizer_config=parts.config.optimizer,
        seed=1,
    )


def test_a_batch_teaches_the_mean_over_its_words_whatever_fills_its_rows_up(trainer):
    window = trainer.windows[1]
    assert window.padding > 0
    losses = []
    for source, inputs, targets in zip(window.source, window.inputs, window.targets, strict=True):
        words = targets != IGNORED
        state = trainer.model.read(source[source != IGNORED][None])
        logits, _ = trainer.model(inputs[words][None], state)
        losses.append(-logits[0].log_softmax(-1).gather(1, targets[words, None])[:, 0])
    mean = torch.cat(losses).mean()
    expected = torch.autograd.grad(mean, list(trainer.model.parameters()))
    trainer.backward(window, Rates())
    for (name, parameter), gradient in zip(trainer.model.named_parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-7, rtol=1e-5, msg=name)


def test_every_batch_begins_anew_and_an_epoch_counts_its_words_and_no_other(trainer):
    words = sum(trainer.windows[index].num_tokens for index in range(len(trainer.windows)))
    seen = []
    train, close = trainer.train_window, trainer.close_epoch

    def watched(window, rates):
        assert trainer.live.carry is None
        train(window, rates)
        seen.append(window.targets.tolist())

    def closed(epoch, valid_perplexity):
        assert trainer.live.tally.tokens == words
        close(epoch, valid_perplexity)

    trainer.train_window, trainer.close_epoch = watched, closed
    assert trainer.fit()
    assert len(seen) == 2 * len(trainer.windows) == 6
    assert sorted(map(len, seen[:3])) == sorted(map(len, seen[3:])) == [100, 250, 250]
    assert seen[:3] != seen[3:]  # another epoch, other batches
