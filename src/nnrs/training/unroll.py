"""One window through the model: one pass where no prediction is wanted, else parallel or exact passes."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nnrs.models.base import Masks, SequenceModel, State
from nnrs.policies.base import Choice, InputPolicy, take
from nnrs.policies.functional import positions_of, sample_tokens


@dataclass(frozen=True)
class Carry:
    """What a window hands to the next: the state the model really had, and its last hidden vectors.

    The first input of a window may be a prediction too; it is read off `hidden`. At the start of the text there is
    none, and the first input is gold.
    """

    state: State
    hidden: Float[Tensor, "batch hidden"] | None = None

    def detached(self) -> "Carry":
        """The same, cut off from the graph (truncated backpropagation)."""
        hidden = None if self.hidden is None else self.hidden.detach()
        return Carry(tuple(part.detach() for part in self.state), hidden)


@dataclass(frozen=True)
class Unrolled:
    """One window's hidden vectors, with their graph, and what led to them."""

    hidden: Float[Tensor, "batch time hidden"]
    inputs: Int[Tensor, "batch time"]
    choice: Choice  # as carried out
    carry: Carry
    passes: int  # through the model, the one with the gradient included


def unroll(
    model: SequenceModel,
    policy: InputPolicy,
    choice: Choice,
    carry: Carry,
    masks: Masks | None,
    *,
    predicts: bool,
    exact: bool = False,
    passes: int = 1,
) -> Unrolled:
    """Encode a window whose inputs `choice` has settled, predicting where it says so.

    Not `exact`: `passes` passes without gradient, each predicting from the inputs of the one before, then the pass
    that is trained on. `exact`: passes until the inputs stop changing. Position t is right once all before it are,
    so that takes at most one pass per time step and ends where feeding one prediction at a time would; the last
    pass changed nothing and is the one that is trained on.
    """
    if not predicts:
        return _encode(model, policy, choice, choice.inputs(choice.gold), carry, masks, 1)
    choice, positions = _predicted_positions(choice, carry)
    inputs = choice.inputs(choice.gold)
    if not exact:
        with torch.no_grad():
            for _ in range(passes):
                hidden = _encode(model, policy, choice, inputs, carry, masks, 1).hidden
                inputs = choice.inputs(_predict(model, policy, choice, carry, hidden, positions))
        return _encode(model, policy, choice, inputs, carry, masks, passes + 1)
    for done in range(1, inputs.shape[1] + 2):
        unrolled = _encode(model, policy, choice, inputs, carry, masks, done)
        predictions = _predict(model, policy, choice, carry, unrolled.hidden.detach(), positions)
        inputs, before = choice.inputs(predictions), inputs
        if torch.equal(inputs, before):  # on a GPU this waits: the price of exactness
            break
    return unrolled


def window_loss(
    model: SequenceModel, hidden: Float[Tensor, "batch time hidden"], targets: Int[Tensor, "batch time"]
) -> Float[Tensor, ""]:
    """The mean negative log-likelihood of the targets, in nats per token (Eq. 1, with its sign turned)."""
    return F.cross_entropy(model.head(hidden).flatten(0, 1).float(), targets.flatten())


def _predicted_positions(choice: Choice, carry: Carry) -> tuple[Choice, Int[Tensor, " n"]]:
    """The flat positions whose input is a prediction, without the first column where nothing precedes it."""
    if carry.hidden is None:
        choice = choice.with_gold_start()
    return choice, positions_of(choice.takes_prediction, choice.prediction_capacity)


def _encode(
    model: SequenceModel,
    policy: InputPolicy,
    choice: Choice,
    inputs: Int[Tensor, "batch time"],
    carry: Carry,
    masks: Masks | None,
    passes: int,
) -> Unrolled:
    vectors = policy.vectors(model.embed, inputs, choice)
    hidden, state = model.encode(vectors, carry.state, masks)
    return Unrolled(hidden, inputs, choice, Carry(state, hidden[:, -1]), passes)


@torch.no_grad()
def _predict(
    model: SequenceModel,
    policy: InputPolicy,
    choice: Choice,
    carry: Carry,
    hidden: Float[Tensor, "batch time hidden"],
    positions: Int[Tensor, " n"],
) -> Int[Tensor, "batch time"]:
    """ŷ at `positions`, from the hidden vector before each; the output layer sees no other position."""
    first = (
        hidden.new_zeros(hidden.shape[0], 1, hidden.shape[2])
        if carry.hidden is None
        else carry.hidden[:, None]
    )
    before = torch.cat([first, hidden[:, :-1]], dim=1).flatten(0, 1)
    logits = model.head(before[positions.clamp(max=len(before) - 1)]).float()
    if policy.reading.predict == "greedy":
        tokens = logits.argmax(dim=-1)
    else:
        tokens = sample_tokens(logits, take(choice.prediction_uniform, positions))
    flat = F.pad(choice.gold.flatten(), (0, 1))  # the extra place takes what pads `positions`
    return flat.index_copy(0, positions, tokens)[:-1].view_as(choice.gold)
