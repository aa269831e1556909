"""Many runs of one architecture trained side by side on one GPU, as batched models.

A single small recurrent model leaves a GPU waiting for launches. Here R of them share every launch. Each run keeps
its own trainer: its parameters become views of the fleet's, so that its checkpoints, metrics and best model are
written as if it had been trained alone, and every random number is the one it would have drawn alone. On the CPU the
plain loop (`Trainer.fit`) is the way; this module runs there for tests only.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from nnrs.batches import Batches, Windows
from nnrs.errors import ConfigError, DivergenceError
from nnrs.temperature import perplexity_of
from nnrs.training.agreement import shared_settings
from nnrs.training.loop import Epoch, Trainer, is_beat
from nnrs.training.scorer import Scorer
from nnrs.training.squad import Squad

SQUADS = 4  # at most: they overlap, so that one's products hide another's launches
SMALLEST = 4  # runs in a squad, where there are enough
ROOM = 0.9  # of the free memory that a fleet may take

Told = TypeVar("Told")


class Fleet:
    """Trains the runs of several trainers together.

    They may differ in seed, policy, rates, temperature, dropout, learning rate and clipping; they agree in
    architecture, text, windows, epochs, precision and optimiser, and stand at the same step. `failures` are the runs
    that diverged, by their index: each is left where it was, and the others go on.
    """

    def __init__(self, trainers: Sequence[Trainer], valid: Windows) -> None:
        _check_agreement(trainers)
        self._trainers = list(trainers)
        self.failures: dict[int, DivergenceError] = {}
        self._members = _squads(trainers)
        self._squads = [Squad([trainers[run] for run in members], valid) for members in self._members]

    def fit(self) -> bool:
        """Train every run from where it stands to its last epoch; False where they were stopped before."""
        while running := self._running():
            epochs = {run: self._trainers[run].open_epoch() for run in running}
            for members, squad in self._parts():
                squad.set_epoch([epochs.get(run) for run in members])
            if not self._train_epoch(epochs):
                return False
            self._close_epoch(epochs)
        for run, trainer in enumerate(self._trainers):
            if run not in self.failures:
                trainer.close_fit()
        return True

    def losses(self, windows: Windows) -> list[Float[Tensor, " tokens"]]:
        """The teacher-forced loss of every token, of every run's model as it stands, in float32."""
        found = self._scored([squad.scorer(windows) for squad in self._squads], Scorer.losses)
        return [found[run] for run in range(len(self._trainers))]

    def _scored(self, scorers: Sequence[Scorer], read: Callable[[Scorer], Iterable[Told]]) -> dict[int, Told]:
        """What a scorer for each squad says of every run; all are queued before the first is waited for."""
        for squad, scorer in zip(self._squads, scorers, strict=True):
            with squad.streamed():
                scorer.queue()
        found: dict[int, Told] = {}
        for (members, squad), scorer in zip(self._parts(), scorers, strict=True):
            with squad.streamed():
                found |= dict(zip(members, read(scorer), strict=True))
        return found

    def _parts(self) -> Iterator[tuple[list[int], Squad]]:
        return zip(self._members, self._squads, strict=True)

    def _running(self) -> list[int]:
        """The runs that have epochs left and did not diverge."""
        return [
            run
            for run, trainer in enumerate(self._trainers)
            if run not in self.failures and not trainer.finished
        ]

    def _train_epoch(self, epochs: dict[int, Epoch]) -> bool:
        first = self._trainers[next(iter(epochs))]  # all that run stand at the same window
        windows = first.windows
        for index in range(first.live.position.window, len(windows)):
            for squad in self._squads:
                squad.train_window(index)
            stopping = index + 1 < len(windows) and first.should_stop()
            if is_beat(index, len(windows)) or stopping:
                self._beat(epochs)
            if not self._running():
                return True  # every run has diverged
            if stopping:
                self._save()
                return False
        return True

    def _beat(self, epochs: dict[int, Epoch]) -> None:
        for squad in self._squads:
            squad.read_tallies()
        for run in self._running():
            self._guarded(run, partial(self._trainers[run].beat, epochs[run]))

    def _close_epoch(self, epochs: dict[int, Epoch]) -> None:
        trained = time.perf_counter()
        nats = self._scored([squad.valid for squad in self._squads], Scorer.nats_per_token)
        for squad in self._squads:
            squad.settle()
        for run in self._running():
            epochs[run].trained = trained
            perplexity = perplexity_of(nats[run])
            self._guarded(run, partial(self._trainers[run].close_epoch, epochs[run], perplexity))
        for squad in self._squads:
            squad.begin_text()

    def _save(self) -> None:
        """A checkpoint of every run that goes on, in the middle of an epoch."""
        for squad in self._squads:
            squad.settle()
        for run in self._running():
            self._trainers[run].save(self._trainers[run].live)

    def _guarded(self, run: int, act: Callable[[], None]) -> None:
        """Do something for one run; if it has diverged, freeze it alone."""
        try:
            act()
        except DivergenceError as error:
            self.failures[run] = error
            for members, squad in self._parts():
                if run in members:
                    squad.freeze(members.index(run))


def affordable(trainers: Sequence[Trainer], valid: Windows) -> int:
    """How many of these runs fit the GPU's memory together, from what the two costliest of them really take."""
    if len(trainers) == 1:
        return 1
    device = next(trainers[0].model.parameters()).device
    costly = sorted(trainers, key=_cost, reverse=True)
    try:
        one, two = (_peak_bytes(costly[:count], valid, device) for count in (1, 2))
    except torch.OutOfMemoryError:
        return 1
    free, _ = torch.cuda.mem_get_info(device)
    room = ROOM * (free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return min(len(trainers), 1 + max(0, int((room - one) // max(two - one, 1))))


def _cost(trainer: Trainer) -> tuple[int, int, int]:
    """What makes a run take more memory than another of its kind."""
    policy = trainer.policy
    learned = sum(parameter.numel() for parameter in policy.learned.values())
    return sum(_kind(trainer)[:2]), learned, policy.table.k if policy.table else 0


def _peak_bytes(trainers: Sequence[Trainer], valid: Windows, device: torch.device) -> int:
    """What a squad of these takes at most, beyond what is taken already."""
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    Squad(trainers, valid).rehearse()
    return torch.cuda.max_memory_allocated(device) - before


def _squads(trainers: Sequence[Trainer]) -> list[list[int]]:
    """The runs of each squad: those that compute the same together, and a few squads rather than one."""
    kinds: dict[tuple[bool, bool, bool, int], list[int]] = {}
    for run, trainer in enumerate(trainers):
        kinds.setdefault(_kind(trainer), []).append(run)
    squads = []
    for runs in kinds.values():
        count = min(SQUADS, max(1, len(runs) // SMALLEST))
        squads += [runs[part::count] for part in range(count)]
    return squads


def _kind(trainer: Trainer) -> tuple[bool, bool, bool, int]:
    """What a run computes beside a plain pass: whether it predicts, drops weights, and how it predicts."""
    predicts, drops = trainer.policy.prediction_rate is not None, trainer.model.config.weight_dropout > 0
    return predicts, drops, trainer.exact, trainer.passes


def _check_agreement(trainers: Sequence[Trainer]) -> None:
    def shared(trainer: Trainer) -> dict[str, Hashable]:
        settings = shared_settings(trainer.model.config, trainer.config, trainer.optimizer_config)
        return {**settings, "vocabulary": trainer.model.vocab_size, "step": trainer.live.position.step}

    first = shared(trainers[0])
    for trainer in trainers[1:]:
        for name, value in shared(trainer).items():
            if value != first[name]:
                raise ConfigError(f"the runs of a fleet must agree in {name}: {value} is not {first[name]}.")
        if not _same_text(trainers[0].windows, trainer.windows):
            raise ConfigError("the runs of a fleet must agree in the text they are trained on.")


def _same_text(first: Batches, other: Batches) -> bool:
    return isinstance(first, Windows) and isinstance(other, Windows) and first.equals(other)
