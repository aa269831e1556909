"""`nnrs generate`: a trained model continues a prompt, or translates it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nnrs.cli.output import DeviceOption, JsonOption, note, print_json
from nnrs.errors import ConfigError

if TYPE_CHECKING:
    from nnrs.vocabulary import Vocabulary

LENGTH = 40


def generate(
    run: Annotated[Path, typer.Argument(help="A run directory made by `nnrs train`.")],
    prompt: Annotated[
        str, typer.Option(help="Words to continue or translate; empty starts a sentence.")
    ] = "",
    count: Annotated[int, typer.Option(help="Number of continuations.")] = 1,
    length: Annotated[int | None, typer.Option(help=f"Tokens in each. [default: {LENGTH}]")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Of the softmax; 0 is greedy. [default: 1; of a translation 0]")
    ] = None,
    top_p: Annotated[float, typer.Option(help="Keep the likeliest tokens that hold this much mass.")] = 1.0,
    beam: Annotated[int, typer.Option(help="Width of a beam search, instead of drawing.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 1,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Continue a prompt with a run's best model; where it was trained to, translate it."""
    import torch

    from nnrs.evaluation.generate import Decoding
    from nnrs.evaluation.generate import generate as continued
    from nnrs.experiments.load import load
    from nnrs.experiments.prepare import choose_device
    from nnrs.experiments.translations import translate_words
    from nnrs.seeding import check_seed

    for option, number in (("--count", count), ("--length", length)):
        if number is not None and number < 1:
            raise ConfigError(f"{option} must be at least 1, got {number}.")
    check_seed(seed)
    if beam > 1 and (temperature is not None or top_p != 1.0):
        raise ConfigError("a beam search draws nothing: leave --temperature and --top-p out, or --beam.")
    decoding = Decoding(temperature=1.0 if temperature is None else temperature, top_p=top_p, width=beam)
    loaded = load(run, choose_device(device))
    translates = loaded.source_vocabulary is not None
    if translates and (length is not None or not prompt.strip()):
        raise ConfigError(f"{run} translates: give it a sentence with --prompt, and no --length.")
    likeliest = translates and temperature is None and top_p == 1.0
    if count > 1 and (likeliest or beam > 1 or temperature == 0):
        instead = "without --beam" if beam > 1 else "with --temperature 1"
        raise ConfigError(
            f"--count: the likeliest text is the same every time. Leave it out, or draw {instead}."
        )
    if loaded.source_vocabulary:
        words = _known(prompt, loaded.source_vocabulary)
        chosen = Decoding(temperature=0.0, width=beam) if likeliest else decoding
        lines = [" ".join(line) for line in translate_words(loaded, words, count, chosen, seed)]
    else:
        vocabulary = loaded.vocabulary
        words = _known(prompt, vocabulary)
        ids = torch.tensor([vocabulary.eos_id, *vocabulary.encode(words)]).expand(count, -1)
        texts = continued(loaded.model, ids, length=length or LENGTH, decoding=decoding, seed=seed)
        lines = [" ".join(vocabulary.decode(row)) for row in texts.tolist()]
    if json:
        print_json({"prompt": " ".join(words), "continuations": lines})
        return
    before = () if loaded.source_vocabulary else words
    for line in lines:
        typer.echo(" ".join((*before, line)))


def _known(prompt: str, vocabulary: "Vocabulary") -> list[str]:
    """The words of a prompt, lower-cased where only that is known; says which are unknown."""
    words = [word if word in vocabulary.ids else word.lower() for word in prompt.split()]
    unknown = [word for word in words if word not in vocabulary.ids]
    if unknown:
        note(f"not in the vocabulary, read as <unk>: {', '.join(unknown)}")
    return words
