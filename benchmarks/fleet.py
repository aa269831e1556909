"""What does a run cost in a fleet on one GPU, beside the plain PyTorch loop?

Every line is a whole epoch, training and validation: of a fleet by the clock (its second; graphs are captured in the
first), of the plain loop (`nn.LSTM` by cuDNN, a highway network step by step; the same draws) from its first windows.
Needs a CUDA device; elsewhere it says so and ends.

    python benchmarks/fleet.py --data ROOT     a folder with ptb/ and wikitext-2/
                               --only ptb,16   the cases of this corpus, these units, this method, this number of runs
"""

import argparse
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from nnrs.evaluation.evaluate import text_perplexity
from nnrs.experiments.options import configure
from nnrs.experiments.prepare import Shelf, prepare
from nnrs.experiments.run import Run
from nnrs.run_directory import RunDirectory
from nnrs.training.events import Callback, EpochMetrics, EpochTiming
from nnrs.training.fleet import Fleet
from nnrs.training.squad import Squad

EPOCHS, PLAIN_WINDOWS, WARM_UP = 2, 150, 10


@dataclass(frozen=True)
class Case:
    name: str
    corpus: str
    runs: int
    options: dict[str, object]
    limit: float | None = None  # seconds per run and epoch


CASES = [
    Case("640 units, mle", "ptb", 1, {"preset": "medium", "method": "mle"}, 2.5),
    Case("640 units, mle", "ptb", 16, {"preset": "medium", "method": "mle"}, 0.5),
    Case("640 units, nnrs", "ptb", 16, {"preset": "medium", "method": "nnrs", "neighbor_rate": "0.2"}, 0.5),
    Case("640 units, ss", "ptb", 16, {"preset": "medium", "method": "ss", "prediction_rate": "0.2"}, 0.8),
    Case("640 units, mle", "ptb", 64, {"preset": "medium", "method": "mle"}, 0.5),
    Case("1504 units, mle", "ptb", 8, {"preset": "large", "method": "mle"}, 1.8),
    Case("640 units, highway, mle", "ptb", 15, {"preset": "medium", "model": "highway", "method": "mle"}),
    Case("640 units, mle", "wikitext-2", 8, {"preset": "medium", "method": "mle"}, 3.0),
]


class Clock(Callback):
    """The seconds of a run's last epoch."""

    def epoch_end(self, metrics: EpochMetrics, timing: EpochTiming) -> None:
        self.train, self.valid = timing.train_seconds, timing.valid_seconds


def make_runs(case: Case, root: Path, shelf: Shelf) -> list[Run]:
    """The runs of a case, ready to train; nothing of theirs is written."""
    runs = []
    for seed in range(1, case.runs + 1):
        config = configure({"data": str(root / case.corpus), "epochs": EPOCHS, "seed": seed, **case.options})
        run = Run(RunDirectory("unused"), prepare(config, torch.device("cuda"), shelf))
        run.trainer.save = run.trainer.save_best = lambda live: None
        runs.append(run)
    return runs


def fleet_seconds(case: Case, root: Path, shelf: Shelf) -> tuple[float, float, float, float]:
    """Per run: seconds of an epoch's training and validation, and bytes; and the model FLOPs of that epoch."""
    runs, clock = make_runs(case, root, shelf), Clock()
    trainers = [run.trainer for run in runs]
    trainers[0].callbacks = [clock]
    valid = runs[0].windows_of("valid", runs[0].parts.config.training.valid_streams)
    Squad(trainers[:1], valid).rehearse()  # kernels are compiled
    Squad(trainers[: min(4, len(trainers))], valid).rehearse()
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    Fleet(trainers, valid).fit()
    flops = epoch_flops(runs[0])
    return (
        clock.train / case.runs,
        clock.valid / case.runs,
        torch.cuda.max_memory_allocated() / case.runs,
        flops,
    )


def plain_seconds(case: Case, root: Path, shelf: Shelf) -> tuple[float, float]:
    """Seconds of an epoch's training (from its first windows) and validation, with the plain loop."""
    run = make_runs(Case(case.name, case.corpus, 1, case.options), root, shelf)[0]
    trainer = run.trainer
    rates = trainer.policy.rates(1.0)
    for index in range(WARM_UP + PLAIN_WINDOWS):
        if index == WARM_UP:
            torch.cuda.synchronize()
            started = time.perf_counter()
        trainer.train_window(trainer.windows[index], rates)
    torch.cuda.synchronize()
    train = (time.perf_counter() - started) / PLAIN_WINDOWS * len(trainer.windows)
    started = time.perf_counter()
    text = run.parts.text
    text_perplexity(run.parts.model, text.ids["valid"], eos_id=text.vocabulary.eos_id, streams=10).compute()
    return train, time.perf_counter() - started


def epoch_flops(run: Run) -> float:
    """Multiplications and additions of an epoch's training: 2 per weight and token forward, twice that backward."""
    model, config = run.parts.model, run.parts.config
    words = run.parts.model.embedding.weight.numel()
    weights = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() > 1)
    used = weights if config.model.tied else weights - words  # looking a word up multiplies nothing
    return 6.0 * used * run.parts.windows.num_tokens


def ceilings() -> tuple[float, float]:
    """The GPU's own pace here: bf16 products (FLOP/s) and copies (bytes read and written per second)."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.randn(2**30, device="cuda")
    target = torch.empty_like(source)
    return 2 * 8192**3 / clock_of(lambda: torch.mm(a, b)), 2 * source.nbytes / clock_of(
        lambda: target.copy_(source)
    )


def clock_of(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(8):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(5):
            work()
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - started) / 5)
    return sorted(seconds)[len(seconds) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--only", default="", help="what the cases measured have in common, as 640 units,16")
    given = parser.parse_args()
    root, only = given.data, {part for part in given.only.split(",") if part}
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure.")
        return
    products, copies = ceilings()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: ", end="")
    print(f"bf16 products {products / 1e12:.0f} TFLOP/s, copies {copies / 1e12:.2f} TB/s")
    plain: dict[tuple[str, str], float] = {}
    trained: dict[str, float] = {}
    for case in CASES:
        if not only <= {case.corpus, str(case.runs), *case.name.split(", ")}:
            continue
        shelf = Shelf()
        key = case.corpus, case.name
        if key not in plain:
            plain[key] = sum(plain_seconds(case, root, shelf))
        train, valid, taken, flops = fleet_seconds(case, root, shelf)
        total = train + valid
        trained[f"{case.corpus}, {case.runs} runs, {case.name}"] = total
        peer, pace = plain[key], flops / train
        print(
            f"{case.corpus:10s} {case.name:23s} {case.runs:3d} runs: {total:6.3f} s per run and epoch "
            f"(limit {case.limit or 'none'}; validation {valid:.3f}), plain loop {peer:6.2f} s, "
            f"ratio {total / peer:.3f}; {taken / 2**20:,.0f} MiB per run; "
            f"{pace / 1e12:.0f} TFLOP/s, {pace / products:.1%} of that",
            flush=True,
        )
        gc.collect()
    names = ("ptb, 16 runs, 640 units, nnrs", "ptb, 16 runs, 640 units, mle")
    if trained.keys() >= set(names):
        print(f"nnrs takes {trained[names[0]] / trained[names[1]]:.3f} of mle (limit 1.02)")


if __name__ == "__main__":
    main()
