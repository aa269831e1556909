"""One real sentence as a run was trained on it in its last epoch: which inputs were gold, neighbors, predictions."""

import torch

from nnrs.experiments.run import Run
from nnrs.run_directory import Json
from nnrs.seeding import Random, Stream
from nnrs.training.unroll import Carry, unroll

WINDOW = 3  # not the first, whose text may be a title


@torch.no_grad()
def trajectory_of(run: Run) -> Json:
    """The first row of a window, with the last epoch's rates and draws; predictions by the model as it stands."""
    parts, epochs = run.parts, run.parts.config.training.epochs
    at = min(WINDOW, len(parts.windows) - 1)
    window, rates = parts.windows[at], parts.policy.rates(1.0)
    step, device = (epochs - 1) * len(parts.windows) + at, window.inputs.device
    choice = parts.policy.choose(window, rates, Random(parts.config.seed, Stream.DRAWS, step, device=device))
    first = torch.zeros(1, dtype=torch.long, device=device)
    unrolled = unroll(
        parts.model,
        parts.policy,
        choice.of_rows(first),
        Carry(parts.model.first_state(window, None)).of_rows(first),
        masks=None,
        predicts=rates.prediction > 0,
        exact=run.trainer.exact,
        passes=run.trainer.passes,
    )
    made, decode = unrolled.choice, parts.text.vocabulary.decode
    taken = zip(made.takes_neighbor[0].tolist(), made.takes_prediction[0].tolist(), strict=True)
    return {
        "gold": decode(made.gold[0].tolist()),
        "inputs": decode(unrolled.inputs[0].tolist()),
        "sources": ["neighbor" if near else "prediction" if own else "gold" for near, own in taken],
        "epoch": epochs - 1,
    }
