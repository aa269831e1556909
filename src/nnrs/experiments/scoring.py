"""A run directory becomes scores: the metrics by name, what each asks of a run, and how it signs."""

from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from pathlib import Path

import torch

from nnrs.errors import ConfigError, DataError
from nnrs.experiments.config import TRANSLATE, RunConfig
from nnrs.experiments.exposure_scores import exposure_lack, exposure_scores
from nnrs.experiments.generations import continuations, window_lack
from nnrs.experiments.perplexity_scores import decile_scores, noise_scores, perplexity_scores
from nnrs.experiments.prepare import Shelf
from nnrs.experiments.subject import Request, Subject
from nnrs.experiments.text_scores import TEXT_METRICS, Texts, TooLittleTextError
from nnrs.experiments.translations import TRANSLATION_METRICS, check_request
from nnrs.metrics.packages import PACKAGES, POT, TRANSLATION_PACKAGES, Package
from nnrs.metrics.score import Score
from nnrs.registry import look_up

OF_WINDOWS = (*TEXT_METRICS, "exposure")  # metrics of a language model's text that continues prefixes
# The options of `nnrs evaluate` that some metrics alone have a use for.
USED_BY = {
    **dict.fromkeys(("decode", "sentences", "prefix", "length"), OF_WINDOWS),
    "seed": ("noise", *OF_WINDOWS),
    "vectors": ("noise", "wmd", "self-wmd", "exposure"),
    "oracle": ("exposure",),
    "references": ("bleu", "wmd"),
}


def evaluate_run(
    path: Path | str,
    device: torch.device,
    request: Request | None = None,
    note: Callable[[str], None] = lambda remark: None,
    shelf: Shelf | None = None,
    begin: Callable[[str], None] = lambda step: None,
) -> list[Score]:
    """The scores of a run's best model, which are kept in the run directory as well.

    `note` hears what was left out, `begin` what comes next. A `shelf` serves several runs of one text.
    """
    request = request or Request()
    subject = Subject(Path(path), device, request, cache(note), shelf or Shelf())  # each remark once
    known = metrics_of(subject)
    metrics = _chosen(subject, known)
    scores = []
    for split in request.splits:
        for name in metrics:
            begin(f"{name} ({split})")
            made = list(known[name](subject, split))
            records = [score.as_dict() for score in made]
            subject.store("scores", "signature", {record["signature"] for record in records}, records)
            scores += made
    if not scores:
        raise DataError(
            f"{path}: none of the metrics can be computed: {', '.join(metrics)}. See above for why."
        )
    return scores


def metrics_of(subject: Subject) -> "Metrics":
    """The metrics that there are for a run of this kind."""
    check_measurable(subject.request, subject.config, str(subject.directory.path))
    return known_metrics(subject.config.data.task)


def check_measurable(request: Request, config: RunConfig, run: str) -> None:
    """Refuse what cannot be asked of a run of this configuration, before it is trained or measured."""
    task = config.data.task
    known = known_metrics(task)
    by_name = "all" not in request.metrics  # which leaves out what cannot be had
    for name in request.metrics:
        look_up({**METRICS, "all": None}, name, "metric")
        if name not in known and name != "all":
            raise ConfigError(
                f"{run} is a translation: it has {', '.join(known)}, but no {name}. Leave it out."
            )
        if by_name and PACKAGES.get(name) is POT and not (request.vectors or config.uses_vectors):
            raise ConfigError(
                f"{run} is trained without word vectors, which {name} needs. Name some with --vectors (in a grid "
                'file: vectors under [evaluate]), such as "corpus", or leave it out.'
            )
        if by_name and name == "exposure" and (lack := exposure_lack(request)):
            raise ConfigError(f"exposure cannot be measured: {lack}. Or leave exposure out.")
    if task == TRANSLATE:
        check_request(request, run)


def known_metrics(task: str) -> "Metrics":
    """The metrics that there are for models of a task."""
    return TRANSLATION_METRICS if task == TRANSLATE else METRICS


def missing_package(metrics: Collection[str], task: str) -> Package | None:
    """One that is not installed and that metrics asked for by name need; `all` does without what is not there."""
    needed = {} if "all" in metrics else _packages_of(task)
    return next((needed[name] for name in metrics if name in needed and needed[name].lack), None)


def _packages_of(task: str) -> dict[str, Package]:
    return TRANSLATION_PACKAGES if task == TRANSLATE else PACKAGES


def _chosen(subject: Subject, known: "Metrics") -> list[str]:
    """The metrics asked for; `all` are those that the run has the means for."""
    names = subject.request.metrics
    if "all" not in names:
        return list(names)
    needed = _packages_of(subject.config.data.task)
    missing = {
        name: reason
        for name, package in needed.items()
        if (reason := subject.no_distances if package is POT else package.lack)
    }
    if "exposure" in known and (lack := exposure_lack(subject.request)):
        missing["exposure"] = lack
    if subject.config.data.task != TRANSLATE and (lack := _short_of_window(subject)):
        missing |= dict.fromkeys(OF_WINDOWS, lack)
    for name, reason in missing.items():
        subject.note(f"{subject.directory.path}: {name} left out, for {reason}")
    return [name for name in known if name not in missing]


def _short_of_window(subject: Subject) -> str | None:
    asked = subject.request
    lacks = (window_lack(len(subject.ids(split)), asked) for split in asked.splits)
    return next(filter(None, lacks), None)


def text_scores(metric: str, subject: Subject, split: str) -> Iterator[Score]:
    """One of the text metrics, for each way of predicting that was asked for. None of them sees the model."""
    for decoding in subject.request.decodings:
        gold, generated = continuations(subject, split, decoding)
        sign = partial(subject.sign, split, decoding)
        texts = Texts(generated, sign, gold, lambda: subject.word_space)
        try:
            yield from TEXT_METRICS[metric](texts)
        except TooLittleTextError as error:  # a model that says next to nothing has other scores all the same
            subject.note(f"{subject.directory.path}: {metric} ({split}, {decoding}) left out, for {error}")


Metrics = dict[str, Callable[[Subject, str], Iterator[Score]]]
METRICS: Metrics = {
    "perplexity": perplexity_scores,
    "deciles": decile_scores,
    "noise": noise_scores,
    **{name: partial(text_scores, name) for name in TEXT_METRICS},
    "exposure": exposure_scores,
}
