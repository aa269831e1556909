"""Types and shapes are checked while the tests run, but not in a user's program: there our own words must do."""

from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import config


@contextmanager
def unchecked() -> Iterator[None]:
    """Calls inside take any argument, as they do outside of the tests."""
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", False)
