"""The options of `nnrs train`: what is not given stays as --config or the defaults have it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nnrs.schedules import SHAPES

Out = Annotated[Path, typer.Option(help="The run directory to make (or to --resume).")]
Task = Annotated[str | None, typer.Option(help="language-model or translate. [default: language-model]")]
Data = Annotated[
    str | None, typer.Option(help="Folder, file, sotu[:YEAR] or synthetic[:SENTENCES]. [default: sotu]")
]
FromLanguage = Annotated[
    str | None, typer.Option("--from", metavar="de", help="Translate from it: DATA/train.de, ...")
]
ToLanguage = Annotated[
    str | None, typer.Option("--to", metavar="en", help="Translate to it. [default: de to en]")
]
Vectors = Annotated[str | None, typer.Option(help="A vector file, or corpus. [default: corpus]")]
Method = Annotated[
    str | None,
    typer.Option(
        help="mle, ss, nnrs, tprs, ss-nnrs, gsns, word-dropout, unigram, shuffled. [default: ss-nnrs]"
    ),
]
Model = Annotated[
    str | None, typer.Option(help="lstm, gru; no translation: highway, transformer. [default: lstm]")
]
Preset = Annotated[
    str | None, typer.Option(help="tiny, small, medium, large. [default: small; translate: medium]")
]
Epochs = Annotated[int | None, typer.Option(help="[default: 40; translate: 20]")]
Schedule = Annotated[
    str | None, typer.Option(help=f"Shape of both rates: {', '.join(SHAPES)}. [default: exponential]")
]
PredictionRate = Annotated[
    str | None, typer.Option(metavar="START:END", help="ε of scheduled sampling. [default: 0:0.2]")
]
NeighborRate = Annotated[
    str | None, typer.Option(metavar="START:END", help="γ of neighbor replacement. [default: 0:0.2]")
]
K = Annotated[int | None, typer.Option(help="Neighbors per word. [default: round(log2 V)]")]
Seed = Annotated[int | None, typer.Option(help="[default: 1]")]
Seeds = Annotated[
    str | None,
    typer.Option(metavar="1-8|1,3,7", help="A run for each, in OUT/seed-N; together on a GPU."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run or the runs in --out.")]
Previous = Annotated[
    bool, typer.Option("--previous", help="With --resume: from the checkpoint before the newest.")
]
Config = Annotated[Path | None, typer.Option(help="Settings from a TOML or JSON file; options override.")]
MinCount = Annotated[int | None, typer.Option(help="Rarer words become <unk>. [default: 1; translate: 2]")]
MaxVocabulary = Annotated[int | None, typer.Option(help="Size of the vocabulary in all.")]
Protect = Annotated[list[str] | None, typer.Option(metavar="WORD", help="Never replaced; repeatable.")]
Initialise = Annotated[
    bool | None, typer.Option("--initialise", help="Input embeddings start from the vectors.")
]
Rule = Annotated[
    str | None,
    typer.Option(
        help="How τ moves: prose, equation, constant, effective. [default: prose; gsns, tprs: constant]"
    ),
]
Temperature = Annotated[float | None, typer.Option(help="τ at the start. [default: 0.5; tprs: 1]")]
Granularity = Annotated[str | None, typer.Option(help="token, position, sequence. [default: token]")]
Replace = Annotated[str | None, typer.Option(help="inputs or targets. [default: inputs]")]
Draw = Annotated[str | None, typer.Option(help="sample or centroid. [default: sample]")]
Predict = Annotated[str | None, typer.Option(help="sample or greedy. [default: sample]")]
Unroll = Annotated[
    str | None, typer.Option(help="Scheduled sampling: parallel or exact. [default: parallel]")
]
Passes = Annotated[int | None, typer.Option(help="Prediction passes when parallel. [default: 1]")]
Search = Annotated[str | None, typer.Option(help="Neighbor search: exact or faiss. [default: exact]")]
TransitionRow = Annotated[str | None, typer.Option(help="tprs: own or previous. [default: own]")]
TransitionWhole = Annotated[
    bool | None, typer.Option("--transition-whole", help="tprs: the whole row, not its top k.")
]
Units = Annotated[int | None, typer.Option(help="Width of the model, instead of the preset's.")]
Layers = Annotated[int | None, typer.Option(help="[default: 2]")]
Dropout = Annotated[float | None, typer.Option(help="Instead of the preset's.")]
WeightDropout = Annotated[
    float | None, typer.Option(help="Share of the recurrent weights dropped, too. [default: 0]")
]
Optimizer = Annotated[
    str | None, typer.Option(help="sgd or adamw. [default: sgd; transformer, translate: adamw]")
]
LearningRate = Annotated[
    float | None, typer.Option(help="[default: 20 for sgd (gru, highway: 5), 0.001 for adamw]")
]
Annealing = Annotated[str | None, typer.Option(help="cosine, plateau, constant. [default: cosine]")]
Clip = Annotated[float | None, typer.Option(help="Gradient norm. [default: 0.25; translate: 1]")]
BatchSize = Annotated[int | None, typer.Option(help="[default: 20; translate: 128]")]
Bptt = Annotated[int | None, typer.Option(help="Window length. [default: 35]")]
Precision = Annotated[
    str | None, typer.Option(help="auto, fp32, bf16. [default: auto: bf16 on GPUs; translate: fp32]")
]
Tensorboard = Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard events too.")]


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value not in (None, [], ())}
