"""Perplexity where the history is not what it should be: neighbors, frequent words or the model's own words in it.

Perplexity of gold histories cannot tell whether a model survives its mistakes. Here one that does loses less than
others as the noise grows.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from nnrs.batches import IGNORED, Windows
from nnrs.errors import ConfigError
from nnrs.models.base import SequenceModel
from nnrs.policies.base import Proposal
from nnrs.policies.functional import sample_tokens
from nnrs.seeding import Random, Stream

LENGTH = 35  # steps at a time: bounds the logits in memory


@torch.no_grad()
def noised_nats(
    model: SequenceModel,
    ids: Int[Tensor, " tokens"],
    *,
    eos_id: int,
    rates: Sequence[float],
    proposal: Proposal | None,
    temperature: float = 1.0,
    streams: int = 20,
    seed: int = 0,
) -> Float[Tensor, "rates tokens"]:
    """The loss of every gold token, in the order of the text, after histories of which a part was replaced.

    With a `proposal`, each replaceable input becomes one of its proposals at the rate. Without, any input becomes
    what the model itself would have said there, drawn from its softmax after the history it had. The noise is the
    same for every model, and a higher rate replaces what a lower one does and more. The first input of a stream may
    become a proposal, but no word of the model's own, which has said nothing before it.
    """
    if not all(0.0 <= rate <= 1.0 for rate in rates):
        raise ConfigError(f"noise rates must be probabilities in [0, 1], got {', '.join(map(str, rates))}.")
    device = next(model.parameters()).device
    streams = min(streams, len(ids))
    windows = Windows(ids, batch_size=streams, length=LENGTH, eos_id=eos_id, pad_remainder=True).to(device)
    # Filled in place: a small tensor kept from every window would pin the memory of that window's logits.
    nats = torch.zeros(len(rates), streams, -(-len(ids) // streams), dtype=torch.float64, device=device)
    wanted = torch.tensor(rates, device=device).view(-1, 1, 1)
    state, last, first = model.init_state(len(rates) * streams), None, 0
    for step, window in enumerate(windows):
        chosen, drawn = Random(seed, Stream.DRAWS, step, device=device).uniform(2, *window.inputs.shape)
        noisy, gold, targets = chosen < wanted, window.inputs, window.targets
        if proposal is None:
            side_by_side = _repeated(gold, rates), _repeated(targets, rates), _repeated(drawn, rates)
            losses, state, last = _on_its_own(model, *side_by_side, noisy.flatten(0, 1), state, last)
        else:
            noisy = noisy & proposal.replaceable[gold]
            inputs = torch.where(noisy, proposal.draw(gold, drawn, temperature), gold)
            hidden, state = model.encode(model.embed(inputs.flatten(0, 1)), state, None)
            # One rate after the other: the logits of all would take as many times the memory.
            losses = torch.cat([_losses(model.head(part), targets) for part in hidden.chunk(len(rates))])
        after = first + gold.shape[1]
        nats[:, :, first:after] = losses.view(len(rates), streams, -1)
        first = after
    # Rows are consecutive pieces of the text; the last is filled up.
    return nats.flatten(1)[:, : len(ids)].cpu()


def _repeated(rows: Shaped[Tensor, "batch time"], rates: Sequence[float]) -> Shaped[Tensor, "all time"]:
    """The rows once for each rate."""
    return rows.repeat(len(rates), 1)


def _losses(
    logits: Float[Tensor, "batch time vocab"], targets: Int[Tensor, "batch time"]
) -> Float[Tensor, "batch time"]:
    flat = F.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return flat.view(targets.shape)


def _on_its_own(
    model: SequenceModel,
    gold: Int[Tensor, "batch time"],
    targets: Int[Tensor, "batch time"],
    drawn: Float[Tensor, "batch time"],
    noisy: Bool[Tensor, "batch time"],
    state: tuple[Tensor, ...],
    last: Float[Tensor, "batch vocab"] | None,
) -> tuple[Float[Tensor, "batch time"], tuple[Tensor, ...], Float[Tensor, "batch vocab"]]:
    """Step by step, for what the model says depends on what it has said: losses, state and the last step's logits."""
    losses = []
    for step in range(gold.shape[1]):
        tokens = gold[:, step]
        if last is not None:
            tokens = torch.where(noisy[:, step], sample_tokens(last.float(), drawn[:, step]), tokens)
        logits, state = model(tokens.unsqueeze(1), state)
        losses.append(_losses(logits, targets[:, step : step + 1]))
        last = logits[:, 0]
    assert last is not None  # a window has a step
    return torch.cat(losses, dim=1), state, last
