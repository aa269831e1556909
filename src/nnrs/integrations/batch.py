"""What a training forward is about to embed, and which of its tokens may change: tensors in, tensors out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor, nn

from nnrs.batches import IGNORED
from nnrs.errors import ConfigError, DataError


@dataclass(frozen=True, eq=False)
class Batch:
    """Token ids on their way to the embedding layer."""

    name: str  # of the argument that carries them
    ids: Int[Tensor, "batch time"]
    may_change: Bool[Tensor, "batch time"]


def read_batch(model: nn.Module, named: Mapping[str, Any], document_ends: tuple[int, ...] = ()) -> Batch:
    """The ids that a forward with these arguments embeds next to its labels: the decoder's, where there is one."""
    if is_encoder_decoder(model):
        return _decoder_batch(model, named, document_ends)
    ids, labels = _ids(named, "input_ids"), named["labels"]
    _check_shapes("input_ids", ids, labels)
    may_change = changeable(
        ids, labels, named.get("attention_mask"), named.get("position_ids"), document_ends=document_ends
    )
    return Batch("input_ids", ids, may_change)


def read_ids(
    named: Mapping[str, Any], name: str, *, batch_first: bool = True, document_ends: tuple[int, ...] = ()
) -> Batch:
    """The ids of a forward whose labels tell nothing: each that follows another may change.

    A mask and positions say where one does not, as beside labels, and lie as the ids do.
    """
    ids = named[name]
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point():
        got = f"{ids.dtype} {tuple(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
        order = "(batch, time)" if batch_first else "(time, batch)"
        raise DataError(
            f"{name} must be token ids {order}, got {got}. inputs= names the argument that holds them."
        )
    side = "decoder_" if name.startswith("decoder_") else ""
    mask, positions = (named.get(f"{side}{told}") for told in ("attention_mask", "position_ids"))
    if not batch_first:
        shape = ids.shape
        ids, mask, positions = (
            each.t() if isinstance(each, Tensor) and each.shape == shape else each
            for each in (ids, mask, positions)
        )
    counts = ids.new_zeros(ids.shape)
    return Batch(name, ids, changeable(ids, counts, mask, positions, document_ends=document_ends))


def is_encoder_decoder(model: nn.Module) -> bool:
    """Whether a model says of itself that it encodes one text and decodes another."""
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def _decoder_batch(model: Any, named: Mapping[str, Any], document_ends: tuple[int, ...]) -> Batch:
    """The decoder's inputs, made from the labels as the model would; an input's own label is the one before."""
    labels = named["labels"]
    if labels.ndim != 2:
        raise DataError(
            f"labels {tuple(labels.shape)} must be (batch, time), one for each word of the decoder: "
            "a curriculum is for models that write text."
        )
    given = {name: named[name] for name in ("decoder_input_ids", "decoder_inputs_embeds") if name in named}
    if all(value is None for value in given.values()):
        shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
        given = {"decoder_input_ids": shift(labels) if shift else _shifted(model, labels)}
    ids = _ids(given, "decoder_input_ids")
    _check_shapes("decoder_input_ids", ids, labels)
    own_labels = F.pad(labels, (1, 0), value=IGNORED)[:, :-1]
    mask = named.get("decoder_attention_mask")
    return Batch(
        "decoder_input_ids", ids, changeable(ids, own_labels, mask, None, document_ends=document_ends)
    )


def _shifted(model: Any, labels: Int[Tensor, "batch time"]) -> Int[Tensor, "batch time"]:
    """What models that shift within their forward alone (M2M-100, Blenderbot, Whisper) read beside these labels."""
    start, pad = (getattr(model.config, name, None) for name in ("decoder_start_token_id", "pad_token_id"))
    if start is None or pad is None:
        raise ConfigError(
            f"{type(model).__name__} does not say how its decoder's inputs are made from labels: its config lacks "
            "decoder_start_token_id or pad_token_id. Set both, or pass decoder_input_ids to the model."
        )
    ids = F.pad(labels, (1, 0), value=start)[:, :-1]
    return ids.masked_fill(ids == IGNORED, pad)


def changeable(
    ids: Int[Tensor, "batch time"],
    own_labels: Int[Tensor, "batch time"],
    attention_mask: Any = None,
    position_ids: Any = None,
    *,
    document_ends: tuple[int, ...] = (),
) -> Bool[Tensor, "batch time"]:
    """Which inputs may be replaced: those whose own label counts, and that follow something.

    So prompts (label -100) and padding stay, and the first token of every row and of every packed document: where
    `position_ids` are 0, where a mask that numbers the documents goes on to the next, or after one of the
    `document_ends`. Positions may be one row for the whole batch. Masks and positions of any other shape than the
    ids' (a model's own, of more dimensions, say) tell nothing here.

    >>> import torch
    >>> ids, labels = torch.tensor([[7, 5, 6, 8]]), torch.tensor([[7, -100, 6, 8]])
    >>> changeable(ids, labels)
    tensor([[False, False,  True,  True]])
    >>> changeable(ids, labels, position_ids=torch.tensor([[0, 1, 0, 1]]))
    tensor([[False, False, False,  True]])
    """
    may_change = own_labels != IGNORED
    may_change[:, :1] = False
    if isinstance(attention_mask, Tensor) and attention_mask.shape == ids.shape:
        _check_mask(attention_mask)
        may_change &= attention_mask != 0
        may_change[:, 1:] &= attention_mask[:, :-1] == attention_mask[:, 1:]
    if isinstance(position_ids, Tensor) and position_ids.shape in (
        ids.shape,
        (1, *ids.shape[1:]),
        ids.shape[1:],
    ):
        may_change &= position_ids != 0
    for end in document_ends:  # few, and no tensor of them to be sent to the device at every step
        may_change[:, 1:] &= ids[:, :-1] != end
    return may_change


def _check_mask(mask: Tensor) -> None:
    """Refuse a mask that is 0 where a token counts: no input would ever be replaced.

    Values of floats are waited for; the usual masks hold whole numbers.
    """
    if mask.is_floating_point() and (mask < 0).any():
        raise ConfigError(
            "the attention mask has numbers below 0, as one that is added to scores: no input would be replaced. "
            "Give the model one with 1 where a token counts and 0 for padding."
        )


def _ids(named: Mapping[str, Any], name: str) -> Tensor:
    ids = named.get(name)
    if not isinstance(ids, Tensor):
        raise DataError(
            f"the curriculum replaces token ids, but the model was called without {name}. "
            "Pass ids by that name, not vectors (inputs_embeds)."
        )
    return ids


def _check_shapes(name: str, ids: Tensor, labels: Tensor) -> None:
    if ids.shape != labels.shape or ids.ndim != 2:
        raise DataError(
            f"{name} {tuple(ids.shape)} and labels {tuple(labels.shape)} must both be (batch, time). "
            "Give one label for each input; -100 where none counts."
        )
