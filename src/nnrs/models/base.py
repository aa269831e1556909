"""What every sequence model shares: its settings, its word vectors, its output layer and its dropout masks.

A model is `embed(ids) -> vectors`, `encode(vectors, state, masks) -> hidden, state` and
`head(hidden) -> logits`. What enters as a vector (a word, a centroid, a learned mixture) is the caller's
affair, and so is where the costly output layer is applied.
"""

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nnrs.batches import Window
from nnrs.errors import ConfigError
from nnrs.registry import look_up
from nnrs.seeding import Random

State = tuple[Tensor, ...]  # flat; every tensor has the batch first. The caller detaches it between windows
Masks = tuple[Tensor, ...]  # one scaled (batch, time, units) dropout mask per place

ALL = slice(None)
WORD_RANGE = 0.1  # word vectors start uniform in ± this
WORD_VECTORS = ("embedding.weight", "source_embedding.weight", "output_weight")
MAX_DROPOUT = 0.99  # masks are scaled by 1 / (1 - dropout)
MOST_LAYERS = 1000  # each is made, and stepped through, one by one; more is a slip of the finger


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The settings of a model; `kind` is a name in `nnrs.models.MODELS`.

    >>> ModelConfig.preset("gru", "small", tied=False).label()
    'gru-2x200'
    """

    kind: str = "lstm"
    units: int
    layers: int = 2  # for the highway network: micro-layers within one time step
    dropout: float
    weight_dropout: float = 0.0  # of the recurrent weights
    tied: bool = True  # the output layer uses the word vectors as its weights
    heads: int = 4  # transformer only
    context: int = 128  # transformer only: past positions that a token can attend to

    def __post_init__(self) -> None:
        for name in ("units", "layers", "heads", "context"):
            if getattr(self, name) < 1:
                raise ConfigError(f"model {name} must be at least 1, got {getattr(self, name)}.")
        if self.layers > MOST_LAYERS:
            raise ConfigError(f"model layers must be at most {MOST_LAYERS:,}, got {self.layers:,}.")
        for name in ("dropout", "weight_dropout"):
            if not 0.0 <= getattr(self, name) <= MAX_DROPOUT:
                raise ConfigError(f"model {name} must be in [0, {MAX_DROPOUT}], got {getattr(self, name)}.")
        if self.kind == "transformer" and self.weight_dropout:
            raise ConfigError("a transformer has no recurrent weights to drop: leave --weight-dropout out.")
        if self.kind == "transformer" and self.units % (2 * self.heads):
            raise ConfigError(
                f"transformer units must be a multiple of 2 x heads = {2 * self.heads}, got {self.units}. "
                "Change units or heads."
            )

    @staticmethod
    def preset(kind: str, preset: str, **overrides: Any) -> "ModelConfig":
        """The settings of a named size, with single ones replaced."""
        return replace(look_up(PRESETS, preset, "preset"), kind=kind, **overrides)

    def as_dict(self) -> dict[str, Any]:
        """Plain values; where no weights are dropped, nothing is said of that."""
        values = asdict(self)
        if not self.weight_dropout:
            del values["weight_dropout"]
        return values

    def label(self) -> str:
        """Kind and size as they appear in a result's signature, such as `lstm-2x200`."""
        return f"{self.kind}-{self.layers}x{self.units}"

    def dropout_label(self) -> str:
        """Likewise what is dropped: `dropout:0.5`, or `dropout:0.5|weight-dropout:0.2`."""
        weights = f"|weight-dropout:{self.weight_dropout:g}" if self.weight_dropout else ""
        return f"dropout:{self.dropout:g}{weights}"


PRESETS = {
    "tiny": ModelConfig(units=64, dropout=0.1),
    "small": ModelConfig(units=200, dropout=0.2),
    "medium": ModelConfig(units=640, dropout=0.5),
    "large": ModelConfig(units=1504, dropout=0.65),
}


def drop(values: Float[Tensor, "*shape"], masks: Masks | None, place: int) -> Float[Tensor, "*shape"]:
    """The values times the mask of one dropout place, or the values themselves where there are no masks."""
    return values if masks is None else values * masks[place]


class SequenceModel(nn.Module, ABC):
    """A language model over (batch, time) token ids; made by `nnrs.models.build_model`.

    Encoding never draws: dropout masks are arguments, so that several passes over a window can share them and
    a step-by-step pass can slice them; masks=None is evaluation. `train()` and `eval()` change no number, but
    cuDNN differentiates in train mode only: leave the model there.
    """

    squares_per_layer: ClassVar[int]  # matrices of units by units
    _dropped: tuple[Tensor, ...] = ()  # recurrent weights in place of its own

    @classmethod
    def least_parameters(cls, config: ModelConfig, vocab_size: int) -> int:
        """How many numbers such a model learns at the least, without making it: its word vectors and its layers'."""
        words = vocab_size if config.tied else 2 * vocab_size
        return config.units * (words + config.layers * cls.squares_per_layer * config.units)

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.embedding = nn.Embedding(vocab_size, config.units)
        self.output_bias = nn.Parameter(torch.empty(vocab_size))
        if not config.tied:
            self.output_weight = nn.Parameter(torch.empty(vocab_size, config.units))

    @property
    def recurrent_weights(self) -> tuple[nn.Parameter, ...]:
        """The matrices that a state is multiplied by, all of one shape; none where there is no recurrence."""
        return ()

    def dropped(self, random: Random) -> "SequenceModel":
        """The same model with a share of its recurrent weights at 0 and the others scaled up.

        What that learns, this one learns (DropConnect on recurrent weights: Merity et al. 2018, arXiv 1708.02182). It
        is for all passes over one window, and is neither copied nor moved.
        """
        own, rate = self.recurrent_weights, self.config.weight_dropout
        if not rate:
            return self
        masks = random.dropout_mask(len(own), *own[0].shape, rate=rate).unbind()
        changed = copy.copy(self)  # which shares its parameters
        changed._dropped = tuple(weight * mask for weight, mask in zip(own, masks, strict=True))
        return changed

    @property
    @abstractmethod
    def dropout_places(self) -> int:
        """The number of masks that `encode` wants."""

    @abstractmethod
    def init_state(self, batch_size: int) -> State:
        """The state before the first token, on the parameters' device."""

    def first_state(self, window: Window, random: Random | None, rows: slice = ALL) -> State:
        """The state that a window's rows begin with where none is carried.

        Dropout, if any, is drawn from `random`, and for all rows, whichever are asked for.
        """
        return self.init_state(len(window.inputs[rows]))

    @abstractmethod
    def encode(
        self, vectors: Float[Tensor, "batch time hidden"], state: State, masks: Masks | None
    ) -> tuple[Float[Tensor, "batch time hidden"], State]:
        """The hidden vectors after each input, and the state after the last one."""

    @torch.no_grad()
    def initialise(self, random: Random) -> None:
        """Draw every parameter from `random` alone, so that one seed gives one model, bit for bit.

        Matrices and biases are uniform in ± 1/sqrt(inputs), as in torch's own layers; a subclass overwrites
        what it wants otherwise.
        """
        for name, parameter in self.named_parameters():
            inputs = parameter.shape[-1] if parameter.dim() > 1 else self.config.units
            bound = WORD_RANGE if name in WORD_VECTORS else 1 / math.sqrt(inputs)
            parameter.copy_(random.uniform(*parameter.shape).mul_(2).sub_(1).mul_(bound))
        self.output_bias.zero_()

    @property
    def head_weight(self) -> Float[Tensor, "vocab hidden"]:
        """The output layer's weights: the word vectors themselves where they are tied."""
        return self.embedding.weight if self.config.tied else self.output_weight

    def embed(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape hidden"]:
        """The word vectors of the ids."""
        return F.embedding(ids, self.embedding.weight)

    def head(self, hidden: Float[Tensor, "*shape hidden"]) -> Float[Tensor, "*shape vocab"]:
        """The logits of the next token; any selection of hidden vectors will do."""
        return F.linear(hidden, self.head_weight, self.output_bias)

    def draw_masks(self, batch_size: int, time: int, random: Random) -> Masks | None:
        """A mask for every dropout place, on the device of `random`; None where the dropout is 0."""
        if self.config.dropout == 0.0:
            return None
        shape = (self.dropout_places, batch_size, time, self.config.units)
        return random.dropout_mask(*shape, rate=self.config.dropout).unbind()  # one draw for all places: fast

    def forward(
        self, ids: Int[Tensor, "batch time"], state: State | None = None, masks: Masks | None = None
    ) -> tuple[Float[Tensor, "batch time vocab"], State]:
        """The logits after each id and the state after the last, starting afresh where no state is given."""
        state = self.init_state(len(ids)) if state is None else state
        hidden, state = self.encode(self.embed(ids), state, masks)
        return self.head(hidden), state
