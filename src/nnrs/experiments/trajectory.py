"""One real sentence at the rates and draws of a run's last epoch: gold, neighbor and prediction at each step."""

import copy
from dataclasses import replace
from functools import partial

import torch

from nnrs.batches import IGNORED, Window
from nnrs.experiments.run import Run
from nnrs.experiments.text import ParallelText
from nnrs.policies.base import InputPolicy, Rates
from nnrs.policies.functional import sample_tokens
from nnrs.run_directory import Json
from nnrs.seeding import Random, Stream
from nnrs.training.unroll import Carry, Unrolled, unroll

WINDOW = 3  # not the first, whose text may be a title


@torch.no_grad()
def trajectory_of(run: Run) -> Json:
    """The first row of a window, as the last epoch had it, with its rates and draws; predictions by the model now.

    `inputs` are the words that are taken, `sources` where each comes from. Beside them stand the words that might
    have been: None where there is no neighbor, or nothing to predict from. Of a translation the row is a target as
    its decoder reads it, and `translates` its source.
    """
    parts, epochs = run.parts, run.parts.config.training.epochs
    windows = parts.windows.shuffled(Random(parts.config.seed, Stream.ORDER, epochs))  # as in the loop
    at = min(WINDOW, len(windows) - 1)
    window, policy = windows[at], _as_in_last_epoch(run)
    rates = policy.rates(1.0)
    step, device = (epochs - 1) * len(windows) + at, window.inputs.device
    draws = partial(Random, parts.config.seed, Stream.DRAWS, step, device=device)
    choice = policy.choose(window, rates, draws())
    first = torch.zeros(1, dtype=torch.long, device=device)
    unrolled = unroll(
        parts.model,
        policy,
        choice.of_rows(first),
        Carry(parts.model.first_state(window, None)).of_rows(first),
        masks=None,
        predicts=rates.prediction > 0,
        exact=run.trainer.exact,
        passes=run.trainer.passes,
    )
    made, decode = unrolled.choice, parts.text.vocabulary.decode
    offered = policy.choose(window, Rates(0.0, 1.0 if rates.neighbor else 0.0), draws()).of_rows(first)
    near = [
        decode([word])[0] if possible else None
        for word, possible in zip(
            offered.neighbors[0].tolist(), offered.takes_neighbor[0].tolist(), strict=True
        )
    ]
    taken = zip(made.takes_neighbor[0].tolist(), made.takes_prediction[0].tolist(), strict=True)
    steps: dict[str, list[str | None]] = {
        "gold": [*decode(made.gold[0].tolist())],
        "inputs": [*decode(unrolled.inputs[0].tolist())],
        "sources": ["neighbor" if neighbor else "prediction" if own else "gold" for neighbor, own in taken],
        "neighbors": near,
        "predictions": [None, *decode(_said(run, unrolled))] if rates.prediction else [None] * len(near),
    }
    length = int(window.scored[0].sum())  # behind it the row is filled up
    told = {name: words[:length] for name, words in steps.items()}
    return {**told, "translates": _source(run, window)}


def _as_in_last_epoch(run: Run) -> InputPolicy:
    """The policy at the last epoch's τ, which has moved since."""
    policy, epochs = copy.copy(run.parts.policy), run.directory.records("metrics")
    if epochs:
        policy.temperature_state = replace(policy.temperature_state, temperature=epochs[-1]["temperature"])
    return policy


def _source(run: Run, window: Window) -> list[str] | None:
    """The words that the first row translates, where it is a translation."""
    text = run.parts.text
    if window.source is None or not isinstance(text, ParallelText):
        return None
    *words, _ = window.source[0][window.source[0] != IGNORED].tolist()  # without `<eos>`
    return text.source_vocabulary.decode(words)


def _said(run: Run, unrolled: Unrolled) -> list[int]:
    """What the model would say at each step but the first, and what it said where that was taken."""
    choice, logits = unrolled.choice, run.parts.model.head(unrolled.hidden[0, :-1]).float()
    greedy = run.parts.policy.reading.predict == "greedy"
    said = logits.argmax(dim=-1) if greedy else sample_tokens(logits, choice.prediction_uniform[0, 1:])
    words: list[int] = torch.where(choice.takes_prediction[0, 1:], unrolled.inputs[0, 1:], said).tolist()
    return words
