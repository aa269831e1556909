"""The scores of a run, asked for in a line."""

import torch

import nnrs
from nnrs.experiments.scoring import evaluate_run
from nnrs.experiments.subject import Request
from nnrs.experiments.text import Text

CPU = torch.device("cpu")
SHORT = {"prefix": 3, "length": 9}  # windows of 12 tokens


def scores_of(path, *metrics, note=lambda remark: None, **asked):
    made = evaluate_run(path, CPU, Request(metrics=metrics, **{**SHORT, **asked}), note)
    assert len({(score.metric, score.signature) for score in made}) == len(made)  # no two with one signature
    return made


def by_name(scores):
    return {score.metric: score for score in scores}


def ids_of(path, split="test"):
    return Text.read(nnrs.load(path).config.data).ids[split]
