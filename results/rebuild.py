"""Tables, pictures and pages, made again from the records beside this file: `make results`.

A study is NAME.jsonl.xz, as `nnrs results --format jsonl` wrote it. It becomes NAME.csv and the tables that stand in
docs/studies/ between `<!-- NAME -->`, `<!-- NAME contrasts -->`, `<!-- NAME best -->` or `<!-- NAME gains -->` and
`<!-- end -->`; those in PAGES get NAME.html. docs/results.md has `<!-- overview -->`, the README its picture.
"""

import json
import re
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from results.overview import overview_markdown, write_overview
from results.studies import KINDS, REGULARISATION, RESULTS, arms, contrasts, degrees, gains, records

from nnrs.experiments.findings import shown_difference, shown_interval, shown_p
from nnrs.experiments.groups import grouped, names_of
from nnrs.experiments.markdown import as_markdown
from nnrs.experiments.replication import Printed, table1, table1_lines
from nnrs.experiments.store import Result
from nnrs.experiments.table import lines_csv, results_csv
from nnrs.experiments.text_tables import text_lines, text_table
from nnrs.files import write_text
from nnrs.metrics.contrasts import Contrast
from nnrs.report.page import write_report
from nnrs.report.picture import write_picture

OUT, DOCS = RESULTS, RESULTS.parent / "docs"
DOCUMENTS = [DOCS / "results.md", *sorted((DOCS / "studies").glob("*.md"))]
PAGES = {
    "ptb-contrasts": "The contrasts named in advance, PTB, nine seeds",
    "ptb-table1": "Table 1 on PTB: perplexity by configuration and schedule",
    "ptb-methods": "Eight methods on PTB, three seeds",
    "ptb-table2": "Tables 2 and 3 on PTB: what three kinds of model write",
    "wikitext-2-table1": "Table 1 on WikiText-2, seven of its rows",
}
STUDIES = (
    *PAGES,
    "multi30k",
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
    "synthetic-cells",
    "synthetic-cells-edges",
    "synthetic-cells-gru",
    "synthetic-cells-lstm",
    "synthetic-cells-search",
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
# Studies of the same methods under several degrees of regularisation, or with several kinds of model: the text that
# they are judged on, and what tells the degrees apart.
GAINS = {
    "ptb-weights": ("valid", REGULARISATION),
    "synthetic-cells": ("test", KINDS),
    "synthetic-regularised": ("test", REGULARISATION),
}
TEXT_TABLES = ("table2", "table3")  # of the same runs
PICTURED = "ptb-contrasts"  # the study that has a picture of its own


def table_csv(results: Sequence[Result]) -> str:
    """The paper's tables with ours beside them, where a study is one of them, else a row for each run."""
    texts = [line for table in TEXT_TABLES for line in text_lines(table, results)]
    return lines_csv(table1_lines(results)) or lines_csv(texts) or results_csv(results)


def table_markdown(results: Sequence[Result]) -> str:
    """The same as the documents show it."""
    printed = table1(results) or [table for name in TEXT_TABLES for table in text_table(name, results)]
    return "\n".join(map(_pipes, printed)) if printed else as_markdown(results)


def gains_markdown(results: Sequence[Result], split: str, labels: Sequence[str]) -> str:
    """What each method has beside teacher forcing that is regularised as much; every degree has the same methods.

    A row for each degree, or for each method where there are more than two of these for a degree.
    """
    found = degrees(results, labels)
    names = [name for name in next(iter(found.values())) if name != "mle"]
    head = ["", f"mle, perplexity, {split}", *(f"{name} - mle" for name in names)]
    rows = [head]
    for degree, groups in found.items():
        beside = gains(groups, split)
        if list(beside) != names:
            raise ValueError(f"{degree} has {', '.join(beside)}, where {', '.join(names)} were expected")
        forced = f"{groups['mle'].perplexity(split).mean:.2f}"
        rows.append([degree, forced, *map(_with_interval, beside.values())])
    if len(names) > 2 * len(found):
        rows = [list(column) for column in zip(*rows, strict=True)]
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


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
    made = {"baselines": baselines_markdown(), "overview": overview_markdown()}
    for study in STUDIES:
        results = records(study)
        made[study] = table_markdown(results)
        made[f"{study} contrasts"] = contrasts_markdown(contrasts(study, results))
    for study, searched in SEARCHES.items():
        made[f"{study} best"] = best_markdown([result for each in searched for result in records(each)])
    return made | {f"{study} gains": gains_markdown(records(study), *how) for study, how in GAINS.items()}


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
        write_text(OUT / f"{study}.csv", table_csv(records(study)))
    for study, title in PAGES.items():
        page = OUT / f"{study}.html"
        write_report([RESULTS / f"{study}.jsonl.xz"], page, title=title)
        print(page)
    write_picture(records(PICTURED), DOCS / "images" / f"{PICTURED}.svg")
    write_overview(DOCS / "images" / "overview.svg")


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
