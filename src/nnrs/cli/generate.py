"""`nnrs generate`: a trained model continues a prompt."""

from pathlib import Path
from typing import Annotated

import typer

from nnrs.cli.output import DeviceOption, JsonOption, note, print_json


def generate(
    run: Annotated[Path, typer.Argument(help="A run directory made by `nnrs train`.")],
    prompt: Annotated[str, typer.Option(help="Words to continue; empty starts a sentence.")] = "",
    count: Annotated[int, typer.Option(help="Number of continuations.")] = 1,
    length: Annotated[int, typer.Option(help="Tokens in each.")] = 40,
    temperature: Annotated[float, typer.Option(help="Of the softmax; 0 is greedy.")] = 1.0,
    top_p: Annotated[float, typer.Option(help="Keep the likeliest tokens that hold this much mass.")] = 1.0,
    beam: Annotated[int, typer.Option(help="Width of a beam search, instead of drawing.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 1,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Continue a prompt with a run's best model."""
    import torch

    from nnrs.errors import ConfigError
    from nnrs.evaluation.generate import Decoding
    from nnrs.evaluation.generate import generate as continued
    from nnrs.experiments.load import load
    from nnrs.experiments.prepare import choose_device

    if count < 1 or length < 1:
        raise ConfigError(f"count and length must be at least 1, got {count} and {length}.")
    decoding = Decoding(temperature=temperature, top_p=top_p, width=beam)
    loaded = load(run, choose_device(device))
    vocabulary = loaded.vocabulary
    words = [word if word in vocabulary.ids else word.lower() for word in prompt.split()]
    unknown = [word for word in words if word not in vocabulary.ids]
    if unknown:
        note(f"not in the vocabulary, read as <unk>: {', '.join(unknown)}")
    ids = torch.tensor([vocabulary.eos_id, *vocabulary.encode(words)])
    texts = continued(loaded.model, ids.expand(count, -1), length=length, decoding=decoding, seed=seed)
    lines = [" ".join(vocabulary.decode(row)) for row in texts.tolist()]
    if json:
        print_json({"prompt": " ".join(words), "continuations": lines})
        return
    for line in lines:
        typer.echo(" ".join((*words, line)))
