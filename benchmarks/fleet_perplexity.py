"""Does a fleet end at the perplexity of the plain loop?

The same seeds, draws and masks by both, a whole short training of PTB at 640 units; the validation perplexities of
the two should differ by less than those of the seeds do. Needs a CUDA device; elsewhere it says so and ends.

    python benchmarks/fleet_perplexity.py --data ROOT     a folder with ptb/
"""

import argparse
import statistics
from pathlib import Path

import torch

from nnrs.experiments.options import configure
from nnrs.experiments.prepare import Shelf, prepare
from nnrs.experiments.run import Run
from nnrs.run_directory import RunDirectory
from nnrs.training.fleet import Fleet

SEEDS, EPOCHS = (1, 2, 3), 4


def make_runs(root: Path, shelf: Shelf) -> list[Run]:
    """One run per seed, ready to train; nothing of theirs is written."""
    runs = []
    for seed in SEEDS:
        given = {
            "data": str(root / "ptb"),
            "preset": "medium",
            "method": "mle",
            "epochs": EPOCHS,
            "seed": seed,
        }
        run = Run(RunDirectory("unused"), prepare(configure(given), torch.device("cuda"), shelf))
        run.trainer.save = run.trainer.save_best = lambda live: None
        runs.append(run)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    root = parser.parse_args().data
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure.")
        return
    shelf = Shelf()
    plain = make_runs(root, shelf)
    for run in plain:
        run.trainer.fit()
    fleet = make_runs(root, shelf)
    valid = fleet[0].windows_of("valid", fleet[0].parts.config.training.valid_streams)
    Fleet([run.trainer for run in fleet], valid).fit()
    perplexities = {
        name: [run.trainer.live.position.best_valid_perplexity for run in runs]
        for name, runs in (("plain loop", plain), ("fleet", fleet))
    }
    for name, values in perplexities.items():
        print(
            f"{name:10s} {', '.join(f'{value:.2f}' for value in values)}: mean {statistics.mean(values):.2f}"
        )
    ours, theirs = perplexities["fleet"], perplexities["plain loop"]
    apart = [our - their for our, their in zip(ours, theirs, strict=True)]
    print(f"fleet - plain loop, by seed: {', '.join(f'{value:+.2f}' for value in apart)}", end="; ")
    print(f"standard deviation of the seeds {statistics.stdev(theirs):.2f}")


if __name__ == "__main__":
    main()
