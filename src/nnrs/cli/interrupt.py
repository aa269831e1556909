"""Ctrl-C and SIGTERM ask a run to save and stop; a second Ctrl-C stops it where it is."""

import signal
from types import FrameType, TracebackType
from typing import Any

import typer


class Interruptible:
    """While the context lasts, the first signal only sets a flag that the run looks at between windows."""

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[int, Any] = {}

    def asked(self) -> bool:
        """Whether the user wants to stop."""
        return self._asked

    def __enter__(self) -> "Interruptible":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        typer.echo("stopping after this window; once more to stop at once", err=True)
