from nnrs.embeddings.cooccurrence import vectors_from_text
from nnrs.embeddings.projection import project
from nnrs.embeddings.reader import read_vectors
from nnrs.embeddings.vectors import Coverage, Embeddings

__all__ = ["Coverage", "Embeddings", "project", "read_vectors", "vectors_from_text"]
