"""Principal axes of a set of vectors, with their signs settled; and vectors brought to a model's width."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def principal_axes(
    gram: Float[Tensor, "dim dim"], count: int
) -> tuple[Float[Tensor, " axes"], Float[Tensor, "dim axes"]]:
    """The `count` largest eigenvalues of XᵀX, falling, and their axes; fewer where X has a lower rank.

    The rank is seen in a float64 product only: the rounding of a float32 one gives small axes of its own. An axis is
    only known up to its sign: the entry furthest from zero is made positive.
    """
    values, axes = torch.linalg.eigh(gram.double())
    values, axes = values.flip(0)[:count], axes.flip(1)[:, :count]
    real = values > values[0] * 1e-10  # below, an axis is rounding noise
    values, axes = values[real], axes[:, real]
    furthest = axes.gather(0, axes.abs().argmax(0, keepdim=True))
    return values, axes * furthest.sign()


def project(vectors: Float[Tensor, "vocab dim"], width: int) -> Float[Tensor, "vocab width"]:
    """The vectors at another width, to start a model's input embeddings from.

    Narrower: their coordinates on the leading principal axes of the rows that are not zero (not centred, so that
    zero rows stay zero and angles are kept as well as they can be). Wider: filled up with zeros.
    """
    dim = vectors.shape[1]
    if width < dim:
        covered = vectors[vectors.ne(0).any(-1)].double()
        _, axes = principal_axes(covered.T @ covered, width)
        vectors = (vectors.double() @ axes).to(vectors.dtype)
    return F.pad(vectors, (0, width - vectors.shape[1]))
