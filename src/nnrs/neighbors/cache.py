"""What a table was made from, as a fingerprint; and where tables are kept between runs."""

import hashlib
import os
from pathlib import Path

import torch
from torch import Tensor


def fingerprint_of(*parts: Tensor | str | int | None) -> str:
    """A sha256 over the parts, each framed by its kind and length so that no two lists of parts look alike.

    >>> fingerprint_of("ab", "c") == fingerprint_of("a", "bc"), fingerprint_of(1) == fingerprint_of("1")
    (False, False)
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            kind = f"{part.dtype}{tuple(part.shape)}"
            content = part.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
        else:
            kind, content = type(part).__name__, memoryview(str(part).encode())
        digest.update(f"{kind}:{content.nbytes}:".encode())
        digest.update(content)
    return digest.hexdigest()


def cache_path(fingerprint: str) -> Path | None:
    """Where the table of this fingerprint is kept: $NNRS_CACHE, or the user's cache folder; None without a home."""
    folder = _cache_folder()
    return folder and folder / f"neighbors-{fingerprint[:32]}.safetensors"


def _cache_folder() -> Path | None:
    if ours := os.environ.get("NNRS_CACHE"):
        return Path(ours)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "nnrs"
    try:
        return Path.home() / ".cache" / "nnrs"
    except RuntimeError:  # a user that the system does not know, as in many containers
        return None
