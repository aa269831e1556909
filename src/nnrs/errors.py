"""The errors a user may meet: one line each, naming the thing, what was expected and what to do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class NnrsError(Exception):
    """Base of every error that is the user's to mend; the command line prints it and exits with 2."""


class ConfigError(NnrsError):
    """A setting is unknown, out of range, or contradicts another one."""


class DataError(NnrsError):
    """A text, a vector file or a table cannot be used as it is."""


class RunError(NnrsError):
    """A run directory or a checkpoint cannot be read, written or continued."""


class DivergenceError(NnrsError):
    """The training loss stopped being a finite number."""


@contextmanager
def reworded(change: Callable[[str], str]) -> Iterator[None]:
    """Have an error of ours say what `change` makes of its message."""
    try:
        yield
    except NnrsError as error:
        raise type(error)(change(str(error))) from None
