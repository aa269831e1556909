"""Curriculum schedules: how the two rates ε and γ move over training. Plain numbers, no tensors."""

import math
import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

from nnrs.errors import ConfigError
from nnrs.registry import look_up

Shape = Callable[[float], float]
STEP = 2.0  # progress that is no slip past the end, but a count of steps or epochs


def linear(z: float) -> float:
    """Rises evenly."""
    return z


def s_curve(z: float) -> float:
    """½(1 + sin(πz − π/2)): slow at both ends. The printed g2 lacks a bracket and leaves [0, 1]."""
    return 0.5 * (1.0 + math.sin(math.pi * z - math.pi / 2))


def exponential(z: float) -> float:
    """2/(e^{10(1−z)} + 1), late and steep, rescaled to start at exactly 0. The printed g3 falls."""

    def raw(z: float) -> float:
        return 2.0 / (math.exp(10.0 * (1.0 - z)) + 1.0)

    return (raw(z) - raw(0.0)) / (1.0 - raw(0.0))


def fast(z: float) -> float:
    """1 − (1−z)e^{−z}: most of the rise comes early. The printed g1 leaves [0, 1]."""
    return 1.0 - (1.0 - z) * math.exp(-z)


def static(z: float) -> float:
    """The end rate from the first epoch on."""
    return 1.0


def pulse(z: float) -> float:
    """Up until z = 0.8, then back to 0: the last epochs are teacher-forced, which unbiases the model (Eq. 8)."""
    if z <= 0.8:
        return 0.5 * (1.0 - math.cos(math.pi * z / 0.8))
    return 0.5 * (1.0 + math.cos(math.pi * (z - 0.8) / 0.2))


def exponential_decay(z: float) -> float:
    """(1 − 0.01^z)/0.99: Bengio et al. (2015), exponential decay of the gold rate, turned around."""
    return (1.0 - math.pow(0.01, z)) / 0.99


def inverse_sigmoid(z: float) -> float:
    """The logistic of 12(z − ½) rescaled to [0, 1]: Bengio et al. (2015), inverse sigmoid decay."""

    def raw(z: float) -> float:
        return 1.0 / (1.0 + math.exp(-12.0 * (z - 0.5)))

    return (raw(z) - raw(0.0)) / (raw(1.0) - raw(0.0))


SHAPES: dict[str, Shape] = {
    "linear": linear,
    "s-curve": s_curve,
    "exponential": exponential,
    "fast": fast,
    "static": static,
    "pulse": pulse,
    "exponential-decay": exponential_decay,
    "inverse-sigmoid": inverse_sigmoid,
}


def progress(index: int, count: int) -> float:
    """Z = i/(Γ − 1), so that the last epoch (or step) has the end rate; 1 where there is only one."""
    return 1.0 if count <= 1 else index / (count - 1)


def checked_rate(rate: Any, name: str) -> float:
    """`rate` as a plain float, if it is a probability; any kind of number will do."""
    if not isinstance(rate, Real) or not 0.0 <= float(rate) <= 1.0:
        raise ConfigError(f"{name} must be a probability in [0, 1], got {rate!r}.")
    return float(rate)


def _checked_progress(z: Any) -> float:
    """`z` as a plain float, if it is a number, also one of numpy's or torch's.

    Of Python's own a graph that is being compiled can say no more than its type, and whether it equals itself.
    """
    number = z if isinstance(z, int | float) else _held(z)
    if number is None or number != number:
        raise ConfigError(f"progress must be a number, 0 at the start and 1 at the end, got {z!r:.60}.")
    return float(number)


def _held(z: Any) -> float | None:
    """The number that a scalar of another library holds; None where it holds none."""
    try:
        number = z.item() if getattr(z, "ndim", None) == 0 else z
    except RuntimeError:  # torch's on a device without numbers
        return None
    return float(number) if isinstance(number, Real) else None


@dataclass(frozen=True)
class Schedule:
    """A rate over training: `schedule(z)` = start + (end − start)·g(z) for progress z in [0, 1].

    >>> Schedule("linear", 0.0, 0.2)(0.5)
    0.1
    """

    shape: str = "exponential"
    start: float = 0.0
    end: float = 0.2

    def __post_init__(self) -> None:
        look_up(SHAPES, self.shape, "schedule shape")
        for name in ("start", "end"):
            object.__setattr__(self, name, checked_rate(getattr(self, name), f"schedule {name}"))

    def __call__(self, z: float) -> float:
        """The rate at progress z, beyond the end that of the end; rounding is kept inside the two rates."""
        z = _checked_progress(z)
        if z >= STEP:
            warnings.warn(
                # Without the number: of one text a program is warned once.
                f"progress is far past the end of {self}, whose end rate it gets. Give a share of training, "
                "step / (steps - 1), not the step.",
                stacklevel=2,
            )
        rate = self.start + (self.end - self.start) * SHAPES[self.shape](min(max(z, 0.0), 1.0))
        return min(max(rate, min(self.start, self.end)), max(self.start, self.end))

    def dose(self, num_epochs: int) -> float:
        """The mean rate over the epochs: schedules of one end rate differ in it as much as in shape."""
        try:
            count = 0 if isinstance(num_epochs, bool) else operator.index(num_epochs)
        except (TypeError, RuntimeError):  # the latter of torch's on a device without numbers
            count = 0
        if count < 1:
            raise ConfigError(f"a dose is over a whole number of epochs, at least 1, got {num_epochs!r:.60}.")
        return sum(self(progress(epoch, count)) for epoch in range(count)) / count

    def remark(self, num_epochs: int) -> str | None:
        """What is to be known of a rate that stands still although its shape moves; None where it is as asked for.

        >>> Schedule("linear", 0.0, 0.2).remark(1)
        'linear 0:0.2 stays at 0.2: with --epochs 1 it cannot move. Use more epochs for a curriculum.'
        """
        rates = {self(progress(epoch, num_epochs)) for epoch in range(num_epochs)}
        said = f"{self.shape} {self.start:g}:{self.end:g} stays at {min(rates):g}"
        if self.shape == "pulse" and 0.0 < self.start == self.end:
            return f"{said}: it goes from START to END and back. Use 0:{self.end:g}, or --schedule static."
        if self.shape == "static" or self.start == self.end or len(rates) > 1:
            return None
        return f"{said}: with --epochs {num_epochs} it cannot move. Use more epochs for a curriculum."

    @classmethod
    def parse(cls, text: str, shape: str = "exponential") -> "Schedule":
        """A schedule from `START:END`, or from one number for the same rate throughout.

        >>> Schedule.parse("0:0.2", "linear")
        Schedule(shape='linear', start=0.0, end=0.2)
        """
        look_up(SHAPES, shape, "schedule shape")
        try:
            ends = [float(part) for part in text.split(":")]
        except ValueError:
            ends = []
        if len(ends) not in (1, 2):
            raise ConfigError(f"a rate is START:END or one number, such as 0:0.2; got '{text}'.")
        if not all(0.0 <= end <= 1.0 for end in ends):
            raise ConfigError(f"a rate is a probability in [0, 1], or two as START:END; got '{text}'.")
        return cls(shape, ends[0], ends[-1])
