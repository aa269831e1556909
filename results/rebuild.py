"""Tables, pictures and pages, made again from the records beside this file: `make results`.

A study is NAME.jsonl.xz, as `nnrs results --format jsonl` wrote it. It becomes NAME.csv and the tables that stand in
docs/studies/ between `<!-- NAME -->`, `<!-- NAME contrasts -->`, `<!-- NAME best -->` or `<!-- NAME gains -->` and
`<!-- end -->`; those in PAGES get NAME.html.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from nnrs.experiments.findings import PERPLEXITY, findings, shown_difference, shown_interval, shown_p
from nnrs.experiments.groups import Group, grouped, names_of
from nnrs.experiments.markdown import as_markdown
from nnrs.experiments.replication import Printed, table1, table1_lines
from nnrs.experiments.store import Result, collect
from nnrs.experiments.table import lines_csv, results_csv
from nnrs.experiments.text_tables import text_lines, text_table
from nnrs.files import write_text
from nnrs.metrics.contrasts import Contrast, contrast, corrected
from nnrs.report.page import write_report
from nnrs.report.picture import write_picture

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
DOCUMENTS = sorted((ROOT / "docs" / "studies").glob("*.md"))
PAGES = {
    "ptb-contrasts": "The contrasts named in advance, PTB, nine seeds",
    "ptb-table1": "Table 1 on PTB: perplexity by configuration and schedule",
    "ptb-methods": "Eight methods on PTB, three seeds",
    "ptb-table2": "Tables 2 and 3 on PTB: what three kinds of model write",
    "multi30k": "Multi30k, German to English, three seeds",
}
STUDIES = (
    *PAGES,
    "multi30k-dropout",
    "ptb-best",
    "ptb-best-seeds",
    "ptb-equal-dose",
    "ptb-k",
    "ptb-large",
    "ptb-large-seeds",
    "ptb-large-weights",
    "ptb-rates",
    "ptb-table2-20",
    "ptb-targets",
    "ptb-weights",
    "synthetic",
    "synthetic-best",
    "synthetic-best-seeds",
    "synthetic-dose",
    "synthetic-k",
    "synthetic-rates",
    "synthetic-readings",
    "synthetic-regularised",
    "synthetic-scarce",
    "synthetic-targets",
    "synthetic-temperature",
    "wikitext-2-best",
    "wikitext-2-best-seeds",
    "wikitext-2-contrasts",
    "wikitext-2-large",
)
# Of which the documents show the best of each arm, with the studies that it is chosen from.
SEARCHES = {
    "ptb-best": ("ptb-best", "ptb-weights"),
    "ptb-weights": ("ptb-weights",),
    "synthetic-best": ("synthetic-best",),
    "wikitext-2-best": ("wikitext-2-best",),
}
REGULARISATION = ("dropout", "weight_dropout")
# Studies of the same methods under several degrees of it, and the text that they are judged on.
GAINS = {"ptb-weights": "valid", "synthetic-regularised": "test"}
# The contrasts named before a study of arms that were tuned one by one, and so may differ in more than their method.
TUNED = (
    ("ss", "mle"),
    ("nnrs", "mle"),
    ("ss-nnrs", "ss"),
    ("nnrs", "unigram"),
    ("nnrs, targets", "mle"),
)
NAMED_OF_ARMS = {
    "ptb-best-seeds": TUNED,
    "ptb-targets": (
        ("unigram, targets", "nnrs, targets"),
        ("shuffled, targets", "nnrs, targets"),
        ("unigram, targets", "mle"),
        ("shuffled, targets", "mle"),
    ),
    "synthetic-best-seeds": TUNED,
    "wikitext-2-best-seeds": TUNED,
}
BESIDE = {"ptb-targets": "ptb-best-seeds"}  # the study, of the same seeds, that has the other arms
# Of GAINS: the two degrees between which the gain of each of the methods was named to differ.
NAMED_OF_DEGREES = {
    "synthetic-regularised": (
        ("dropout 0.1", "dropout 0.4 · weight_dropout 0.4"),
        ("ss", "nnrs", "ss-nnrs"),
    ),
}
TEXT_TABLES = ("table2", "table3")  # of the same runs
PICTURED = "ptb-contrasts"  # the study that the README shows


def records(study: str) -> list[Result]:
    """All runs of a study."""
    return collect(RESULTS / f"{study}.jsonl.xz")


def table_csv(results: Sequence[Result]) -> str:
    """The paper's tables with ours beside them, where a study is one of them, else a row for each run."""
    texts = [line for table in TEXT_TABLES for line in text_lines(table, results)]
    return lines_csv(table1_lines(results)) or lines_csv(texts) or results_csv(results)


def table_markdown(results: Sequence[Result]) -> str:
    """The same as the documents show it."""
    printed = table1(results) or [table for name in TEXT_TABLES for table in text_table(name, results)]
    return "\n".join(map(_pipes, printed)) if printed else as_markdown(results)


def arms(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The settings of each arm: of a method that replaces inputs, or of one that replaces targets."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        replaced = group.results[0].record["config"]["policy"]["replace"]
        arm = group.method if replaced == "inputs" else f"{group.method}, {replaced}"
        found.setdefault(arm, []).append(group)
    return found


def contrasts_of_arms(results: Sequence[Result], pairs: Sequence[tuple[str, str]]) -> list[Contrast]:
    """The pairs of arms as one family, whatever else the two differ in; each arm must have one setting."""
    nats = {arm: group.nats("test") for arm, (group,) in arms(grouped(results)).items()}
    return corrected(
        [contrast(ours, theirs, PERPLEXITY, (nats[ours], nats[theirs])) for ours, theirs in pairs]
    )


def degrees(results: Sequence[Result]) -> dict[str, dict[str, Group]]:
    """The groups by their regularisation, and by what they are called beside that."""
    found: dict[str, list[Group]] = {}
    for group in grouped(results):
        given = [f"{name} {group.labels[name]}" for name in REGULARISATION if name in group.labels]
        found.setdefault(" · ".join(given), []).append(group)
    return {degree: dict(zip(names_of(groups), groups, strict=True)) for degree, groups in found.items()}


def gains(groups: Mapping[str, Group], split: str) -> dict[str, Contrast]:
    """What each setting of one degree has beside its teacher forcing."""
    forced = groups["mle"].nats(split)
    return {
        name: contrast(name, "mle", PERPLEXITY, (group.nats(split), forced))
        for name, group in groups.items()
        if name != "mle"
    }


def gain_by_seed(groups: Mapping[str, Group], method: str) -> dict[int, float]:
    """The same of a method on the test text; it must have one setting."""
    (found,) = [item for name, item in gains(groups, "test").items() if groups[name].method == method]
    return dict(zip(found.seeds, found.differences, strict=True))


def contrasts_of_degrees(
    results: Sequence[Result], ends: tuple[str, str], methods: Sequence[str]
) -> list[Contrast]:
    """What the methods have beside teacher forcing at one degree against another, on test, as one family."""
    found = degrees(results)
    one, other = (found[degree] for degree in ends)
    return corrected(
        [
            contrast(
                f"gain of {method}: {ends[0]}",
                ends[1],
                PERPLEXITY,
                (gain_by_seed(one, method), gain_by_seed(other, method)),
            )
            for method in methods
        ]
    )


def gains_markdown(results: Sequence[Result], split: str) -> str:
    """What each method has beside teacher forcing that is regularised as much; every degree has the same methods."""
    found = degrees(results)
    names = [name for name in next(iter(found.values())) if name != "mle"]
    head = ["", f"mle, perplexity, {split}", *(f"{name} - mle" for name in names)]
    rows = [head, ["---"] * len(head)]
    for degree, groups in found.items():
        beside = gains(groups, split)
        if list(beside) != names:
            raise ValueError(f"{degree} has {', '.join(beside)}, where {', '.join(names)} were expected")
        forced = f"{groups['mle'].perplexity(split).mean:.2f}"
        rows.append([degree, forced, *map(_with_interval, beside.values())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def contrasts(study: str, results: Sequence[Result]) -> list[Contrast]:
    """The paired differences in test perplexity that were named in advance: of arms, of degrees, or of methods."""
    if study in NAMED_OF_ARMS:
        others = records(BESIDE[study]) if study in BESIDE else []
        return contrasts_of_arms([*others, *results], NAMED_OF_ARMS[study])
    if study in NAMED_OF_DEGREES:
        return contrasts_of_degrees(results, *NAMED_OF_DEGREES[study])
    return findings(results).contrasts


def contrasts_markdown(found: Sequence[Contrast]) -> str:
    """The same as the documents show it."""
    lines = [
        "| contrast | test perplexity | 95 % interval | seeds | p | p after Holm |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for item in found:
        shown = [f"{item.ours} - {item.theirs}", shown_difference(item), shown_interval(item)]
        shown += [str(len(item.seeds)), shown_p(item.p), shown_p(item.holm_p)]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def best_markdown(results: Sequence[Result]) -> str:
    """The setting of each arm with the least mean validation perplexity, of a search that is judged by that alone."""
    groups = grouped(results)
    names = dict(zip(groups, names_of(groups), strict=True))
    lines = [
        "| arm | settings | lowest on validation | perplexity, valid | the next | the highest |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for arm, settings in arms(groups).items():
        found = sorted((group.perplexity("valid").mean, names[group]) for group in settings)
        (least, name), *others = found
        second, last = (f"{others[place][0]:.2f}" if others else "" for place in (0, -1))
        lines.append(f"| {arm} | {len(found)} | {name} | {least:.2f} | {second} | {last} |")
    return "\n".join(lines) + "\n"


def baselines_markdown() -> str:
    """The teacher-forced baselines, whose records are of an older kind: a line a run."""
    runs: dict[str, list[dict[str, float]]] = {}
    for line in (RESULTS / "baselines.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        runs.setdefault(record["run"], []).append(record)
    lines = [
        "| run | valid: mean ± sd | test: seeds 1, 2, 3 | test: mean ± sd |",
        "| --- | --- | --- | --- |",
    ]
    for name, found in runs.items():
        valid, test = ([run[f"{split}_perplexity"] for run in found] for split in ("valid", "test"))
        each = ", ".join(f"{value:.2f}" for value in test)
        lines.append(f"| {name} | {_spread(valid)} | {each} | {_spread(test)} |")
    return "\n".join(lines) + "\n"


def tables() -> dict[str, str]:
    """Every table of the documents, by the mark before it."""
    made = {"baselines": baselines_markdown()}
    for study in STUDIES:
        results = records(study)
        made[study] = table_markdown(results)
        made[f"{study} contrasts"] = contrasts_markdown(contrasts(study, results))
    for study, searched in SEARCHES.items():
        made[f"{study} best"] = best_markdown([result for each in searched for result in records(each)])
    return made | {f"{study} gains": gains_markdown(records(study), split) for study, split in GAINS.items()}


def filled(document: str, made: Mapping[str, str]) -> str:
    """The document with its tables made again."""
    for name, table in made.items():
        place = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        document = place.sub(lambda marks, table=table: f"{marks[1]}\n{table}\n{marks[2]}", document)
    return document


def main() -> None:
    """Write all of it."""
    made = tables()
    for document in DOCUMENTS:
        write_text(document, filled(document.read_text(encoding="utf-8"), made))
    for study in STUDIES:
        write_text(RESULTS / f"{study}.csv", table_csv(records(study)))
    for study, title in PAGES.items():
        page = RESULTS / f"{study}.html"
        write_report([RESULTS / f"{study}.jsonl.xz"], page, title=title)
        print(page)
    write_picture(records(PICTURED), ROOT / "docs" / "images" / f"{PICTURED}.svg")


def _pipes(table: Printed) -> str:
    """A printed table as Markdown, its title below."""
    rows = [table.columns, ["---"] * len(table.columns), *table.rows]
    lines = ["| " + " | ".join(cell.replace("\n", "<br>") for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", table.title, ""])


def _with_interval(item: Contrast) -> str:
    ends = shown_interval(item)
    return f"{shown_difference(item)} ({ends})" if ends else shown_difference(item)


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f} ± {stdev(values):.2f}"


if __name__ == "__main__":
    main()
