"""What do the vectors of a vocabulary cost in time and memory, out of a 1 GB word2vec file, beside gensim?

The file is generated. Each reading is a fresh process, so that its peak memory is its own.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

ROWS, DIM, WANTED, REPEATS = 830_000, 300, 33_278, 3


def write_file(path: Path) -> None:
    """A word2vec binary file of 1 GB; its words are w0, w1, ..."""
    generator = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(f"{ROWS} {DIM}\n".encode())
        for start in range(0, ROWS, 10_000):
            block = generator.standard_normal((10_000, DIM), dtype=np.float32)
            file.writelines(b"w%d " % (start + i) + row.tobytes() for i, row in enumerate(block))


def read_ours(path: str) -> Iterator[None]:
    from nnrs.embeddings import read_vectors

    words = [f"w{i}" for i in range(0, ROWS, ROWS // WANTED)][:WANTED]
    yield  # what comes after it is measured
    assert bool(read_vectors(path, words).covered.all())


def read_gensim(path: str) -> Iterator[None]:
    from gensim.models import KeyedVectors

    yield
    assert len(KeyedVectors.load_word2vec_format(path, binary=True)) == ROWS


READERS = {"nnrs": read_ours, "gensim": read_gensim}


def measure(name: str, path: str) -> None:
    """Prints one reading's seconds and the megabytes of its peak above the start; imports are not counted."""
    reader = READERS[name](path)
    next(reader)
    before, start = psutil.Process().memory_info().rss, time.perf_counter()
    next(reader, None)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # kilobytes on Linux
    print(json.dumps([seconds, (peak - before) / 1e6]))


def fresh(name: str, path: Path) -> list[float]:
    done = subprocess.run(
        [sys.executable, __file__, name, str(path)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.split(": ")[1] for line in lines if line.startswith("model name"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.bin"
        write_file(path)
        print(f"{path.stat().st_size / 1e9:.2f} GB, {ROWS:,} x {DIM}, {WANTED:,} wanted")
        fresh("nnrs", path)  # warm-up: the file is in the page cache from here on
        runs = [{name: fresh(name, path) for name in READERS} for _ in range(REPEATS)]
    medians = {}
    for name in READERS:
        seconds, megabytes = zip(*(run[name] for run in runs), strict=True)
        medians[name] = statistics.median(seconds)
        spread = f"({min(seconds):.2f} to {max(seconds):.2f})"
        print(f"{name:7} {medians[name]:6.2f} s {spread}  peak +{max(megabytes):,.0f} MB")
    print(f"nnrs takes {medians['nnrs'] / medians['gensim']:.2f} of gensim's time")
    print(f"{processor()}, load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    measure(*sys.argv[1:]) if len(sys.argv) > 1 else main()
