"""Scheduled sampling's second pass: what the model says, without gradient, at the positions that ask for it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nnrs.errors import ConfigError
from nnrs.policies.base import Choice, take
from nnrs.policies.functional import positions_of, sample_tokens

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]  # torch.compile, its options given

NUMBERS_AT_ONCE = 1 << 25  # logits held in float32 while they are sampled: 128 MB
LOSS_ARGUMENTS = {"labels", "num_items_in_batch", "shift_labels", "logits_to_keep"}


class SecondPass:
    """A model's own predictions, from its forward with the output `layer` at a few positions.

    The output layer runs uncompiled, for the number of positions changes with every batch. All below it, where the
    model names that part (Hugging Face's `base_model`), goes through the `compiler` of the training forward, if any.
    """

    def __init__(
        self, model: nn.Module, layer: nn.Module, predict: str, find_compiler: Callable[[], Compiler | None]
    ) -> None:
        self.model, self.layer, self.predict, self.find_compiler = model, layer, predict, find_compiler

    @torch.no_grad()
    def predictions(self, named: Mapping[str, Any], name: str, choice: Choice) -> Int[Tensor, "batch time"]:
        """x: ŷ where the choice takes a prediction, neighbors and gold elsewhere.

        The model's own forward runs on the argument `name` with neighbors in place (one parallel pass). Its output
        layer is handed the hidden vectors before the chosen positions and no others, and whatever the model does to
        its logits afterwards (caps, scales) is done to these. Random numbers of torch are put back: the training pass
        draws the dropout masks it would have drawn alone, and in eager mode this pass has had the same.
        """
        inputs = choice.inputs(choice.gold)
        positions = positions_of(choice.takes_prediction, choice.prediction_capacity)
        arguments = {key: value for key, value in named.items() if key not in LOSS_ARGUMENTS} | {name: inputs}
        if getattr(getattr(self.model, "config", None), "use_cache", None) is not None:
            arguments["use_cache"] = False
        cuda = [inputs.device] if inputs.is_cuda else []
        with (
            torch.random.fork_rng(devices=cuda),
            _with_forward(*self._compiled) if self._compiled else nullcontext(),
            _only_rows(self.layer, positions - 1, inputs.shape[1]) as seen,
        ):
            outputs = self.model.forward(**arguments)
        torch.clear_autocast_cache()  # casts of weights made without gradient serve again before pytorch#165068
        if not seen:
            raise ConfigError(
                f"the output layer {type(self.layer).__name__} was not used in the model's forward. "
                "Pass output_layer=, the module that turns hidden vectors into logits."
            )
        tokens = _tokens(_logits(outputs), take(choice.prediction_uniform, positions), self.predict)
        flat = F.pad(inputs.flatten(), (0, 1))  # the extra place takes what pads `positions`
        return flat.index_copy(0, positions, tokens)[:-1].view_as(inputs)

    @cached_property
    def _compiled(self) -> tuple[nn.Module, Callable[..., Any]] | None:
        """The backbone and its forward compiled, if the training forward is; made once, when it is first asked for.

        An error of the compiler's is left to be seen: the training forward holds this part and is compiled, too.
        """
        compiler, part = self.find_compiler(), _backbone(self.model, self.layer)
        if compiler is None or part is None:
            return None
        forward = part.forward
        # Code of our own around it: the compiler would undo a `disable`.
        return part, compiler(lambda *args, **kwargs: forward(*args, **kwargs))


@contextmanager
def _with_forward(part: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Let a module have another forward, then what it had: its class's, or one that was set on it."""
    before = vars(part).get("forward")
    part.forward = forward
    try:
        yield
    finally:
        if before is None:
            del part.forward
        else:
            part.forward = before


def _backbone(model: nn.Module, layer: nn.Module) -> nn.Module | None:
    """All of the model below its output layer, where it says what that is; an adapter (LoRA's) holds such a model."""
    part = getattr(model, "base_model", None)
    if part is model or not isinstance(part, nn.Module):
        return None
    return _backbone(part, layer) if any(each is layer for each in part.modules()) else part


@contextmanager
def _only_rows(layer: nn.Module, rows: Int[Tensor, " n"], time: int) -> Iterator[list[bool]]:
    """Let the layer see some of the flat rows of hidden vectors only; says whether it was asked."""
    seen: list[bool] = []

    def select(layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        seen.append(True)
        hidden = args[0][:, -time:].flatten(0, 1)  # a learned prompt may stand before the tokens
        return hidden[rows.clamp(max=len(hidden) - 1)][None], *args[1:]

    handle = layer.register_forward_pre_hook(select)
    try:
        yield seen
    finally:
        handle.remove()


def _tokens(
    logits: Float[Tensor, "n vocab"], uniform: Float[Tensor, " n"], predict: str
) -> Int[Tensor, " n"]:
    """A token for each row; float32 copies are made of a few rows at a time."""
    if predict == "greedy":
        return logits.argmax(dim=-1)
    rows = max(1, NUMBERS_AT_ONCE // logits.shape[-1])
    chunks = zip(logits.split(rows), uniform.split(rows), strict=True)
    return torch.cat([sample_tokens(chunk.float(), draws) for chunk, draws in chunks])


def _logits(outputs: Any) -> Tensor:
    """The logits of a Hugging Face output, a tuple that begins with them, or themselves."""
    logits = getattr(outputs, "logits", outputs)
    logits = logits[0] if isinstance(logits, tuple) else logits
    return torch.flatten(logits, 0, -2)
