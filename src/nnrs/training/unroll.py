"""One window through the model: one pass where no prediction is wanted, else parallel or exact passes."""

from collections.abc import Callable
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

    def each(self, change: Callable[[Tensor], Tensor]) -> "Carry":
        """The same with every tensor changed."""
        hidden = None if self.hidden is None else change(self.hidden)
        return Carry(tuple(change(part) for part in self.state), hidden)

    def of_rows(self, rows: Int[Tensor, " rows"] | slice) -> "Carry":
        """What some of the rows hand on."""
        return self.each(lambda part: part[rows])

    def detached(self) -> "Carry":
        """The same, cut off from the graph (truncated backpropagation)."""
        return self.each(lambda part: part.detach())


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
    so that takes at most one pass per time step and ends where feeding one prediction at a time would. More than
    that are not made when they are asked for.
    """
    if not predicts:
        return _encode(model, policy, choice, choice.inputs(choice.gold), carry, masks, 1)
    if carry.hidden is None:
        choice = choice.with_gold_start()
    if exact:
        inputs, passes = _settled_inputs(model, policy, choice, carry, masks)
    else:
        passes = min(passes, choice.gold.shape[1])
        inputs = _inputs_after(passes, model, policy, choice, carry, masks)
    torch.clear_autocast_cache()  # casts of weights made without gradient serve again before pytorch#165068
    return _encode(model, policy, choice, inputs, carry, masks, passes + 1)


@torch.no_grad()
def _inputs_after(
    passes: int,
    model: SequenceModel,
    policy: InputPolicy,
    choice: Choice,
    carry: Carry,
    masks: Masks | None,
) -> Int[Tensor, "batch time"]:
    """The inputs after so many passes, each predicting from those of the one before."""
    inputs = choice.inputs(choice.gold)
    positions = positions_of(choice.takes_prediction, choice.prediction_capacity)
    for _ in range(passes):
        hidden = _encode(model, policy, choice, inputs, carry, masks, 1).hidden
        inputs = choice.inputs(_predict(model, policy, choice, carry, hidden, positions, inputs))
    return inputs


@torch.no_grad()
def _settled_inputs(
    model: SequenceModel, policy: InputPolicy, choice: Choice, carry: Carry, masks: Masks | None
) -> tuple[Int[Tensor, "batch time"], int]:
    """The inputs that no further pass would change, and the number of passes it took.

    Rows do not hear of each other, so a row that has settled is left out of the next pass; and within a row nothing
    up to its first changed input is predicted again. Most passes are therefore small ones.
    """
    inputs = choice.inputs(choice.gold)
    rows = torch.arange(len(inputs), device=inputs.device)
    changed_from = torch.full_like(rows, -1)  # everything is still to be predicted
    time = torch.arange(inputs.shape[1], device=inputs.device)
    done = 0
    while len(rows):  # on a GPU this waits: the price of exactness
        part, part_carry = choice.of_rows(rows), carry.of_rows(rows)
        part_masks = None if masks is None else tuple(mask[rows] for mask in masks)
        before = inputs[rows]
        hidden = _encode(model, policy, part, before, part_carry, part_masks, 1).hidden
        stale = part.takes_prediction & (time > changed_from[:, None])
        after = part.inputs(_predict(model, policy, part, part_carry, hidden, positions_of(stale), before))
        inputs[rows] = after
        changed = after != before
        moved = changed.any(dim=1)
        rows, changed_from = rows[moved], changed[moved].int().argmax(dim=1)
        done += 1
    return inputs, done


def window_loss(
    model: SequenceModel, hidden: Float[Tensor, "batch time hidden"], targets: Int[Tensor, "batch time"]
) -> Float[Tensor, ""]:
    """The mean negative log-likelihood of the targets, in nats per token (Eq. 1, with its sign turned)."""
    return F.cross_entropy(model.head(hidden).flatten(0, 1).float(), targets.flatten())


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
    inputs: Int[Tensor, "batch time"],
) -> Int[Tensor, "batch time"]:
    """`inputs` with ŷ at `positions`, from the hidden vector before each; the output layer sees no other position."""
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
    flat = F.pad(inputs.flatten(), (0, 1))  # the extra place takes what pads `positions`
    return flat.index_copy(0, positions, tokens)[:-1].view_as(inputs)
