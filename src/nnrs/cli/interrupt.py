"""Ctrl-C and SIGTERM ask a run to save and stop; a second Ctrl-C stops it where it is."""

import signal
from types import FrameType
from typing import Any

import typer


class Interruptible:
    """While the context lasts, the first signal only sets a flag that the run looks at between windows.

    Of several processes only one speaks, and none listens twice: torchrun passes on what they may have heard already,
    tells them once more when the first of them ends, and ends what is left half a minute later.
    """

    def __init__(self, *, several: bool = False, speaks: bool = True) -> None:
        self._several, self._speaks = several, speaks
        self._asked = False
        self._before: dict[int, Any] = {}

    def asked(self) -> bool:
        """Whether the user wants to stop."""
        return self._asked

    def __enter__(self) -> "Interruptible":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._asked and not self._several:
            raise KeyboardInterrupt
        if self._speaks and not self._asked:
            offer = "" if self._several else "; once more to stop at once"
            typer.echo(f"stopping after this window{offer}", err=True)
        self._asked = True
