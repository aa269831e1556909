"""The teacher-forced loss of every run of a batched model on one text."""

import torch
from torch import Tensor

from nnrs.batches import IGNORED, Windows
from nnrs.training.fleet_model import FleetModel
from nnrs.training.fleet_space import Workspace
from nnrs.training.replay import Replay


class Scorer:
    """Scores one text with one set of weights, as often as it is asked to."""

    def __init__(self, model: FleetModel, windows: Windows, weights: Tensor) -> None:
        self._model, self.windows, self._weights = model, windows, weights
        batch, self._length = windows[0].inputs.shape
        self._space = Workspace(model.sizes, batch, self._length, weights.dtype, trains=False)
        self._ids = torch.zeros(2, batch * self._length, dtype=torch.int64, device=model.sizes.device)
        self._space.inputs, self._targets = (part.expand(model.sizes.runs, -1) for part in self._ids)
        self._total = torch.zeros(model.sizes.runs, dtype=torch.float64, device=model.sizes.device)
        self._replay: Replay | None = None

    def queue(self) -> None:
        """Have the text scored with the weights as they are now."""
        self._total.zero_()
        self._space.forget()
        for window in self.windows:
            rows = window.inputs.numel()
            self._ids[1].fill_(IGNORED)  # the last window may be shorter
            self._ids[0, :rows] = window.inputs.T.flatten()
            self._ids[1, :rows] = window.targets.T.flatten()
            if self._replay:
                self._replay(self._score)
                continue
            self._score()
            self._replay = Replay() if self._model.sizes.device.type == "cuda" else None

    def nats_per_token(self) -> list[float]:
        """What `queue` has asked for, of each run: this waits for the GPU."""
        return [nats / self.windows.num_tokens for nats in self._total.tolist()]

    def _score(self) -> None:
        self._model.forward(self._space, self._weights, self._length)
        self._model.score(self._space, self._weights, self._targets, self._length)
        self._total.add_(self._space.losses.sum(1, dtype=torch.float64))
        self._space.carry(self._length)
