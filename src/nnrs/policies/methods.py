"""The methods by name: which parts of `InputPolicy` each one uses, and how they are made."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nnrs.errors import ConfigError
from nnrs.neighbors.probabilities import check_temperature
from nnrs.neighbors.table import NeighborTable
from nnrs.neighbors.transition import TransitionRows
from nnrs.policies.base import InputPolicy, Proposal, Reading
from nnrs.policies.controls import UnigramNoise, WordDropout, shuffled
from nnrs.policies.functional import GRANULARITIES
from nnrs.policies.gumbel import GumbelPolicy
from nnrs.registry import look_up
from nnrs.schedules import Schedule
from nnrs.seeding import Random, Stream
from nnrs.temperature import RULES, START, TemperatureController, check_start


@dataclass(frozen=True, eq=False, kw_only=True)
class Material:
    """What the text and the vectors give a policy to be made from."""

    train_ids: Int[Tensor, " tokens"]
    counts: Float[Tensor, " vocab"]
    vectors: Float[Tensor, "vocab dim"]  # zero rows: no vector
    protected: tuple[int, ...]
    case_groups: Int[Tensor, " vocab"]
    unknown_id: int
    seed: int

    @property
    def replaceable(self) -> Bool[Tensor, " vocab"]:
        """Tokens with a vector that nothing protects: the only ones replaced, the only ones proposed."""
        covered = self.vectors.ne(0).any(dim=-1) & self.vectors.isfinite().all(dim=-1)
        covered[list(self.protected)] = False
        return covered


@dataclass(frozen=True)
class Method:
    """Which sources of inputs a method draws on."""

    predictions: bool = False
    proposal: "Callable[[PolicyConfig, Material], Proposal] | None" = None
    rules: tuple[
        str, ...
    ] = ()  # how its temperature may move, the usual one first; none: it has no temperature
    temperature: float = START  # where it starts
    policy: type[InputPolicy] = InputPolicy

    def unused_settings(self) -> tuple[str, ...]:
        """The settings of `PolicyConfig` that mean nothing to this method."""
        unused: tuple[str, ...] = (
            () if self.predictions else ("prediction_rate", "predict", "unroll", "passes")
        )
        if self.proposal is None:
            unused += ("neighbor_rate", "replace")
        if not self.predictions and self.proposal is None:
            unused += ("granularity",)
        if self.proposal not in (cosine_neighbors, shuffled_neighbors):
            unused += ("draw", "search")
        if self.proposal is not bigram_rows:
            unused += ("transition_row", "transition_whole")
        return unused if self.rules else (*unused, "k", "rule", "temperature")

    def takes(self, setting: str, value: object) -> bool:
        """Whether a setting means something to this method; of a temperature's rule, whether it is one of its own."""
        foreign = setting == "rule" and value in RULES and value not in self.rules
        return setting not in self.unused_settings() and not foreign


def cosine_neighbors(config: "PolicyConfig", material: Material) -> NeighborTable:
    """NNRS: the k nearest by cosine (Eq. 2)."""
    return NeighborTable.from_vectors(
        material.vectors,
        k=config.k,
        protected=material.protected,
        groups=material.case_groups,
        backend=config.search,
    )


def bigram_rows(config: "PolicyConfig", material: Material) -> Proposal:
    """TPRS: the likeliest successors in the training text (docs/paper.md#tprs)."""
    ids, replaceable = material.train_ids, material.replaceable
    if config.transition_whole:
        return TransitionRows.of(ids, replaceable, rows=config.transition_row)
    return NeighborTable.from_transitions(
        ids, replaceable=replaceable, k=config.k, rows=config.transition_row
    )


def shuffled_neighbors(config: "PolicyConfig", material: Material) -> NeighborTable:
    """The control whose neighbors are another word's."""
    table = cosine_neighbors(config, material)
    return shuffled(table, material.counts, Random(material.seed, Stream.ORDER))


RULE_NAMES = tuple(RULES)
METHODS: dict[str, Method] = {
    # teacher forcing: every input is gold
    "mle": Method(),
    # scheduled sampling: inputs become the model's own predictions
    "ss": Method(predictions=True),
    # inputs become sampled nearest neighbors of the gold token
    "nnrs": Method(
        proposal=cosine_neighbors,
        rules=RULE_NAMES,
    ),
    # inputs become likely successors from bigram counts
    "tprs": Method(
        proposal=bigram_rows,
        rules=("constant",),
        temperature=1.0,  # bigram probabilities as they are
    ),
    # both: neighbors and predictions, a fair coin where both are drawn
    "ss-nnrs": Method(
        predictions=True,
        proposal=cosine_neighbors,
        rules=RULE_NAMES,
    ),
    # nnrs whose neighbor distribution is learned by Gumbel-softmax
    "gsns": Method(
        proposal=cosine_neighbors,
        rules=("constant",),
        policy=GumbelPolicy,
    ),
    # control: inputs become <unk>
    "word-dropout": Method(
        proposal=lambda config, material: WordDropout(material.replaceable, material.unknown_id),
    ),
    # control: inputs become frequent words
    "unigram": Method(
        proposal=lambda config, material: UnigramNoise.of(material.counts, material.replaceable),
    ),
    # control: inputs become the neighbors of another word
    "shuffled": Method(
        proposal=shuffled_neighbors,
        rules=RULE_NAMES,
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyConfig:
    """A method and its settings, as they are written into a run's config."""

    method: str = "ss-nnrs"
    prediction_rate: Schedule | None = None  # ε; None where the method makes no predictions
    neighbor_rate: Schedule | None = None  # γ; None where the method proposes nothing
    k: int | None = None  # None: round(log2 V)
    rule: str | None = None  # how τ moves; None: the method's usual way
    temperature: float | None = None  # τ at the start; None: the method's usual one
    granularity: str = "token"
    replace: str = "inputs"
    draw: str = "sample"
    predict: str = "sample"
    unroll: str = "parallel"  # how predictions are made: `parallel` passes, or `exact`
    passes: int = 1
    search: str = "exact"  # how neighbors are searched: exact | faiss
    transition_row: str = "own"  # tprs: whose bigrams, the token's own or its predecessor's
    transition_whole: bool = False  # tprs: the whole row instead of its top k

    def __post_init__(self) -> None:
        method = look_up(METHODS, self.method, "method")
        look_up(GRANULARITIES, self.granularity, "granularity")
        for name, known in CHOICES.items():
            look_up(dict.fromkeys(known), getattr(self, name), name.replace("_", " "))
        self._refuse_unused(method)
        for name in ("prediction_rate", "neighbor_rate"):
            if name not in method.unused_settings() and getattr(self, name) is None:
                object.__setattr__(self, name, Schedule())
        if self.passes < 1:
            raise ConfigError(f"passes must be at least 1, got {self.passes}.")
        if self.k is not None and self.k < 0:
            raise ConfigError(f"k must be 0 or more, got {self.k}.")
        self._settle_temperature(method)
        self._refuse_contradictions(method)

    def _refuse_unused(self, method: Method) -> None:
        defaults = {item.name: item.default for item in fields(self)}
        for name in method.unused_settings():
            if getattr(self, name) != defaults[name]:
                having = ", ".join(
                    other for other, made in METHODS.items() if name not in made.unused_settings()
                )
                option = name.replace("_", "-")
                raise ConfigError(
                    f"method '{self.method}' has no --{option}: leave it out, or use one of {having}."
                )

    def _settle_temperature(self, method: Method) -> None:
        if not method.rules:
            return
        if self.rule is None:
            object.__setattr__(self, "rule", method.rules[0])
        look_up(RULES, str(self.rule), "temperature rule")
        if self.rule not in method.rules:
            having = ", ".join(other for other, made in METHODS.items() if self.rule in made.rules)
            raise ConfigError(
                f"method '{self.method}' keeps a constant temperature: its rule is {method.rules[0]} alone, and "
                f"{self.rule} goes with {having}. Leave the rule out, or use one of these."
            )
        if self.temperature is None:
            object.__setattr__(self, "temperature", method.temperature)
        else:
            check_temperature(self.temperature)
            object.__setattr__(self, "temperature", float(self.temperature))
            check_start(str(self.rule), float(self.temperature))

    def _refuse_contradictions(self, method: Method) -> None:
        learned = method.policy is GumbelPolicy
        if learned and (self.draw == "centroid" or self.replace == "targets"):
            raise ConfigError(
                f"method '{self.method}' draws its inputs: it has no centroid and replaces no targets."
            )
        if self.replace == "targets" and self.draw == "centroid":
            raise ConfigError("a target is a token, not a vector: replace=targets needs draw=sample.")
        if self.transition_whole and (self.k is not None or self.temperature != method.temperature):
            raise ConfigError("a whole transition row has neither k nor temperature: leave them out.")

    def label(self) -> str:
        """The settings as they stand in a score's signature."""
        parts = [f"policy:{self.method}"]
        if self.prediction_rate:
            rate = self.prediction_rate
            how = "exact" if self.unroll == "exact" else f"parallel{self.passes}"
            parts += [f"eps:{rate.start:g}-{rate.end:g}:{rate.shape}", f"ss:{how}:{self.predict}"]
        if self.neighbor_rate:
            rate = self.neighbor_rate
            parts += [f"gamma:{rate.start:g}-{rate.end:g}:{rate.shape}"]
        if self.temperature is not None:
            parts += [
                f"k:{'all' if self.transition_whole else self.k}",
                f"tau:{self.rule}:{self.temperature:g}",
            ]
        plain = {field.name: field.default for field in fields(self)}
        shown = ("granularity", "replace", "draw", "search", "transition_row")
        parts += [f"{name}:{getattr(self, name)}" for name in shown if getattr(self, name) != plain[name]]
        return "|".join(parts)

    def build(self, material: Material, device: torch.device | str = "cpu") -> InputPolicy:
        """The live policy, its tables on `device`."""
        method = METHODS[self.method]
        proposal = method.proposal(self, material) if method.proposal else None
        replaceable = material.replaceable
        weights = material.counts.float() * replaceable
        controller = None
        if isinstance(proposal, NeighborTable) and self.rule and self.temperature:
            weights = weights * proposal.replaceable
            controller = TemperatureController(self.rule, self.temperature, proposal.similarities, weights)
        parts: dict[str, Any] = {
            "proposal": proposal.to(device) if proposal else None,
            "prediction_rate": self.prediction_rate,
            "neighbor_rate": self.neighbor_rate,
            "controller": controller,
            "replaceable": replaceable.to(device),
            "token_weights": weights.to(device),
            "reading": Reading(
                granularity=self.granularity, replace=self.replace, draw=self.draw, predict=self.predict
            ),
            "by_previous": self.method == "tprs" and self.transition_row == "previous",
        }
        return method.policy(**parts)

    def resolved(self, default_k: int) -> "PolicyConfig":
        """The same with k as the number it stands for."""
        if self.k is not None or self.transition_whole or "k" in METHODS[self.method].unused_settings():
            return self
        return replace(self, k=default_k)


CHOICES: dict[str, tuple[str, ...]] = {
    "replace": ("inputs", "targets"),
    "draw": ("sample", "centroid"),
    "predict": ("sample", "greedy"),
    "unroll": ("parallel", "exact"),
    "search": ("exact", "faiss"),
    "transition_row": ("own", "previous"),
}
