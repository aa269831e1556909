"""Queueing the same launches again and again, as a CUDA graph."""

import gc
from collections.abc import Callable

import torch


class Replay:
    """A function of no arguments, captured at its first call and replayed from then on.

    Everything it launches must have been launched before, so that kernels are compiled and loaded; what it reads and
    writes must stay where it is. It runs on the current stream, and is captured there: cuBLAS has a scratch buffer
    for each stream, and graphs that shared one would spoil each other's products.
    """

    def __init__(self) -> None:
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, function: Callable[[], None]) -> None:
        """Replay the function, whose first call is captured. It is not kept: its owner would never be freed."""
        if self._graph is None:
            self._graph = _captured(function)
        self._graph.replay()


def _captured(function: Callable[[], None]) -> torch.cuda.CUDAGraph:
    graph, collects = torch.cuda.CUDAGraph(), gc.isenabled()
    gc.disable()  # an old graph that is destroyed now would spoil this one
    try:
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            function()
    finally:
        if collects:
            gc.enable()
    return graph
