"""One batched model's worth of runs: their buffers, and one window of all of them as a few graphs of launches."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor

from nnrs.batches import Window, Windows
from nnrs.errors import ConfigError
from nnrs.models import SequenceModel
from nnrs.philox import fill
from nnrs.policies.base import Rates
from nnrs.schedules import Schedule
from nnrs.seeding import Stream, dropout_threshold
from nnrs.training.agreement import BATCHED
from nnrs.training.fleet_inputs import FleetInputs
from nnrs.training.fleet_model import FleetModel
from nnrs.training.fleet_space import Workspace
from nnrs.training.kernels.rows import Dropout
from nnrs.training.loop import Epoch, Trainer
from nnrs.training.replay import Replay
from nnrs.training.scorer import Scorer
from nnrs.training.unroll import Carry


class Squad:
    """Runs that share every launch; a fleet puts those together that compute the same.

    The trainers' parameters become views of the squad's. Everything is queued on a stream of its own, so that squads
    overlap; only reading tallies and scores waits for the GPU, and exact scheduled sampling.
    """

    def __init__(self, trainers: Sequence[Trainer], valid: Windows) -> None:
        self.trainers = list(trainers)
        first = self.trainers[0]
        self._windows, config = first.windows, first.config
        self._device = next(first.model.parameters()).device
        bf16 = config.resolved(self._device).precision == "bf16"
        self._model = FleetModel(
            [_batchable(trainer) for trainer in self.trainers],
            [trainer.policy.learned for trainer in self.trainers],
            torch.bfloat16 if bf16 else torch.float32,
            adaptive=first.optimizer_config.name == "adamw",
        )
        self._space = Workspace(
            self._model.sizes, config.batch_size, config.bptt, self._model.dtype, trains=True
        )
        seeds = torch.tensor([trainer.seed for trainer in self.trainers], device=self._device)
        policies = [trainer.policy for trainer in self.trainers]
        self._inputs = FleetInputs(policies, seeds, config.batch_size, config.bptt)
        self.valid = Scorer(self._model, valid, self._model.parameters.rounded)
        self._make_dropout(config.batch_size * config.bptt)
        self._make_weight_dropout()
        self._make_counters()
        self._adopt()
        self._replays: dict[str, Replay] | None = None  # made after a first window as it is
        self._built_in: tuple[object, ...] | None = None
        self._capacity = self._sure_passes = 0  # of this epoch: room for predictions, passes made in any case
        self._frozen: set[int] = set()
        self._stream: torch.cuda.Stream | None = None
        if self._device.type == "cuda":
            self._stream = torch.cuda.Stream(self._device)
        self._catch_up()

    def _make_dropout(self, rows: int) -> None:
        places, units = self.trainers[0].model.dropout_places, self._model.sizes.units
        self._mask_words = self._words(places * rows * units)
        rates = [trainer.model.config.dropout for trainer in self.trainers]
        self._dropout = self._dropout_at(rates, self._mask_words)

    def _make_weight_dropout(self) -> None:
        """Where runs drop recurrent weights: room for those that a window uses, and random numbers of their own."""
        sizes, rates = self._model.sizes, [trainer.model.config.weight_dropout for trainer in self.trainers]
        if any(rates):
            shape = sizes.runs, sizes.gates * sizes.units, sizes.units
            self._space.recurrent = [
                torch.zeros(shape, dtype=self._model.dtype, device=self._device) for _ in range(sizes.states)
            ]
        count = sum(part[0].numel() for part in self._space.recurrent)
        self._weight_words = self._words(count)
        self._weight_dropout = self._dropout_at(rates, self._weight_words)

    def _words(self, numbers: int) -> Tensor:
        """Room for the random bits of so many numbers of each run, four to a word."""
        return torch.zeros(len(self.trainers), -(-numbers // 4), dtype=torch.int64, device=self._device)

    def _dropout_at(self, rates: Sequence[float], words: Tensor) -> Dropout:
        cuts = [dropout_threshold(rate) for rate in rates]
        thresholds = torch.tensor(
            [threshold for threshold, _ in cuts], dtype=torch.int32, device=self._device
        )
        scales = torch.tensor([scale for _, scale in cuts], device=self._device)
        return Dropout(words.view(torch.int16), thresholds, scales)

    def _make_counters(self) -> None:
        config, runs = self.trainers[0].config, len(self.trainers)

        def make(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self._device)

        self._window = make(3, config.batch_size, config.bptt, dtype=torch.int64)
        self._step, self._fresh = make(dtype=torch.int64), make(dtype=torch.int32) + 1
        self._active, self._learning_rates = make(runs, dtype=torch.int8) + 1, make(runs)
        self._clips = torch.tensor(
            [trainer.optimizer_config.clip for trainer in self.trainers], device=self._device
        )
        self._nats = make(runs, dtype=torch.float64)
        self._counts = make(3, runs, dtype=torch.int64)  # predictions, neighbors, passes without gradient
        # Passes of scheduled sampling: how many a run wants, and whether the last one changed its inputs.
        most = [
            config.bptt + 1 if trainer.exact else min(trainer.passes, config.bptt)
            for trainer in self.trainers
        ]
        self._passes = torch.tensor(most, device=self._device)
        self._exact = torch.tensor([trainer.exact for trainer in self.trainers], device=self._device)
        self._wanted, self._changed = make(runs, dtype=torch.int8), make(runs, dtype=torch.int8)
        self._pass = make(dtype=torch.int64)

    # What the trainers hold, and what they are given back.

    def _adopt(self) -> None:
        """Take over the trainers' state: the step, carried hidden states, tallies and moments."""
        self._step.fill_(self.trainers[0].live.position.step)
        for run, trainer in enumerate(self.trainers):
            live, tally = trainer.live, trainer.live.tally.read()
            self._nats[run] = float(tally.nats)
            counts = int(tally.predictions), int(tally.neighbors), tally.passes - tally.windows
            self._counts[:, run] = torch.tensor(counts)
            if live.carry is not None:
                assert live.carry.hidden is not None  # a window has been trained on
                self._fresh.zero_()
                values = (*live.carry.state, live.carry.hidden)
                for part, value in zip(self._carried(run), values, strict=True):
                    part.copy_(value)
                self._model.cell.round_state(self._space)
            self._adopt_moments(run, trainer)

    def _adopt_moments(self, run: int, trainer: Trainer) -> None:
        held = self._model.parameters
        if held.moments is None:
            return
        state = trainer.live.optimizer.state
        for name, parameter in {**dict(trainer.model.named_parameters()), **trainer.policy.learned}.items():
            before = state.get(parameter, {})
            moments = dict(zip(("exp_avg", "exp_avg_sq"), held.moments, strict=True))
            views = {key: held.of_run(buffer, name, run, parameter.shape) for key, buffer in moments.items()}
            for key in views.keys() & before.keys():
                views[key].copy_(before[key])
            state[parameter] = {"step": torch.tensor(float(trainer.live.position.step)), **views}

    def _carried(self, run: int) -> list[Tensor]:
        """What one run carries from window to window: the parts of its state, and its last output."""
        space = self._space
        return [part[run, : space.batch] for part in (*self._model.cell.state(space), space.outputs)]

    def settle(self) -> None:
        """Bring what a checkpoint needs, beside parameters and tallies, to the trainers."""
        for run, trainer in enumerate(self.trainers):
            with self.streamed():
                *state, hidden = (part.float() for part in self._carried(run))
            trainer.live.carry = Carry(tuple(state), hidden)
            for moments in trainer.live.optimizer.state.values():
                moments["step"].fill_(float(trainer.live.position.step))
        if self._stream:
            self._stream.synchronize()  # who saves reads from another stream

    def read_tallies(self) -> None:
        """Bring the sums of the epoch to the trainers."""
        with self.streamed():
            nats, counts = self._nats.tolist(), self._counts.tolist()
        for run, trainer in enumerate(self.trainers):
            tally = trainer.live.tally
            tally.nats, tally.predictions, tally.neighbors = nats[run], counts[0][run], counts[1][run]
            tally.passes = tally.windows + counts[2][run]

    def freeze(self, run: int) -> None:
        """Leave a run as it is from now on."""
        self._frozen.add(run)
        with self.streamed():
            self._active[run] = 0

    def _catch_up(self) -> None:
        """Have the squad's stream wait for what was queued elsewhere: new buffers are filled there."""
        if self._stream:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def streamed(self) -> AbstractContextManager[object]:
        """Queue on the squad's own stream."""
        return torch.cuda.stream(self._stream) if self._stream else nullcontext()

    # Training.

    def set_epoch(self, epochs: Sequence[Epoch | None]) -> None:
        """The rates of an epoch, one for each run; None stands for a run that is over."""
        rates = [epoch.rates if epoch else Rates() for epoch in epochs]
        with self.streamed():
            self._inputs.set_epoch(rates)
            self._learning_rates.copy_(
                torch.tensor([epoch.learning_rate if epoch else 0.0 for epoch in epochs])
            )
        self._capacity = self._inputs.capacity()
        self._sure_passes = max(trainer.passes for trainer in self.trainers) if self._capacity else 0
        built_in = (*self._inputs.fixed(), self._capacity)
        if built_in != self._built_in:
            self._replays, self._built_in = None, built_in

    def begin_text(self) -> None:
        """Forget the windows before, and count from 0."""
        with self.streamed():
            self._space.forget()
            self._fresh.fill_(1)
            self._nats.zero_()
            self._counts.zero_()

    def train_window(self, index: int) -> None:
        """One window of every run: inputs, predictions, forward, backward and a step of each optimiser."""
        with self.streamed():
            window = self._windows[index]
            tokens = window.inputs.numel()
            if window.inputs.shape[1] == self._space.time:
                for held, given in zip(
                    self._window, (window.inputs, window.targets, window.previous), strict=True
                ):
                    held.copy_(given)
                self._train(Window(*self._window), self._replays)
                if self._replays is None and self._device.type == "cuda":
                    self._replays = {name: Replay() for name in ("choose", "predict", "learn")}
            else:  # the short one comes once an epoch: capturing it would take longer
                self._train(window, None)
        for run, trainer in enumerate(self.trainers):
            if run not in self._frozen:
                live = trainer.live
                live.position.step += 1
                live.position.window = index + 1
                live.tally.tokens += tokens
                live.tally.windows += 1

    def _train(self, window: Window, replays: dict[str, Replay] | None) -> None:
        """A window as it is, or replayed."""

        def run(name: str, part: Callable[[Window], None]) -> None:
            replays[name](partial(part, window)) if replays else part(window)

        run("choose", self._choose)
        for _ in range(min(self._sure_passes, window.inputs.shape[1])):
            run("predict", self._predict)
        while self._unsettled():
            run("predict", self._predict)
        run("learn", self._learn)

    def _choose(self, window: Window) -> None:
        fill(self._mask_words, self._inputs.seeds, self._step, Stream.DROPOUT)
        if self._space.recurrent:
            fill(self._weight_words, self._inputs.seeds, self._step, Stream.WEIGHTS)
            self._model.drop_weights(self._space, self._weight_dropout)
        self._inputs.choose(window, self._step, self._fresh, self._space.inputs)
        self._pass.zero_()
        self._changed.fill_(1)

    def _unsettled(self) -> bool:
        """Whether exact runs have inputs that changed in the last pass: looking waits for the GPU."""
        exact = self._sure_passes > 0 and any(trainer.exact for trainer in self.trainers)
        return exact and bool((self._exact & (self._changed != 0)).any())

    def _predict(self, window: Window) -> None:
        """One pass without gradient."""
        wanted = (self._pass < self._passes) & (self._inputs.rates[:, 0] > 0)
        self._wanted.copy_(wanted & (~self._exact | (self._changed != 0)))
        self._counts[2] += self._wanted
        self._changed.zero_()
        self._pass += 1
        time = window.inputs.shape[1]
        self._forward(window)
        capacity = min(self._capacity, window.inputs.numel())
        self._inputs.predict(self._model, self._space, time, capacity, self._wanted, self._changed)

    def _forward(self, window: Window) -> None:
        rows = window.inputs.numel()
        given = {run: self._space.inputs[run, :rows] for run in self._inputs.mixing}
        mixed = {run: partial(self._inputs.mix, run, inputs=inputs) for run, inputs in given.items()}
        weights, time = self._model.parameters.rounded, window.inputs.shape[1]
        with torch.no_grad():
            self._model.forward(self._space, weights, time, self._dropout, mixed)

    def _learn(self, window: Window) -> None:
        model, space, inputs = self._model, self._space, self._inputs
        time, rows = window.inputs.shape[1], window.inputs.numel()
        self._forward(window)
        model.score(space, model.parameters.rounded, inputs.targets, time, gradient_weight=1.0 / rows)
        below = model.backward(space, time, self._dropout, inputs.plain)
        model.drop_gradients(space, self._weight_dropout)
        for run in inputs.mixing:
            self._learn_mixture(run, rows, below[run])
        model.step(self._clips, self._learning_rates, self._active, self._step)
        space.carry(time)
        self._nats += space.losses[:, :rows].sum(1, dtype=torch.float64)
        self._counts[0] += inputs.claims[:, :rows].sum(1)
        self._counts[1] += inputs.replaced[:, :rows].sum(1)
        self._step += 1
        self._fresh.zero_()

    def _learn_mixture(self, run: int, rows: int, below: Tensor) -> None:
        """The gradient of a run's own mixture of word vectors, by autograd, into that of its parameters."""
        held, learned = self._model.parameters, self.trainers[run].policy.learned
        words = held.of(held.rounded, "embedding.weight")[run].detach().requires_grad_()
        vectors = self._inputs.mix(run, words, inputs=self._space.inputs[run, :rows])
        sources = [words, *learned.values()]
        changes = torch.autograd.grad(
            vectors, sources, below.to(vectors.dtype), allow_unused=True, materialize_grads=True
        )
        held.of(held.gradients, "embedding.weight")[run].add_(changes[0])
        for name, change in zip(learned, changes[1:], strict=True):
            held.of_run(held.gradients, name, run, change.shape).copy_(change)

    def rehearse(self) -> None:
        """Do everything at the highest rates, every run frozen: the memory is taken, and nothing is trained."""
        policies = [trainer.policy for trainer in self.trainers]
        highest = [
            Rates(_highest(policy.prediction_rate), _highest(policy.neighbor_rate)) for policy in policies
        ]
        self.set_epoch([Epoch(rates, 0.0, 0) for rates in highest])
        window = Window(*self._window)
        with self.streamed():
            self._active.zero_()
            self._train(window, None)
            if self._device.type == "cuda":
                self._train(window, {name: Replay() for name in ("choose", "predict", "learn")})
            for scorer in (self.valid, self.scorer(self.valid.windows)):
                scorer.queue()
                scorer.nats_per_token()

    # Scoring.

    def scorer(self, windows: Windows) -> Scorer:
        """Scores the runs' models as they stand in float32, whatever they were trained in."""
        made = Scorer(self._model, windows, self._model.parameters.values)
        self._catch_up()  # with the parameters, too, where a best model was loaded into them
        return made


def _highest(schedule: Schedule | None) -> float:
    return max(schedule.start, schedule.end) if schedule else 0.0


def _batchable(trainer: Trainer) -> SequenceModel:
    if trainer.model.config.kind not in BATCHED:
        raise ConfigError(f"a fleet trains {', '.join(BATCHED)} models, not '{trainer.model.config.kind}'.")
    return trainer.model
