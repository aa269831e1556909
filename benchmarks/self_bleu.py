"""What does self-BLEU-4 of 5,000 PTB sentences cost, beside fast-bleu?

Both are given the same lists of words, in turn, in this one process, and what each does to the words counts.
fast-bleu is no dependency: `pip install fast-bleu` builds it (needs a C++ compiler). Without it there is no ratio.

    python benchmarks/self_bleu.py --data ROOT     a folder with ptb/
"""

import argparse
import os
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from nnrs.metrics.bleu import self_bleu

SHARED = Path(os.environ.get("NNRS_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
SENTENCES, REPEATS, LIMIT = 5_000, 7, 30.0


def fast_bleu(sentences: list[list[str]]) -> list[float]:
    from fast_bleu import SelfBLEU

    return SelfBLEU(sentences, {4: (0.25,) * 4}, smoothing_func=1).get_score()[4]


def clock(scores: Callable[[list[list[str]]], Sequence[float]], sentences: list[list[str]]) -> float:
    start = time.perf_counter()
    scores(sentences)
    return time.perf_counter() - start


def peak_megabytes(sentences: list[list[str]]) -> float:
    """What ours allocates at most beside the sentences."""
    tracemalloc.start()
    self_bleu(sentences)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def row(name: str, seconds: list[float]) -> str:
    return (
        f"{name:10s} best {min(seconds) * 1e3:8.1f} ms   median {statistics.median(seconds) * 1e3:8.1f} ms   "
        f"worst {max(seconds) * 1e3:8.1f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="a folder with ptb/")
    text = parser.parse_args().data / "ptb" / "ptb.train.txt"
    if not text.is_file():
        print(f"no PTB at {text}: give the folder that has ptb/ with --data.")
        return
    every = [line.split() for line in text.read_text().splitlines()]
    sentences = every[:SENTENCES]
    print(f"{len(sentences):,} sentences of PTB, {sum(map(len, sentences)):,} words, {REPEATS} turns each")
    peers = {"ours": self_bleu}
    if find_spec("fast_bleu"):
        peers["fast-bleu"] = fast_bleu
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(REPEATS):
        for name, scores in peers.items():
            seconds[name].append(clock(scores, sentences))
    for name, values in seconds.items():
        print(row(name, values))
    for count in (SENTENCES, 2 * SENTENCES, 4 * SENTENCES):
        print(
            f"ours, {count:6,} sentences: peak memory {peak_megabytes(every[:count]):.1f} MB above the text"
        )
    if "fast-bleu" not in peers:
        print(
            "fast-bleu is not installed, so there is no ratio: pip install fast-bleu (needs a C++ compiler)."
        )
        return
    apart = max(abs(a - b) for a, b in zip(self_bleu(sentences), fast_bleu(sentences), strict=True))
    best, median = (f(seconds["fast-bleu"]) / f(seconds["ours"]) for f in (min, statistics.median))
    print(f"values differ by at most {apart:.1e}")
    print(f"ours is {best:.0f} times as fast, best of {REPEATS} ({median:.0f} by medians; limit {LIMIT:.0f})")


if __name__ == "__main__":
    main()
