"""R recurrent models of one architecture as one batched model: forward and backward.

Everything has the run as its first axis, and rows of activations are time-major (row t * batch + b). Matrix products
over whole windows are batched ones of torch; what remains between them are the kernels in `kernels/`.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nnrs.models import SequenceModel
from nnrs.training.fleet_cells import CELLS
from nnrs.training.fleet_parameters import VOCAB_ALIGNMENT, Parameters, padded
from nnrs.training.fleet_space import Sizes, Workspace
from nnrs.training.kernels import softmax, update
from nnrs.training.kernels.rows import Dropout, add_rows, copy_rows


class FleetModel:
    """What R models compute, all at once."""

    def __init__(
        self,
        models: Sequence[SequenceModel],
        learned: Sequence[dict[str, nn.Parameter]],
        dtype: torch.dtype,
        *,
        adaptive: bool = False,
    ) -> None:
        first = models[0]
        self.parameters = Parameters(models, learned, dtype, adaptive=adaptive)
        self.vocab_size, self.tied, self.dtype = first.vocab_size, first.config.tied, dtype
        self.head_name = "embedding.weight" if self.tied else "output_weight"
        self.cell = CELLS[first.config.kind](self.parameters)
        self.sizes = Sizes(
            runs=len(models),
            units=first.config.units,
            layers=first.dropout_places - 1,  # dropout acts on the word vectors and after each layer
            states=first.config.layers,
            gates=self.cell.gates,
            apart=self.cell.apart,
            head_rows=padded(first.vocab_size, VOCAB_ALIGNMENT),
            device=self.parameters.values.device,
        )

    def head(self, weights: Tensor) -> Float[Tensor, "runs rows units"]:
        """The output layer's weights; its rows are the vocabulary's, and a few to spare."""
        return self.parameters.of(weights, self.head_name, spare=True)

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
        for layer in range(self.sizes.layers):
            states = self.cell.forward(space, weights, layer, layer_input, time)
            hidden = states[:, batch : batch + rows]
            layer_input = hidden
            if space.trains:
                last = layer == self.sizes.layers - 1
                layer_input = (
                    space.outputs[:, batch : batch + rows]
                    if last
                    else space.layer_inputs[layer + 1][:, :rows]
                )
                copy_rows(layer_input, hidden, None, dropout, place=layer + 1, batch=batch, time=time)

    def drop_weights(self, space: Workspace, dropout: Dropout) -> None:
        """Make the recurrent weights that the coming passes use of those that are learned."""
        for state, dropped in enumerate(space.recurrent):
            learned = self.cell.recurrent(self.parameters.rounded, state)
            copy_rows(dropped, learned, None, dropout, place=state, time=learned.shape[1])

    def drop_gradients(self, space: Workspace, dropout: Dropout) -> None:
        """From the gradients of the weights that were used to those of the learned ones."""
        for state in range(len(space.recurrent)):
            gradient = self.cell.recurrent(self.parameters.gradients, state)
            copy_rows(gradient, gradient, None, dropout, place=state, time=gradient.shape[1])

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
        for layer in reversed(range(self.sizes.layers)):
            copy_rows(d, d, None, dropout, place=layer + 1, batch=batch, time=time)
            self.cell.backward(space, layer, d, time)
        copy_rows(d, d, None, dropout, place=0, batch=batch, time=time)
        words = self.parameters.of(gradients, "embedding.weight")
        if not self.tied:
            words.zero_()
        add_rows(words, d, space.inputs[:, :rows].contiguous(), plain)
        return d

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
