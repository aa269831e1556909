"""Train sequence models to survive their own mistakes.

The public names are resolved on first use, so that `nnrs --help` never imports torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from nnrs.corpus import Corpus, open_corpus
    from nnrs.embeddings import Embeddings, read_vectors, vectors_from_text
    from nnrs.errors import NnrsError
    from nnrs.evaluation import exposure
    from nnrs.experiments.load import load
    from nnrs.integrations.curriculum import curriculum
    from nnrs.neighbors.table import NeighborTable
    from nnrs.policies.functional import replace_with_neighbors
    from nnrs.schedules import Schedule
    from nnrs.vocabulary import Vocabulary

_HOMES = {
    "Corpus": "nnrs.corpus",
    "Embeddings": "nnrs.embeddings",
    "NeighborTable": "nnrs.neighbors.table",
    "NnrsError": "nnrs.errors",
    "Schedule": "nnrs.schedules",
    "Vocabulary": "nnrs.vocabulary",
    "curriculum": "nnrs.integrations.curriculum",
    "load": "nnrs.experiments.load",
    "open_corpus": "nnrs.corpus",
    "read_vectors": "nnrs.embeddings",
    "replace_with_neighbors": "nnrs.policies.functional",
    "vectors_from_text": "nnrs.embeddings",
}
_MODULES = {"exposure": "nnrs.evaluation.exposure"}
__all__ = [
    "Corpus",
    "Embeddings",
    "NeighborTable",
    "NnrsError",
    "Schedule",
    "Vocabulary",
    "__version__",
    "curriculum",
    "exposure",
    "load",
    "open_corpus",
    "read_vectors",
    "replace_with_neighbors",
    "vectors_from_text",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'nnrs' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
