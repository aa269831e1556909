"""The temperature rule (Eq. 5): τ follows the validation perplexity. A pure step on an explicit state."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from nnrs.errors import ConfigError
from nnrs.neighbors.probabilities import check_temperature, temperature_for
from nnrs.registry import look_up

LOWEST, HIGHEST = (
    0.5,
    10.0,
)  # the paper's bounds, "to prevent Eq. 3 becoming too narrow or completely uniform"
START = 0.5  # τ of the first epoch, where nothing else is said
HIGHEST_NATS = 700.0  # exp of 710 overflows a float
FIRST_TARGET, TARGET_FACTOR = 2.0, 1.2  # of the `effective` rule: neighbors at the start, growth per epoch


@dataclass(frozen=True)
class TemperatureState:
    """τ_i, ℓ_* before this epoch, and, under the `effective` rule, the number of neighbors aimed at."""

    temperature: float
    best_valid_perplexity: float  # ℓ_*, which starts at V: the uniform model's perplexity
    target: float = FIRST_TARGET


def perplexity_of(nats: float) -> float:
    """ℓ, exp of a mean negative log-likelihood; inf where it would overflow, or is no number.

    >>> perplexity_of(0.0), perplexity_of(700.0)
    (1.0, inf)
    """
    return math.exp(nats) if nats < HIGHEST_NATS else math.inf


def anchored_step(temperature: float) -> float:
    """|τ − (2^τ − 1)|, the size of Eq. 5's step; 0 at τ = 1, which the rule therefore never passes.

    >>> round(anchored_step(0.5), 4), anchored_step(1.0)
    (0.0858, 0.0)
    """
    return abs(temperature - (math.pow(2.0, temperature) - 1.0))


def clip(temperature: float) -> float:
    """τ within the paper's bounds; Algorithm 1's start of 0.1 becomes 0.5 at once."""
    return min(max(temperature, LOWEST), HIGHEST)


# Eq. 5 and the sentence above it disagree on the sign.
#   prose:    improvement raises τ, sampling explores (four sentences of the paper and its supplement).
#   equation: improvement lowers τ, sampling stays close to the target (the print, and one sentence).
# `prose` is the default. Both compare with the best *before* the epoch: Algorithm 1 updates ℓ_* first, after
# which nothing would ever count as an improvement.
def prose(temperature: float, improved: bool) -> float:
    """τ up when the perplexity improved, down when not."""
    step = anchored_step(temperature)
    return clip(temperature + step if improved else temperature - step)


def equation(temperature: float, improved: bool) -> float:
    """τ down when the perplexity improved, up when not: Eq. 5 as printed."""
    return prose(temperature, not improved)


def constant(temperature: float, improved: bool) -> float:
    """The τ it started with."""
    return temperature


RULES: dict[str, Callable[[float, bool], float] | None] = {
    "prose": prose,
    "equation": equation,
    "constant": constant,
    "effective": None,  # moves the target number of neighbors instead, and solves for τ
}


def check_start(rule: str, temperature: float) -> None:
    """Refuse a start that the rule does not begin with: records would tell it, and it would change nothing."""
    if rule == "effective" and temperature != START:
        raise ConfigError(
            f"rule effective finds its temperature by itself, got {temperature:g}: leave the temperature out, or use "
            "the rule constant."
        )
    if rule in ("prose", "equation") and clip(temperature) != temperature:
        raise ConfigError(
            f"rule {rule} keeps the temperature in [{LOWEST:g}, {HIGHEST:g}], and would begin at "
            f"{clip(temperature):g} with {temperature:g}: leave the temperature out, or use the rule constant."
        )


class TemperatureController:
    """τ over the epochs under a named rule, for the neighbors of one table.

    `weights` says how often each row is used (training counts), for the `effective` rule's mean.
    """

    def __init__(
        self,
        rule: str,
        temperature: float,
        similarities: Float[Tensor, "vocab k"],
        weights: Float[Tensor, " vocab"],
    ) -> None:
        self._step = look_up(RULES, rule, "temperature rule")
        check_temperature(temperature)
        self.rule = rule
        self._first = float(temperature)
        self._similarities, self._weights = similarities, weights

    def start(self) -> TemperatureState:
        """The state before the first epoch."""
        vocab_size, k = self._similarities.shape
        if self.rule == "effective":
            target = min(FIRST_TARGET, float(k))
            return TemperatureState(self._solve(target), float(vocab_size), target)
        first = self._first if self.rule == "constant" else clip(self._first)
        return TemperatureState(first, float(vocab_size))

    def update(self, state: TemperatureState, valid_perplexity: float) -> TemperatureState:
        """The state after an epoch that ended at `valid_perplexity` (ℓ_i); NaN or infinity improves nothing."""
        improved = math.isfinite(valid_perplexity) and valid_perplexity < state.best_valid_perplexity
        if improved:
            state = replace(state, best_valid_perplexity=valid_perplexity)
        if self._step is not None:
            return replace(state, temperature=self._step(state.temperature, improved))
        moved = state.target * TARGET_FACTOR if improved else state.target / TARGET_FACTOR
        target = min(max(moved, 1.0), float(self._similarities.shape[1]))
        return replace(state, target=target, temperature=self._solve(target))

    def _solve(self, target: float) -> float:
        return temperature_for(self._similarities, target, self._weights)
