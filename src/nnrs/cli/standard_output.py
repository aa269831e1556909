"""Standard output that says itself why it cannot be written, wherever in a command that comes out."""

import os
from typing import Any, NoReturn

from nnrs.cli.output import note


class StandardOutput:
    """A stream whose failures are told from those of files, which the parser and rich would each treat in its way.

    A reader that has gone (`| head`) has all it wanted: the command ends with 0.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write some text."""
        try:
            return int(self._stream.write(text))
        except OSError as error:
            self._end(error)

    def flush(self) -> None:
        """Write what was held back."""
        try:
            self._stream.flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> NoReturn:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())  # for what is still held back, which Python writes at its end
        os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            raise SystemExit(0)
        note(
            f"error: cannot write to standard output: {error.strerror}. Send it elsewhere; files that were written "
            "are there."
        )
        raise SystemExit(2)  # which no `except Exception` on the way takes for its own
