"""The teacher-forced loss of every run of a batched model on one text."""

import torch
from jaxtyping import Float
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
        columns = sum(window.inputs.shape[1] for window in windows)
        # Four bytes a token and run, less than a window's logits unless the text has millions of tokens.
        self._losses = torch.zeros(model.sizes.runs, batch, columns, device=model.sizes.device)
        self._replay: Replay | None = None

    def queue(self) -> None:
        """Have the text scored with the weights as they are now."""
        self._space.forget()
        first = 0
        for window in self.windows:
            rows, time = window.inputs.numel(), window.inputs.shape[1]
            self._ids[1].fill_(IGNORED)  # the last window may be shorter
            self._ids[0, :rows] = window.inputs.T.flatten()
            self._ids[1, :rows] = window.targets.T.flatten()
            if self._replay:
                self._replay(self._score)
            else:
                self._score()
                self._replay = Replay() if self._model.sizes.device.type == "cuda" else None
            made = self._space.losses[:, :rows].view(-1, time, len(window.inputs))
            self._losses[:, :, first : first + time] = made.transpose(1, 2)
            first += time

    def nats_per_token(self) -> list[float]:
        """What `queue` has asked for, of each run: this waits for the GPU."""
        totals: list[float] = self._losses.sum((1, 2), dtype=torch.float64).tolist()
        return [nats / self.windows.num_tokens for nats in totals]

    def losses(self) -> Float[Tensor, "runs tokens"]:
        """The same of every token, in the order of the text: rows are consecutive pieces, the last is filled up."""
        return self._losses.flatten(1)[:, : self.windows.num_tokens].cpu()

    def _score(self) -> None:
        self._model.forward(self._space, self._weights, self._length)
        self._model.score(self._space, self._weights, self._targets, self._length)
        self._space.carry(self._length)
