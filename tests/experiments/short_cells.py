"""Runs that train in no time, and a board of them."""

from nnrs.experiments.plan import expand
from nnrs.experiments.subject import Request

REQUEST = Request(metrics=("perplexity",))


def cells_on(text, runs=({"method": "mle"}, {"method": "ss-nnrs", "k": 2}), **options):
    """The cells of a plan on a text: two, where nothing else is said."""
    sizes = {"units": 6, "layers": 1, "learning_rate": 2.0}
    training = {"epochs": 2, "batch_size": 3, "bptt": 12, "valid_streams": 1}
    return expand({"data": str(text), **sizes, "training": training, "runs": list(runs), **options})
