"""Ctrl-C and SIGTERM ask a run to save and stop; a second one stops it where it is."""

import signal
from types import FrameType
from typing import Any

import typer

SIGNALED = 128  # and the number of the signal: the exit code, as shells have it
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def hear_nothing_more() -> None:
    """For one of several processes that is about to end: torchrun must not end it before it has said why."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Interruptible:
    """While the context lasts, the first signal only sets a flag that the run looks at between windows.

    Of several processes only one speaks, and none listens twice: torchrun passes on what they may have heard already,
    tells them once more when the first of them ends, and ends what is left half a minute later. Nor do they
    listen after the context: what is left is to say how it ended.
    """

    def __init__(self, *, several: bool = False, speaks: bool = True) -> None:
        self._several, self._speaks = several, speaks
        self._heard: int | None = None
        self._before: dict[int, Any] = {}

    def asked(self) -> bool:
        """Whether the user wants to stop."""
        return self._heard is not None

    @property
    def exit_code(self) -> int:
        """Of a stopped command: 143 after SIGTERM, 130 after Ctrl-C, or where another process heard the signal."""
        return SIGNALED + (self._heard or signal.SIGINT)

    def __enter__(self) -> "Interruptible":
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *error: object) -> None:
        if self._several:
            hear_nothing_more()
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked():
            if not self._several:
                raise SystemExit(SIGNALED + number)
            return
        self._heard = number
        if self._speaks:
            offer = "" if self._several else "; once more to stop at once"
            typer.echo(f"stopping after this window{offer}", err=True)
