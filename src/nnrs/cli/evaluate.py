"""`nnrs evaluate`: how well a trained model predicts text, and how good the text is that it makes."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnrs.cli.many import named
from nnrs.cli.output import JsonOption, note, print_json, print_table
from nnrs.cli.train_options import given_options

if TYPE_CHECKING:
    from nnrs.experiments.subject import Request
    from nnrs.metrics.score import Score, SeedMean
    from nnrs.run_directory import RunDirectory

DRAWN = ("sentences", "prefix", "length", "seed")  # which text a run makes
MOST_NAMED = 3  # metrics that a remark names; of more it says how many
MOST_SIGNED = 3  # scores that are printed with their signatures


def evaluate(
    context: typer.Context,
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Run directories made by `nnrs train`, or folders of them.")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            help="perplexity (default), deciles, noise, bleu, self-bleu, wmd, self-wmd, exposure; or all. Of a "
            "translation: perplexity, bleu. Separate several by commas."
        ),
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="train, valid or test (default).")] = None,
    decode: Annotated[
        list[str] | None,
        typer.Option(
            help="sample (default), greedy (default of a translation), top-p (or top-p0.8), beam (or beam8); "
            "teacher-forced: the argmax at each gold step."
        ),
    ] = None,
    sentences: Annotated[
        int | None, typer.Option(help="Prefixes that are continued, at most. [default: 1000]")
    ] = None,
    prefix: Annotated[int | None, typer.Option(help="Tokens of a prefix. [default: 10]")] = None,
    length: Annotated[int | None, typer.Option(help="Tokens of a continuation. [default: 35]")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the draws. [default: 0]")] = None,
    data: Annotated[str | None, typer.Option(help="Another text; default: the run's own.")] = None,
    vectors: Annotated[
        str | None, typer.Option(help="Vectors for wmd and neighbor noise; default: the run's own.")
    ] = None,
    oracle: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="A better model's run, for exposure: errors are measured against it."
        ),
    ] = None,
    text: Annotated[
        Path | None, typer.Option(help="Text of another program, a sentence a line, instead of runs.")
    ] = None,
    references: Annotated[Path | None, typer.Option(help="Gold text for --text, line by line.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N. [default: auto]")] = None,
    json: JsonOption = False,
) -> None:
    """Scores of a run's best model, with what produced them; kept in the run directory as well."""
    _check(context.params)
    if text:
        _print(
            [("", score) for score in _of_files(text, references, vectors, _names("metrics", metrics))], json
        )
    else:
        _print(_of_runs(runs or [], context.params, device or "auto"), json)


def _check(given: dict[str, Any]) -> None:
    """Runs or a text, and of the options only those that belong to it."""
    from nnrs.errors import ConfigError

    if bool(given["runs"]) == bool(given["text"]):
        raise ConfigError("name run directories to evaluate, or a file with --text: one of the two.")
    if given["runs"] and given["references"]:
        raise ConfigError("--references belong to --text; a run is compared with its own text.")
    for name in ("split", "decode", "data", "oracle", "device", *DRAWN):
        if given["text"] and name in given_options(given):
            raise ConfigError(f"--{name} is about runs: leave it out with --text.")


def _refuse_idle(given: dict[str, Any], metrics: Collection[str], known: Collection[str]) -> None:
    """An option that none of the metrics has a use for is a mistake; `all` may have one for each.

    Only those that are `known` for a run of its kind, or for a text, can be asked for instead.
    """
    from nnrs.errors import ConfigError
    from nnrs.experiments.scoring import USED_BY

    for name, users in USED_BY.items():
        if name in given_options(given) and not {*metrics} & {"all", *users}:
            there = ", ".join(user for user in users if user in known)
            raise ConfigError(
                f"--{name} is about {there}: leave it out, or ask for one of them with --metrics."
            )


def _request(given: dict[str, Any], run: Path) -> "Request":
    from nnrs.experiments.subject import Request
    from nnrs.experiments.translations import usual_decoding

    same = {name: given[name] for name in (*DRAWN, "data", "vectors", "oracle")}
    return Request(
        metrics=_names("metrics", given["metrics"]) or ("perplexity",),
        splits=_names("split", given["split"]) or ("test",),
        decodings=_names("decode", given["decode"]) or (usual_decoding(run),),
        **given_options(same),
    )


def _names(option: str, given: list[str] | None) -> tuple[str, ...]:
    """Names that came one by one or with commas, each once; none where the option was not given."""
    return tuple(named(option, ",".join(given) if given else None))


def _of_runs(paths: list[Path], given: dict[str, Any], device: str) -> "list[tuple[str, Score]]":
    """Each run's scores, beside its name; a folder stands for the runs in it."""
    from nnrs.cli.steps import Steps
    from nnrs.experiments.load import config_of
    from nnrs.experiments.prepare import Shelf, choose_device
    from nnrs.experiments.scoring import check_measurable, evaluate_run, known_metrics, missing_package
    from nnrs.run_directory import RunDirectory

    runs = [run.path for path in paths for run in _runs_at(path)]
    requests = [_request(given, run) for run in runs]  # refused, if any, before anything is measured
    for run, request in zip(runs, requests, strict=True):
        config = config_of(RunDirectory.open(run))
        check_measurable(request, config, str(run))
        _refuse_idle(given, request.metrics, known_metrics(config.data.task))
        if package := missing_package(request.metrics, config.data.task):
            raise package.error()
    shelf, place, scores = Shelf(), choose_device(device), []
    with Steps(len(runs)) as steps:
        for run, request in zip(runs, requests, strict=True):
            directory = RunDirectory.open(run)
            if directory.summary() is None and directory.best_fingerprint():
                note(f"{run} is not finished: its best model so far is measured")
            made = evaluate_run(run, place, request, note, shelf, steps.of(str(run)))
            scores += [(str(run), score) for score in made]
            steps.done()
    return scores


def _runs_at(path: Path) -> "list[RunDirectory]":
    """The runs of a folder or of a grid's folder, or the one that a path is."""
    from nnrs.grid_directory import GridDirectory
    from nnrs.run_directory import RunDirectory

    inside = RunDirectory.within(path) or RunDirectory.within(GridDirectory(path).runs_path)
    return inside or [RunDirectory.open(path)]


def _of_files(
    text: Path, references: Path | None, vectors: str | None, metrics: tuple[str, ...]
) -> "list[Score]":
    """The text metrics of files: those asked for, else all that there are the means for."""
    from nnrs.errors import DataError
    from nnrs.experiments.config import LANGUAGE_MODEL
    from nnrs.experiments.scoring import missing_package
    from nnrs.experiments.text_scores import TEXT_METRICS, TooLittleTextError, texts_of_files
    from nnrs.registry import look_up

    possible = [
        name
        for name in TEXT_METRICS
        if (references or name.startswith("self-")) and (vectors or not name.endswith("wmd"))
    ]
    if metrics == ("all",):
        possible = [name for name in possible if not missing_package([name], LANGUAGE_MODEL)]
        if left := [name for name in TEXT_METRICS if name not in possible]:
            note(
                f"left out: {', '.join(left)} (bleu and wmd need --references, wmd and self-wmd --vectors and the "
                "package POT)"
            )
    chosen = possible if metrics in ((), ("all",)) else metrics
    scorers = {name: look_up(TEXT_METRICS, name, "metric of text") for name in chosen}
    _refuse_idle({"references": references, "vectors": vectors}, metrics or ("all",), TEXT_METRICS)
    if package := missing_package(chosen, LANGUAGE_MODEL):
        raise package.error()
    texts, scores = texts_of_files(text, references, vectors), []
    for name, scorer in scorers.items():
        try:
            scores += list(scorer(texts))
        except TooLittleTextError as error:
            note(f"{text}: {name} left out, for {error}")
    if not scores:
        raise DataError(
            f"{text}: none of the metrics can be computed: {', '.join(chosen)}. See above for why."
        )
    return scores


def _print(scores: "list[tuple[str, Score]]", json: bool) -> None:
    """A table of scores with their intervals and signatures below it, or JSON: one as it is, several as a list.

    Runs that differ in their seed alone have their means as well.
    """
    from nnrs.metrics.score import over_seeds

    several_runs = len({run for run, _ in scores}) > 1
    _note_differences([score for _, score in scores])
    means = over_seeds([score for _, score in scores]) if several_runs else []
    if several_runs:
        _note_seeds_at_odds([score for _, score in scores])
    if json:
        records = [{**({"run": run} if several_runs else {}), **score.as_dict()} for run, score in scores]
        print_json(records[0] if len(records) == 1 else [*records, *(mean.as_dict() for mean in means)])
        return
    _print_table(scores, means, several_runs)
    _print_signatures(scores, means)


def _print_signatures(scores: "list[tuple[str, Score]]", means: "list[SeedMean]") -> None:
    """A line for each score where they are few. Of many that would bury the table: what all have in common."""
    from nnrs.metrics.score import common_signature

    made = [*(score for _, score in scores), *means]
    if len(made) <= MOST_SIGNED:
        for one in made:
            typer.echo(str(one))
        return
    typer.echo(f"signatures have in common: {common_signature([score for _, score in scores])}")
    kept = any(run for run, _ in scores)  # of the text of another program nothing is
    note(f"whole signatures: {'in scores.jsonl of each run, or ' if kept else ''}with --json")


def _print_table(scores: "list[tuple[str, Score]]", means: "list[SeedMean]", several_runs: bool) -> None:
    """A row for each score and each mean; of several runs with their names within the folder that they share."""
    title, columns = "intervals by bootstrap", ("metric", "value", "95% interval", "better")
    rows = [
        (_label(score), score.shown(), score.shown_interval(), score.family.better) for _, score in scores
    ]
    if not several_runs:
        print_table(title, columns, rows)
        return
    folder = os.path.commonpath([Path(run).absolute().parent for run, _ in scores])
    named = [(os.path.relpath(run, folder), *row) for (run, _), row in zip(scores, rows, strict=True)]
    for mean in means:
        first = mean.scores[0]
        name = f"{first.parts.get('policy', '')} mean of {len(mean.scores)} seeds".lstrip()
        named.append((name, _label(first), *mean.shown(), first.family.better))
    print_table(f"{title}; runs in {folder}", ("run", *columns), named)


def _label(score: "Score") -> str:
    """The metric with what tells its rows apart."""
    told = [score.parts[name] for name in ("split", "decode") if name in score.parts]
    return f"{score.metric} ({', '.join(told)})" if told else score.metric


def _note_differences(scores: "list[Score]") -> None:
    """Say in one line in what scores that stand side by side were not made alike."""
    rows: dict[str, list[Score]] = {}
    for score in scores:
        rows.setdefault(_label(score), []).append(score)
    found = _labels_by_reason(rows)
    if not found:
        return
    apart = list(dict.fromkeys(label for labels in found.values() for label in labels))
    reasons = [
        why if len(labels) == len(apart) else f"{why} ({_named_or_counted(labels, apart)})"
        for why, labels in found.items()
    ]
    are = "is not comparable as it stands" if len(apart) == 1 else "are not comparable as they stand"
    note(f"{_named_or_counted(apart, rows)} {are}, the runs differ in {'; '.join(reasons)}")


def _note_seeds_at_odds(scores: "list[Score]") -> None:
    """Say in one line which rows have no mean because runs of one seed and one setting differ in them."""
    from nnrs.metrics.score import seeds_at_odds

    if labels := list(dict.fromkeys(map(_label, seeds_at_odds(scores)))):
        of = _named_or_counted(labels, {_label(score) for score in scores})
        note(f"no mean over seeds of {of}: runs of one seed and one setting have several values")


def _labels_by_reason(rows: "dict[str, list[Score]]") -> dict[str, list[str]]:
    from nnrs.metrics.score import differences

    found: dict[str, list[str]] = {}
    for label, scores in rows.items():
        for name, values in differences(scores).items():
            found.setdefault(f"{name}: {', '.join(values)}", []).append(label)
    return found


def _named_or_counted(labels: Sequence[str], among: Collection[str]) -> str:
    """The labels where they are few, else how many of all they are."""
    return ", ".join(labels) if len(labels) <= MOST_NAMED else f"{len(labels)} of {len(among)} metrics"
