"""What does word mover's distance cost, beside gensim's `wmdistance` and POT's `emd2`?

1,000 pairs of PTB test sentences with GoogleNews vectors, all three in turn in this one process. Each starts from the
sentences and does all that it needs for a distance: gensim is given words, the others are given ids.
Gensim's cost is the Euclidean distance of the unit vectors, not 1 − cos, so its values differ; the work is the same.
"""

import logging
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import ot
from gensim.models import KeyedVectors

from nnrs.corpus import open_corpus
from nnrs.embeddings import read_vectors
from nnrs.metrics.wmd import WordVectors, self_wmd, summarize, wmd
from nnrs.vocabulary import Vocabulary, token_ids

SHARED = Path(os.environ.get("NNRS_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
VECTORS = SHARED / "embeddings" / "googlenews-negative300.subset.bin.gz"
PAIRS, WINDOWS, LENGTH, GROUP, REPEATS = 1_000, 1_000, 35, 20, 9


def clock(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def medians(works: dict[str, Callable[[], object]], each: int) -> dict[str, float]:
    """Milliseconds each, after a warm-up, the works taking turns; printed with their spread."""
    rounds = [{name: clock(work) / each * 1e3 for name, work in works.items()} for _ in range(1 + REPEATS)]
    columns = {name: [times[name] for times in rounds[1:]] for name in works}
    for name, column in columns.items():
        print(
            f"{name:20} {statistics.median(column):.3f} ms a pair ({min(column):.3f} to {max(column):.3f})",
            flush=True,
        )
    return {name: statistics.median(column) for name, column in columns.items()}


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.split(": ")[1] for line in lines if line.startswith("model name"))


def main() -> None:
    logging.disable()  # gensim's, about sentences without a vector
    corpus = open_corpus(str(SHARED / "ptb"))
    vocabulary = Vocabulary.from_corpus(corpus)
    embeddings = read_vectors(VECTORS, vocabulary.words)
    vectors, allowed = embeddings.vectors.numpy(), np.array(vocabulary.counts) > 0
    generator = np.random.default_rng(0)
    lines = list(corpus.lines("test"))
    chosen = [lines[i] for i in generator.permutation(len(lines))[: 2 * PAIRS]]
    words = list(zip(chosen[:PAIRS], chosen[PAIRS:], strict=True))
    first, second = ([vocabulary.encode(line) for line in half] for half in (chosen[:PAIRS], chosen[PAIRS:]))

    covered = np.flatnonzero(embeddings.covered.numpy())
    keyed = KeyedVectors(vectors.shape[1])
    keyed.add_vectors([vocabulary.words[i] for i in covered], vectors[covered])
    keyed.fill_norms()

    def ours() -> np.ndarray:
        space = WordVectors(vectors, allowed)
        return wmd(space.bags(first), space.bags(second))

    def emd2() -> list[float]:
        space = WordVectors(vectors, allowed)
        pairs = zip(space.bags(first).bags, space.bags(second).bags, strict=True)
        return [
            float(ot.emd2(a.weights, b.weights, 1 - space.units(a.words) @ space.units(b.words).T))
            if len(a.words) and len(b.words)
            else np.nan
            for a, b in pairs
        ]

    apart = np.nanmax(np.abs(ours() - emd2()))
    print(f"{PAIRS:,} pairs of PTB sentences: {summarize(ours())}; at most {apart:.1e} from POT's emd2")
    works = {
        "nnrs": ours,
        "gensim wmdistance": lambda: [keyed.wmdistance(a, b) for a, b in words],
        "POT emd2": emd2,
    }
    times = medians(works, PAIRS)
    for name in ("gensim wmdistance", "POT emd2"):
        print(f"nnrs is {times[name] / times['nnrs']:.1f} times as fast as {name}")

    text = token_ids(corpus, "test", vocabulary).numpy()
    windows = generator.permutation(text[: len(text) // LENGTH * LENGTH].reshape(-1, LENGTH))[:WINDOWS]
    groups = np.arange(WINDOWS) // GROUP
    print(f"self-WMD of {WINDOWS:,} windows of {LENGTH} tokens in groups of {GROUP}:")
    medians(
        {"nnrs": lambda: self_wmd(WordVectors(vectors, allowed).bags(windows), groups)},
        WINDOWS * (GROUP - 1) // 2,
    )
    print(f"{processor()}, load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
