"""R recurrent models of one architecture as one batched model: parameters, forward and backward.

Everything has the run as its first axis, and rows of activations are time-major (row t * batch + b). Matrix products
over whole windows are batched ones of torch; what remains between them are the kernels in `kernels/`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nnrs.models.recurrent import LSTM, RecurrentModel
from nnrs.training.kernels import recurrence, softmax, update
from nnrs.training.kernels.rows import Dropout, add_rows, copy_rows

ALIGNMENT = 64  # numbers; tensor cores want rows and matrices that begin at multiples of 16 bytes
VOCAB_ALIGNMENT = 16


def _padded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


class Parameters:
    """The parameters of every run, a row each; the runs' own become views of it, so that they see every step.

    `rounded` is what the products read: bfloat16, or `values` themselves in float32. Gradients are as exact as that.
    `learned` is what a policy teaches beside its model; it stands last, and is not decayed.
    """

    def __init__(
        self,
        models: Sequence[RecurrentModel],
        learned: Sequence[dict[str, nn.Parameter]],
        dtype: torch.dtype,
        *,
        adaptive: bool,
    ) -> None:
        device = next(models[0].parameters()).device
        self._places: dict[str, tuple[int, tuple[int, ...]]] = {}
        count = 0
        for name, parameter in models[0].named_parameters():
            count = self._place(name, parameter.shape, count)
        self.decayed_count = count
        for name in sorted({name for extra in learned for name in extra}):
            shapes = [extra[name].shape for extra in learned if name in extra]  # k may differ between runs
            count = self._place(name, [max(sizes) for sizes in zip(*shapes, strict=True)], count)
        runs = len(models)
        self.values = torch.zeros(runs, count, device=device)
        self.rounded = self.values if dtype == torch.float32 else torch.zeros_like(self.values, dtype=dtype)
        self.gradients = torch.zeros_like(self.values, dtype=dtype)
        self.moments = (torch.zeros_like(self.values), torch.zeros_like(self.values)) if adaptive else None
        for run, (model, extra) in enumerate(zip(models, learned, strict=True)):
            for name, parameter in (*model.named_parameters(), *extra.items()):
                view = self.of_run(self.values, name, run, parameter.shape)
                view.copy_(parameter.detach())
                parameter.data = view
        if dtype != torch.float32:
            self.rounded.copy_(self.values)

    def _place(self, name: str, shape: Sequence[int], offset: int) -> int:
        self._places[name] = offset, tuple(shape)
        rows = _padded(shape[0], VOCAB_ALIGNMENT)
        return offset + _padded(rows * (shape[1] if len(shape) > 1 else 1), ALIGNMENT)

    def of(self, buffer: Tensor, name: str, *, padded: bool = False) -> Tensor:
        """One parameter of every run in one of the buffers; `padded`: with its spare rows."""
        offset, shape = self._places[name]
        rows = _padded(shape[0], VOCAB_ALIGNMENT) if padded else shape[0]
        whole = (rows, *shape[1:])
        size = rows * (shape[1] if len(shape) > 1 else 1)
        return buffer[:, offset : offset + size].view(len(buffer), *whole)

    def of_run(self, buffer: Tensor, name: str, run: int, shape: Sequence[int]) -> Tensor:
        """One parameter of one run, which may be smaller than the largest of that name."""
        whole = self.of(buffer, name)[run]
        return whole[tuple(slice(0, size) for size in shape)]


@dataclass
class Workspace:
    """The activations of a window of every run. A shorter window uses the first of its rows."""

    model: "FleetModel"
    batch: int
    time: int
    dtype: torch.dtype
    trains: bool
    inputs: Tensor = field(init=False)
    layer_inputs: list[Tensor] = field(init=False)
    gates: list[Tensor] = field(init=False)
    extra: list[Tensor] = field(init=False)
    hidden: list[Tensor] = field(init=False)
    cell: list[Tensor] = field(init=False)
    outputs: Tensor = field(init=False)
    logits: Tensor = field(init=False)
    losses: Tensor = field(init=False)
    gradient: Tensor = field(init=False)  # of the rows on their way down; where it trains
    carried_gradient: Tensor = field(init=False)  # of the state, on its way back in time; where it trains

    def __post_init__(self) -> None:
        model, rows = self.model, self.batch * self.time
        runs, layers, units, gates = model.runs, model.layers, model.units, model.gates

        def make(*shape: int, dtype: torch.dtype = self.dtype) -> Tensor:
            return torch.zeros(runs, *shape, dtype=dtype, device=model.device)

        self.inputs = make(rows, dtype=torch.int64)
        self.layer_inputs = [make(rows, units) for _ in range(layers if self.trains else 1)]
        self.gates = [make(rows, gates * units) for _ in range(layers if self.trains else 1)]
        self.extra = [make(rows, gates * units) for _ in self.gates] if model.gates == 3 else []
        after = rows + self.batch  # the state before the window stands first
        self.hidden = [make(after, units) for _ in range(layers)]
        self.cell = [make(after, units, dtype=torch.float32) for _ in range(layers)]
        self.outputs = make(after, units) if self.trains else self.hidden[-1]
        self.logits = make(rows, model.head_rows)
        self.losses = make(rows, dtype=torch.float32)
        if self.trains:
            self.gradient = make(rows, units)
            self.carried_gradient = make(self.batch, units, dtype=torch.float32)

    def carry(self, time: int) -> None:
        """Make the state after the window the state before the next."""
        last = slice(time * self.batch, (time + 1) * self.batch)
        for part in {id(part): part for part in (*self.hidden, *self.cell, self.outputs)}.values():
            part[:, : self.batch].copy_(part[:, last])

    def round_state(self) -> None:
        """Have a GRU's hidden vectors follow its state, where that was written from outside."""
        if self.model.gates == 3:
            for hidden, cell in zip(self.hidden, self.cell, strict=True):
                hidden[:, : self.batch].copy_(cell[:, : self.batch])

    def forget(self) -> None:
        """Begin a text."""
        for part in (*self.hidden, *self.cell, self.outputs):
            part[:, : self.batch].zero_()


class FleetModel:
    """What R models compute, all at once."""

    def __init__(
        self,
        models: Sequence[RecurrentModel],
        learned: Sequence[dict[str, nn.Parameter]],
        dtype: torch.dtype,
        *,
        adaptive: bool = False,
    ) -> None:
        first = models[0]
        self.parameters = Parameters(models, learned, dtype, adaptive=adaptive)
        self.runs, self.layers, self.units = len(models), first.config.layers, first.config.units
        self.vocab_size, self.tied = first.vocab_size, first.config.tied
        self.gates = 4 if isinstance(first, LSTM) else 3
        self.head_rows = _padded(first.vocab_size, VOCAB_ALIGNMENT)
        self.head_name = "embedding.weight" if self.tied else "output_weight"
        self.device, self.dtype = self.parameters.values.device, dtype

    def weight(self, weights: Tensor, name: str, layer: int) -> Tensor:
        """A layer's parameter in one of the buffers of `Parameters`."""
        return self.parameters.of(weights, f"layers.{layer}.{name}_l0")

    def head(self, weights: Tensor) -> Float[Tensor, "runs rows units"]:
        """The output layer's weights; its rows are the vocabulary's, and a few to spare."""
        return self.parameters.of(weights, self.head_name, padded=True)

    @property
    def head_bias(self) -> Float[Tensor, "runs vocab"]:
        """The output layer's bias, float32."""
        return self.parameters.of(self.parameters.values, "output_bias")

    def forward(
        self,
        space: Workspace,
        weights: Tensor,
        time: int,
        dropout: Dropout | None = None,
        mixed: Mapping[int, Callable[[Tensor], Tensor]] | None = None,
    ) -> None:
        """From `space.inputs` to `space.outputs`, whose row i precedes input i.

        `mixed` runs have input vectors of their own making: a function of their word vectors gives them, (rows,
        units). Activations are kept where the workspace trains.
        """
        batch, rows = space.batch, time * space.batch
        words = self.parameters.of(weights, "embedding.weight")
        layer_input = space.layer_inputs[0][:, :rows]
        copy_rows(layer_input, words, space.inputs[:, :rows], dropout, place=0, batch=batch, time=time)
        for run, mix in (mixed or {}).items():
            one = slice(run, run + 1)
            vectors, drop = mix(words[run]).to(space.dtype), dropout.of_runs(one) if dropout else None
            copy_rows(layer_input[one], vectors[None], None, drop, place=0, batch=batch, time=time)
        for layer in range(self.layers):
            self._run_layer(space, weights, layer, layer_input, batch, time)
            hidden = space.hidden[layer][:, batch : batch + rows]
            layer_input = hidden
            if space.trains:
                last = layer == self.layers - 1
                layer_input = (
                    space.outputs[:, batch : batch + rows]
                    if last
                    else space.layer_inputs[layer + 1][:, :rows]
                )
                copy_rows(layer_input, hidden, None, dropout, place=layer + 1, batch=batch, time=time)

    def _run_layer(
        self, space: Workspace, weights: Tensor, layer: int, layer_input: Tensor, batch: int, time: int
    ) -> None:
        own = layer if space.trains else 0
        gates, hidden = space.gates[own][:, : batch * time], space.hidden[layer]
        w_in, w_rec = (self.weight(weights, name, layer) for name in ("weight_ih", "weight_hh"))
        b_in, b_rec = (self.weight(self.parameters.values, name, layer) for name in ("bias_ih", "bias_hh"))
        torch.bmm(layer_input, w_in.transpose(1, 2), out=gates)
        keep, shape = space.trains, {"batch": batch, "time": time}
        if self.gates == 4:
            recurrence.lstm_forward(gates, hidden, space.cell[layer], w_rec, b_in, b_rec, keep=keep, **shape)
        else:
            cell, extra = space.cell[layer], space.extra[own]
            recurrence.gru_forward(gates, extra, hidden, cell, w_rec, b_in, b_rec, keep=keep, **shape)

    def score(
        self,
        space: Workspace,
        weights: Tensor,
        targets: Int[Tensor, "runs rows"],
        time: int,
        gradient_weight: float | None = None,
    ) -> None:
        """`space.losses` of the targets; with a weight, `space.logits` becomes the weighted gradient."""
        batch, rows = space.batch, time * space.batch
        logits = space.logits[:, :rows]
        torch.bmm(space.outputs[:, batch : batch + rows], self.head(weights).transpose(1, 2), out=logits)
        losses = space.losses[:, :rows]
        softmax.cross_entropy(
            logits, self.head_bias, targets[:, :rows], losses, gradient_weight=gradient_weight
        )

    def backward(
        self, space: Workspace, time: int, dropout: Dropout, plain: Int[Tensor, " runs"]
    ) -> Float[Tensor, "runs rows units"]:
        """From the gradient in `space.logits` to that of every parameter; gives back that of the input vectors.

        Only `plain` runs get the gradient of their word vectors as inputs; the others see to it themselves.
        """
        batch, rows = space.batch, time * space.batch
        weights, gradients = self.parameters.rounded, self.parameters.gradients
        dlogits, d = space.logits[:, :rows], space.gradient[:, :rows]
        torch.bmm(dlogits.transpose(1, 2), space.outputs[:, batch : batch + rows], out=self.head(gradients))
        self.parameters.of(gradients, "output_bias").copy_(dlogits.sum(1)[:, : self.vocab_size])
        torch.bmm(dlogits, self.head(weights), out=d)
        for layer in reversed(range(self.layers)):
            copy_rows(d, d, None, dropout, place=layer + 1, batch=batch, time=time)
            self._layer_backward(space, layer, d, batch, time)
        copy_rows(d, d, None, dropout, place=0, batch=batch, time=time)
        words = self.parameters.of(gradients, "embedding.weight")
        if not self.tied:
            words.zero_()
        add_rows(words, d, space.inputs[:, :rows].contiguous(), plain)
        return d

    def _layer_backward(self, space: Workspace, layer: int, d: Tensor, batch: int, time: int) -> None:
        weights, gradients, rows = self.parameters.rounded, self.parameters.gradients, batch * time
        w_rec, hidden = self.weight(weights, "weight_hh", layer), space.hidden[layer]
        dgates, carried = space.gates[layer][:, :rows], space.carried_gradient
        drecurrent = dgates
        if self.gates == 4:
            recurrence.lstm_backward(dgates, space.cell[layer], d, carried, w_rec, batch=batch, time=time)
        else:
            drecurrent = space.extra[layer][:, :rows]
            cell = space.cell[layer]
            recurrence.gru_backward(dgates, drecurrent, cell, d, carried, w_rec, batch=batch, time=time)
        layer_input = space.layer_inputs[layer][:, :rows]
        torch.bmm(dgates.transpose(1, 2), layer_input, out=self.weight(gradients, "weight_ih", layer))
        torch.bmm(
            drecurrent.transpose(1, 2), hidden[:, :rows], out=self.weight(gradients, "weight_hh", layer)
        )
        self.weight(gradients, "bias_ih", layer).copy_(dgates.sum(1))
        self.weight(gradients, "bias_hh", layer).copy_(drecurrent.sum(1))
        torch.bmm(dgates, self.weight(weights, "weight_ih", layer), out=d)

    def step(
        self,
        clips: Float[Tensor, " runs"],
        rates: Float[Tensor, " runs"],
        active: Int[Tensor, " runs"],
        steps: Int[Tensor, ""],
    ) -> None:
        """Clip each run's gradient and move its parameters, as `clip_grad_norm_` and the optimiser would."""
        held = self.parameters
        coefficients = (clips / (update.gradient_norms(held.gradients) + 1e-6)).clamp(max=1.0)
        update.optimizer_step(
            held.values,
            held.rounded,
            held.gradients,
            held.moments,
            coefficients,
            rates,
            active,
            steps,
            held.decayed_count,
        )
