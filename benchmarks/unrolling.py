"""What do neighbor replacement and scheduled sampling cost, relative to teacher forcing?

CPU, two-layer LSTM of 200 units, PTB (a random text of its size where PTB is absent), batch 20 x 35. All variants
train copies of one model that was first trained for a while, take turns window by window, and are compared by the
median of their step times. The peers are the plain PyTorch loop, the usual two-pass scheduled sampling (a whole
output layer for each pass) and the usual step-by-step loop.
"""

import copy
import os
import platform
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from nnrs.batches import Windows
from nnrs.corpus import open_corpus
from nnrs.models import ModelConfig, build_model
from nnrs.policies.base import Rates
from nnrs.policies.methods import Material, PolicyConfig
from nnrs.seeding import Random, Stream
from nnrs.training.loop import Trainer, TrainingConfig
from nnrs.training.optimize import OptimizerConfig
from nnrs.vocabulary import Vocabulary, token_ids

SHARED = Path(os.environ.get("NNRS_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
TRAINED, WARM, REPEATS = 300, 4, 30
RATE, CLIP = 0.2, 0.25


def text():
    if (SHARED / "ptb").is_dir():
        corpus = open_corpus(str(SHARED / "ptb"))
        vocabulary = Vocabulary.from_corpus(corpus)
        return token_ids(corpus, "train", vocabulary), len(vocabulary), "ptb"
    ids = (torch.rand(900_000, generator=torch.Generator().manual_seed(0)) ** 3 * 10_000).to(torch.int32)
    return ids, 10_000, "random text"


class PlainLSTM(nn.Module):
    """The word-level language model of countless tutorials."""

    def __init__(self, vocab, units=200, dropout=0.2):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.embedding = nn.Embedding(vocab, units)
        self.lstm = nn.LSTM(units, units, 2, dropout=dropout, batch_first=True)
        self.output = nn.Linear(units, vocab)
        self.output.weight = self.embedding.weight
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, ids, state):
        hidden, state = self.lstm(self.drop(self.embedding(ids)), state)
        return self.output(self.drop(hidden)), state


class PlainLoop:
    """The plain training step, and the two usual ways of adding scheduled sampling to it."""

    def __init__(self, vocab, mode):
        self.model, self.mode = PlainLSTM(vocab), mode
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0)
        self.state = None

    def step(self, window):
        inputs = window.inputs
        if self.state is None:
            self.state = (torch.zeros(2, len(inputs), 200),) * 2
        self.optimizer.zero_grad()
        logits, state = getattr(self, self.mode)(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), window.targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        self.state = tuple(part.detach() for part in state)

    def plain(self, inputs):
        return self.model(inputs, self.state)

    def two_pass(self, inputs):
        with torch.no_grad():
            logits, _ = self.model(inputs, self.state)
        predictions = torch.multinomial(F.softmax(logits, -1).flatten(0, 1), 1).view_as(inputs)
        shifted = torch.cat([inputs[:, :1], predictions[:, :-1]], 1)
        return self.model(torch.where(torch.rand(inputs.shape) < RATE, shifted, inputs), self.state)

    def step_by_step(self, inputs):
        state, outputs, predictions = self.state, [], inputs[:, 0]
        for t in range(inputs.shape[1]):
            used = torch.where(torch.rand(len(inputs)) < RATE, predictions, inputs[:, t])
            logits, state = self.model(used[:, None], state)
            outputs.append(logits)
            predictions = torch.multinomial(F.softmax(logits[:, 0], -1), 1).squeeze(1)
        return torch.cat(outputs, 1), state


class Ours:
    """One step of our training loop under a policy."""

    def __init__(self, model, material, windows, method, rates, unroll="parallel"):
        config = PolicyConfig(method=method, unroll=unroll)
        self.rates, self.passes = rates, []
        self.trainer = Trainer(
            model=copy.deepcopy(model),
            policy=config.build(material),
            windows=windows,
            validate=lambda model: 1.0,
            config=TrainingConfig(),
            optimizer_config=OptimizerConfig(learning_rate=1.0, clip=CLIP),
            seed=1,
            exact=unroll == "exact",
        )

    def step(self, window):
        live = self.trainer.live
        before = live.tally.passes
        self.trainer.train_window(window, self.rates)
        self.passes.append(live.tally.passes - before)


def replacement_seconds(policy, windows):
    """What drawing, choosing and putting in the neighbors costs, all of it."""
    rates, seconds = Rates(0.0, RATE), []
    for index in range(WARM + REPEATS):
        window, random = windows[index % len(windows)], Random(1, Stream.DRAWS, index)
        started = time.perf_counter()
        choice = policy.choose(window, rates, random)
        choice.inputs(choice.gold)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[WARM:])


def main():
    torch.manual_seed(0)
    ids, vocab, name = text()
    windows = Windows(ids, batch_size=20, length=35, eos_id=0)
    vectors = torch.randn(vocab, 100, generator=torch.Generator().manual_seed(0))
    material = Material(
        train_ids=ids,
        counts=torch.bincount(ids.long(), minlength=vocab).double(),
        vectors=vectors,
        protected=(),
        case_groups=torch.arange(vocab),
        unknown_id=0,
        seed=1,
    )
    model = build_model(ModelConfig.preset("lstm", "small"), vocab, Random(1, Stream.INITIALISATION))
    start = Ours(model, material, windows, "mle", Rates())
    for group in start.trainer.live.optimizer.param_groups:
        group["lr"] = 20.0
    for index in range(TRAINED):
        start.step(windows[index])
    model = start.trainer.model
    variants = {
        "plain PyTorch loop": PlainLoop(vocab, "plain"),
        "ours: teacher forcing": Ours(model, material, windows, "mle", Rates()),
        "ours: nnrs": Ours(model, material, windows, "nnrs", Rates(0.0, RATE)),
        "ours: ss parallel": Ours(model, material, windows, "ss", Rates(RATE, 0.0)),
        "ours: ss exact": Ours(model, material, windows, "ss", Rates(RATE, 0.0), "exact"),
        "usual two-pass ss": PlainLoop(vocab, "two_pass"),
        "usual step-by-step ss": PlainLoop(vocab, "step_by_step"),
    }
    seconds = {variant: [] for variant in variants}
    for index in range(WARM + REPEATS):
        for variant, runner in variants.items():
            window = windows[TRAINED + index]
            started = time.perf_counter()
            runner.step(window)
            seconds[variant].append(time.perf_counter() - started)
    medians = {variant: statistics.median(values[WARM:]) for variant, values in seconds.items()}
    base = medians["ours: teacher forcing"]
    print(
        f"{name}, V = {vocab:,}, batch 20 x 35, {REPEATS} windows each, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}, {platform.processor() or platform.machine()}"
    )
    for variant, median in medians.items():
        quartiles = statistics.quantiles(seconds[variant][WARM:], n=4)
        print(
            f"{variant:24s} {median * 1e3:7.1f} ms  (quartiles {quartiles[0] * 1e3:.1f}-{quartiles[2] * 1e3:.1f})"
            f"  {median / base:.2f} x teacher forcing"
        )
    alone = replacement_seconds(variants["ours: nnrs"].trainer.policy, windows)
    print(
        f"nnrs replacement alone   {alone * 1e3:7.3f} ms  {100 * alone / base:.2f} % of a teacher-forced step"
    )
    print(f"exact passes per window  {statistics.mean(variants['ours: ss exact'].passes[WARM:]):.2f}")


if __name__ == "__main__":
    main()
