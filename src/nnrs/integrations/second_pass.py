"""Scheduled sampling's second pass: what the model says, without gradient, at the positions that ask for it."""

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nnrs.errors import ConfigError, DataError
from nnrs.integrations.logits import all_logits, has_rows, logits_in, logits_of_rows
from nnrs.integrations.module import (
    SAY_WHAT_IT_EMBEDS,
    Compiler,
    embedded_ids,
    embedding_sizes,
    output_layer,
    read_in_order,
    takes_any,
    tells_order,
)
from nnrs.integrations.settings import Settings
from nnrs.integrations.undone import undone
from nnrs.neighbors.arguments import may_be_padded
from nnrs.policies.base import Choice, take
from nnrs.policies.functional import positions_of, sample_tokens
from nnrs.wording import counted

LOGITS_AT_ONCE = 1 << 27  # that the output layer makes: 256 MB in bfloat16
COPIED_AT_ONCE = 1 << 25  # of them in float32, while they are sampled: 128 MB
CACHES = ("past_key_values", "cache_params")
PLACEHOLDER = re.compile("(image|video|audio|vision).*_token_(id|index)")
# With `fused_lm_head` TRL's forward gives back log-probabilities of the labels and makes no logits.
LOSS_ARGUMENTS = {"labels", "num_items_in_batch", "shift_labels", "logits_to_keep", "fused_lm_head"}


class SecondPass:
    """A model's own predictions, from its forward with the output `layer` at a few positions, a piece at a time.

    The output layer runs uncompiled, for the number of positions changes with every batch. All below it, where the
    model names that part (Hugging Face's `base_model`), runs once, and goes through the `compiler` of the training
    forward, if any. A model that does not name it makes all its predictions in one piece, uncompiled. One without a
    known output layer is called as in training, and all its logits are made.
    """

    def __init__(
        self, model: nn.Module, settings: Settings, find_compiler: Callable[[], Compiler | None]
    ) -> None:
        self.model, self.find_compiler = model, find_compiler
        self.predict, self.batch_first = settings.predict, settings.batch_first
        self.layer = layer = output_layer(model, settings.output_layer)
        # Beside ids alone stands whatever a loss is made of, which wants the logits of all words.
        self.may_fail_behind_layer = settings.inputs is not None and settings.output_layer is not None
        self.backbone = None if layer is None else _backbone(model, layer)
        self.vocab_size = embedded_ids(model)
        self._width = 0  # of the logits, where the model does not say what it embeds
        self._order_seen = False
        # Ids that stand for an image or a sound: as many of them are read as there are features, never one more.
        self._placeholders = _placeholders(getattr(model, "config", None))
        parameters = inspect.signature(model.forward).parameters
        required = [name for name, each in parameters.items() if each.default is each.empty]
        self._absent = dict.fromkeys(() if layer is None else LOSS_ARGUMENTS.intersection(required))
        self._nameless = [
            name
            for name, each in parameters.items()
            if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL)
        ]
        caches = getattr(getattr(model, "config", None), "use_cache", None) is not None
        self._may_cache = caches and ("use_cache" in parameters or takes_any(parameters))

    @torch.no_grad()
    def predictions(self, named: Mapping[str, Any], name: str, choice: Choice) -> Int[Tensor, "batch time"]:
        """x: ŷ where the choice takes a prediction, neighbors and gold elsewhere.

        The model's own forward runs on the argument `name` with neighbors in place (one parallel pass). Its output
        layer is handed the hidden vectors before the chosen positions and no others, and whatever the model does to
        its logits afterwards (caps, scales) is done to these. Random numbers of torch are put back: the training pass
        draws the dropout masks it would have drawn alone, and in eager mode this pass has had the same. What is
        written into buffers or noted in attributes is put back, too: a BatchNorm counts a batch once, and a hidden
        state that a model keeps is that of the window before.
        """
        inputs = choice.inputs(choice.gold)
        positions = positions_of(choice.takes_prediction, choice.prediction_capacity)
        uniform = take(choice.prediction_uniform, positions)
        if filled := [cache for cache in CACHES if named.get(cache) is not None]:
            raise DataError(
                f"the model was called with {filled[0]}, which the pass that makes predictions would fill. "
                "Leave the cache out of training."
            )
        if nameless := [key for key in self._nameless if key in named]:
            raise ConfigError(
                f"{type(self.model).__name__}.forward takes {nameless[0]} without its name, and the pass that makes "
                "predictions calls it by names. Let it have an ordinary argument."
            )
        for_loss = () if self.layer is None else LOSS_ARGUMENTS
        arguments = {key: value for key, value in named.items() if key not in for_loss}
        arguments |= {**self._absent, name: inputs if self.batch_first else inputs.t().contiguous()}
        if self._may_cache:
            arguments["use_cache"] = False
        size = self._piece() or max(1, len(positions))
        cuda = [inputs.device] if inputs.is_cuda else []
        remembered = Remembered(inputs.device) if len(positions) > size else None
        with (
            torch.random.fork_rng(devices=cuda),
            undone(self.model),
            self._backbone_once(remembered),
            self._order_looked_at(inputs.shape),
        ):
            tokens = [
                self._tokens(arguments, rows - 1, inputs.shape, drawn, remembered)
                for rows, drawn in zip(positions.split(size), uniform.split(size), strict=True)
            ]
        torch.clear_autocast_cache()  # casts of weights made without gradient serve again before pytorch#165068
        flat = F.pad(inputs.flatten(), (0, 1))  # the extra place takes what pads `positions`
        return flat.index_copy(0, positions, torch.cat(tokens))[:-1].view_as(inputs)

    def _piece(self) -> int | None:
        """How many positions the output layer is given at once; None for all of them.

        Pieces follow from the batch's shape, which differs between processes: weights that these hold in shares
        (FSDP) would be asked for more often in one than in another, and both would wait for ever.
        """
        width = getattr(self.layer, "out_features", None)
        shared = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        return None if self.backbone is None or width is None or shared else max(1, LOGITS_AT_ONCE // width)

    def _tokens(
        self,
        arguments: Mapping[str, Any],
        rows: Int[Tensor, " n"],
        shape: torch.Size,
        uniform: Float[Tensor, " n"],
        remembered: "Remembered | None",
    ) -> Int[Tensor, " n"]:
        """What the model says after some of the flat rows of inputs of this shape."""
        batch, time = shape
        rows = rows if self.batch_first else rows % time * batch + rows // time  # as the model counts them
        given = (batch, time) if self.batch_first else (time, batch)
        if self.layer is None:
            return self._said(all_logits(self.model.forward(**arguments), given)[rows], uniform)
        if remembered:
            remembered.rewind()
        with _only_rows(self.layer, rows, given) as seen:
            outputs = self._outputs(arguments, len(rows))
        if not seen:
            raise ConfigError(
                f"the output layer {type(self.layer).__name__} was not used in the model's forward. "
                "Pass output_layer=, the module that turns hidden vectors into logits."
            )
        return self._said(logits_of_rows(outputs, len(rows)), uniform)

    def _outputs(self, arguments: Mapping[str, Any], rows: int) -> Any:
        """What the forward gives back; or what the layer gave, where it fails behind that or gives no such logits.

        What the model does to its logits behind the layer (caps, scales) is then lost.
        """
        if self.layer is None or not self.may_fail_behind_layer:
            return self.model.forward(**arguments)
        made: list[Any] = []
        handle = self.layer.register_forward_hook(lambda layer, args, outputs: made.append(outputs))
        try:
            outputs = self.model.forward(**arguments)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, IndexError):
            if not made:
                raise
            return made[-1]
        finally:
            handle.remove()
        return outputs if has_rows(logits_in(outputs), rows) or not made else made[-1]

    @contextmanager
    def _order_looked_at(self, shape: torch.Size) -> Iterator[None]:
        """Refuse ids that lie otherwise than the model reads them, once these tell batch and time apart."""
        if self._order_seen:
            yield
            return
        advice = "give inputs= and batch_first=False" if self.batch_first else "leave batch_first=False out"
        with read_in_order(self.model, shape, f"If the model is right, {advice}."):
            yield
        self._order_seen = tells_order(shape)

    def _look_at_width(self, width: int) -> None:
        """Warn where what is taken for logits is as wide as nothing that the model embeds."""
        if self.vocab_size is not None or width == self._width:
            return  # said by the model, or looked at
        self._width = width
        sizes = embedding_sizes(self.model)
        if not sizes or any(may_be_padded(width, rows) for rows in sizes):
            return
        advice = "Of hidden vectors, have it give logits; of logits, pass output_layer=, the module that makes them."
        if may_be_padded(max(sizes), width):
            advice = f"A word beyond these would end the training. {SAY_WHAT_IT_EMBEDS}"
        elif self.layer is not None:
            advice = (
                f"Of hidden vectors, pass as output_layer= what makes logits of them. {SAY_WHAT_IT_EMBEDS}"
            )
        warnings.warn(
            f"the model's output is taken for the logits of {counted(width, 'word')}, and what it embeds are "
            f"{' and '.join(f'{rows:,}' for rows in sizes)} ids. {advice}",
            stacklevel=2,
        )

    def _said(self, logits: Float[Tensor, "n vocab"], uniform: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
        """A token for each row, one that may be read as an input."""
        self._look_at_width(logits.shape[1])
        logits = logits[:, : self.vocab_size]
        if placeholders := [number for number in self._placeholders if number < logits.shape[1]]:
            logits = logits.clone()
            logits[:, placeholders] = -torch.inf
        return _chosen(logits, uniform, self.predict)

    @contextmanager
    def _backbone_once(self, remembered: "Remembered | None") -> Iterator[None]:
        """Have the backbone run compiled, if the training forward is, and only for the first of several pieces."""
        forward = self._compiled
        if self.backbone is None or (forward is None and remembered is None):
            yield
            return
        forward = forward or self.backbone.forward
        with _with_forward(self.backbone, remembered.calls_of(forward) if remembered else forward):
            yield

    @cached_property
    def _compiled(self) -> Callable[..., Any] | None:
        """The backbone's forward compiled, if the training forward is; made once, when it is first asked for.

        An error of the compiler's is left to be seen: the training forward holds this part and is compiled, too.
        """
        compiler = self.find_compiler()
        if compiler is None or self.backbone is None:
            return None
        forward = self.backbone.forward
        # Code of our own around it: the compiler would undo a `disable`.
        return compiler(lambda *args, **kwargs: forward(*args, **kwargs))


class Remembered:
    """What a function gave back, call by call, and where torch's random numbers stood then: for another round."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        self._given: list[tuple[Any, list[Tensor]]] = []
        self._place = 0

    def rewind(self) -> None:
        """Begin a round."""
        self._place = 0

    def calls_of(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which computes in the first round alone."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._place == len(self._given):
                self._given.append((forward(*args, **kwargs), self._generators()))
            output, generators = self._given[self._place]
            self._place += 1
            torch.set_rng_state(generators[0])
            if self._cuda:
                torch.cuda.set_rng_state(generators[1], self._cuda)
            return output

        return call

    def _generators(self) -> list[Tensor]:
        cuda = [torch.cuda.get_rng_state(self._cuda)] if self._cuda else []
        return [torch.get_rng_state(), *cuda]


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
def _only_rows(layer: nn.Module, rows: Int[Tensor, " n"], shape: tuple[int, int]) -> Iterator[list[bool]]:
    """Let the layer see some of the flat rows of hidden vectors only; says whether it was asked."""
    seen: list[bool] = []
    batch, time = shape

    def select(layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        seen.append(True)
        given = tuple(args[0].shape)
        if len(given) != 3 or given[0] != batch or given[1] < time:
            raise ConfigError(
                f"the output layer {type(layer).__name__} was given hidden vectors {given}, and the model's inputs "
                f"are {(batch, time)}. Predictions need the model's forward to hand it ({batch}, {time}, units), "
                "without labels too."
            )
        hidden = args[0][:, -time:].flatten(0, 1)  # a learned prompt may stand before the tokens
        return hidden[rows.clamp(max=len(hidden) - 1)][None], *args[1:]

    handle = layer.register_forward_pre_hook(select)
    try:
        yield seen
    finally:
        handle.remove()


def _chosen(
    logits: Float[Tensor, "n vocab"], uniform: Float[Tensor, " n"], predict: str
) -> Int[Tensor, " n"]:
    """A token for each row; float32 copies are made of a few rows at a time."""
    if predict == "greedy":
        return logits.argmax(dim=-1)
    rows = max(1, COPIED_AT_ONCE // logits.shape[-1])
    chunks = zip(logits.split(rows), uniform.split(rows), strict=True)
    return torch.cat([sample_tokens(chunk.float(), draws) for chunk, draws in chunks])


def _placeholders(config: Any) -> list[int]:
    """The ids that a configuration, or one within it, names as an image's, a video's or a sound's."""
    found: set[int] = set()
    for name, value in vars(config).items() if hasattr(config, "__dict__") else ():
        if isinstance(value, int) and value >= 0 and PLACEHOLDER.fullmatch(name):
            found.add(value)
        elif name.endswith("_config"):
            found.update(_placeholders(value))
    return sorted(found)
