"""How long does the exact neighbor table take at WikiText-2's size, beside faiss's exact index?

All are given the same unit rows and the same k on the same threads, in turn, in this one process. The plain
torch code and the bare product are there because faiss's own speed depends on the BLAS it was built with.
"""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import faiss
import torch
import torch.nn.functional as F

from nnrs.neighbors.search import nearest

ROWS, DIM, K, REPEATS, BLOCK = 33_278, 300, 15, 3, 512


def word_like_vectors() -> torch.Tensor:
    """Unit rows with a few strong directions and clusters, as word vectors have."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(2_000, DIM, generator=generator) * torch.linspace(2, 0.2, DIM)
    member = torch.randint(len(centers), (ROWS,), generator=generator)
    return F.normalize(centers[member] + torch.randn(ROWS, DIM, generator=generator))


def clock(search: Callable[[], object]) -> float:
    start = time.perf_counter()
    search()
    return time.perf_counter() - start


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.split(": ")[1] for line in lines if line.startswith("model name"))


def main() -> None:
    vectors = word_like_vectors()
    everyone = torch.ones(ROWS, dtype=torch.bool)
    index = faiss.IndexFlatIP(DIM)
    index.add(vectors.numpy())
    faiss.omp_set_num_threads(torch.get_num_threads())
    buffer = torch.empty(BLOCK, ROWS)
    searches = {
        "nnrs": lambda: nearest(vectors, K, candidates=everyone),
        "faiss.IndexFlatIP": lambda: index.search(vectors.numpy(), K + 1),  # each row finds itself first
        "plain mm + topk": lambda: [(block @ vectors.T).topk(K + 1) for block in vectors.split(BLOCK)],
        "mm alone": lambda: [torch.mm(b, vectors.T, out=buffer[: len(b)]) for b in vectors.split(BLOCK)],
    }
    ours, (_, theirs) = searches["nnrs"](), searches["faiss.IndexFlatIP"]()  # a look at the answers
    same = (ours.ids == torch.from_numpy(theirs[:, 1:])).double().mean().item()
    print(
        f"exact neighbors, {ROWS:,} x {DIM}, k = {K}: the same id in {same:.3%} of the slots (float32 ties differ)"
    )
    times: dict[str, list[float]] = {name: [] for name in searches}
    for repeat in range(1 + REPEATS):  # the first is a warm-up
        for name, search in searches.items():
            seconds = clock(search)
            times[name] += [seconds] if repeat else []
    for name, column in times.items():
        ratio = statistics.median(times["nnrs"]) / statistics.median(column)
        spread = f"({min(column):.2f} to {max(column):.2f})"
        print(f"{name:18} {statistics.median(column):6.2f} s {spread:18} nnrs takes {ratio:.2f} of it")
    print(f"{processor()}, {torch.get_num_threads()} threads, load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
