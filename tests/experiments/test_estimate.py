"""What a run will take is told at once, however long that is."""

from itertools import count

import pytest
from tests.experiments.small_runs import CPU

from nnrs.experiments import estimate as module
from nnrs.experiments.config import RunConfig
from nnrs.experiments.estimate import estimate
from nnrs.experiments.run import start
from nnrs.policies.base import InputPolicy


@pytest.mark.parametrize("epochs", [3, 1_000_000_000])
def test_an_estimate_looks_at_few_epochs_and_counts_all(text, tmp_path, monkeypatch, epochs):
    asked, rates = count(), InputPolicy.rates

    def few(policy, progress):
        assert next(asked) < 2000
        return rates(policy, progress)

    monkeypatch.setattr(InputPolicy, "rates", few)
    monkeypatch.setattr(module, "_seconds_per_window", lambda run, rates: 1.0)
    values = {
        "data": {"source": str(text)},
        "model": {"preset": "tiny", "units": 8},
        "training": {"epochs": epochs, "batch_size": 8, "bptt": 10},
    }
    run = start(RunConfig.from_dict(values), tmp_path / "run", CPU)
    text_ids, windows = run.parts.text.ids, len(run.parts.windows)
    an_epoch = windows * (1 + len(text_ids["valid"]) / len(text_ids["train"]) / 3)
    assert estimate(run).seconds == pytest.approx(epochs * an_epoch)
