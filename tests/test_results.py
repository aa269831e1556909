"""What stands in results/ and of its tables in docs/ is what `make results` makes of the records, and is small."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from results import overview, rebuild, studies
from tests.report.factory import make_result, sentences_of

from nnrs.experiments.findings import findings
from nnrs.experiments.plan import read_plan
from nnrs.experiments.store import Result

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
DOCUMENTS = [ROOT / "docs" / "results.md", *sorted((ROOT / "docs" / "studies").glob("*.md"))]
STUDIES = sorted(path.name.removesuffix(".jsonl.xz") for path in RESULTS.glob("*.jsonl.xz"))
WITHOUT_TABLE = {"multi30k-dropout", "ptb-table2-20"}  # the text tells what is in them


@pytest.fixture(scope="module")
def tables() -> dict[str, str]:
    return rebuild.tables()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_the_tables_in_a_document_are_those_of_the_records(tables, document):
    written = document.read_text(encoding="utf-8")
    marks = re.findall(r"<!-- ([^>]+) -->", written)
    named = [mark for mark in marks if mark != "end"]
    assert set(named) <= set(tables)
    assert len(marks) == 2 * len(named)  # each has its end
    assert rebuild.filled(written, tables) == written
    emptied = re.sub(r"(<!-- (?!end)[^>]+ -->\n).*?(<!-- end -->)", r"\1\2", written, flags=re.DOTALL)
    assert rebuild.filled(emptied, tables) == written


def test_each_study_has_its_table_in_one_document():
    marks = [
        mark
        for path in DOCUMENTS
        for mark in re.findall(r"<!-- ([^>]+) -->", path.read_text(encoding="utf-8"))
    ]
    assert len(set(marks)) - 1 == len([mark for mark in marks if mark != "end"])
    shown = {re.sub(" (best|gains)$", "", mark) for mark in marks}
    assert {"baselines", "overview", *STUDIES} - shown == WITHOUT_TABLE
    assert DOCUMENTS == rebuild.DOCUMENTS


def test_a_table_is_made_again_between_its_marks_and_nothing_else_is_touched(tables):
    document = "before\n\n<!-- baselines -->\nold | 1\n<!-- end -->\n\nbetween\n<!-- end -->\nafter\n"
    filled = rebuild.filled(document, tables)
    assert filled.startswith("before\n\n<!-- baselines -->\n\n| run | valid")
    assert filled.endswith(" |\n\n<!-- end -->\n\nbetween\n<!-- end -->\nafter\n")
    assert "old" not in filled
    assert rebuild.filled(filled, tables) == filled


def test_of_a_search_the_lowest_mean_on_validation_is_shown_for_each_arm_whatever_the_test_text_says():
    def runs(rate, replaced, *perplexities):
        for seed, perplexity in enumerate(perplexities):
            record = make_result("nnrs", "toy", {"method": "nnrs", "neighbor_rate": str(rate)}, rate, seed, 2)
            record["config"]["policy"]["replace"] = replaced
            record |= {"valid_perplexity": perplexity, "test_perplexity": 100.0 - perplexity}
            yield Result(record)

    found = [*runs(1, "inputs", 8.0, 9.0), *runs(2, "inputs", 7.0, 8.5), *runs(3, "inputs", 6.0, 12.0)]
    found += [*runs(4, "targets", 5.0, 6.0), *runs(5, "targets", 5.0, 7.0)]
    lines = rebuild.best_markdown(found).splitlines()[2:]
    assert lines == [
        "| nnrs | 3 | neighbor_rate 2 | 7.75 | 8.50 | 9.00 |",
        "| nnrs, targets | 2 | neighbor_rate 4 | 5.50 | 6.00 | 6.00 |",
    ]
    alone = rebuild.best_markdown(list(runs(1, "inputs", 8.0, 9.0))).splitlines()[-1]
    assert alone == "| nnrs | 1 | nnrs | 8.50 |  |  |"


def test_arms_that_differ_in_dropout_and_in_what_is_replaced_are_contrasted_by_seed_as_one_family():
    def runs(group, method, dropout, replaced, *nats):
        for seed, value in enumerate(nats):
            record = make_result(method, "toy", {"method": method}, group, seed, 2)
            record["config"]["model"]["dropout"] = dropout
            record["config"]["policy"]["replace"] = replaced
            yield Result(record | {"test_nats": value})

    found = [
        *runs(1, "mle", 0.5, "inputs", 3.00, 3.10, 3.05),
        *runs(2, "nnrs", 0.6, "inputs", 2.98, 3.08, 3.03),
    ]
    found += runs(3, "nnrs", 0.4, "targets", 3.00, 3.10)  # seed 2 is not there yet
    pairs = [("nnrs", "mle"), ("nnrs, targets", "nnrs")]
    lines = rebuild.contrasts_markdown(studies.contrasts_of_arms(found, pairs)).splitlines()[2:]
    # exp(∓0.02) are 0.98020 and 1.02020; p is 2/2³ and 2/2², and after Holm over two 2 · 1/4 and 1 · 1/2.
    assert lines == [
        "| nnrs - mle | -1.98 % | -1.98 % to -1.98 % | 3 | 0.25 | 0.5 |",
        "| nnrs, targets - nnrs | +2.02 % | +2.02 % to +2.02 % | 2 | 0.5 | 0.5 |",
    ]
    with pytest.raises(ValueError, match="too many values"):  # of two settings none stands for the arm
        studies.contrasts_of_arms([*found, *runs(4, "mle", 0.4, "inputs", 3.0)], pairs)


def test_gains_are_those_beside_teacher_forcing_that_is_regularised_as_much():
    def runs(group, method, settings, *nats):
        for seed, value in enumerate(nats):
            record = make_result(method, "toy", {"method": method, **settings}, group, seed, 2)
            yield Result(record | {"test_nats": value, "valid_perplexity": 7.0 + seed, "valid_nats": 9.0})

    little, much = {"dropout": "0.1"}, {"dropout": "0.4", "weight_dropout": "0.4"}
    found = [*runs(1, "mle", little, 3.00, 3.10, 3.05), *runs(2, "mle", much, 2.50, 2.60, 2.55)]
    found += [*runs(3, "ss", little, 2.96, 3.07, 3.00), *runs(4, "ss", much, 2.49, 2.59, 2.54)]
    assert rebuild.gains_markdown(found, "valid", studies.REGULARISATION).splitlines() == [
        "|  | mle, perplexity, valid | ss - mle |",
        "| --- | --- | --- |",
        "| dropout 0.1 | 8.00 | +0.00 % (+0.00 % to +0.00 %) |",
        "| dropout 0.4 · weight_dropout 0.4 | 8.00 | +0.00 % (+0.00 % to +0.00 %) |",
    ]
    # On test -0.04, -0.03, -0.05 and -0.01 thrice: beside each other -0.03, -0.02, -0.04, in the mean exp(-0.03) - 1;
    # 4.303 · 0.01/√3 = 0.02484 either way; p is 2/2³.
    ends = "dropout 0.1", "dropout 0.4 · weight_dropout 0.4"
    lines = rebuild.contrasts_markdown(studies.contrasts_of_degrees(found, ends, ["ss"])).splitlines()[2:]
    assert lines == [
        "| gain of ss: dropout 0.1 - dropout 0.4 · weight_dropout 0.4 "
        "| -2.96 % | -5.34 % to -0.51 % | 3 | 0.25 | 0.25 |"
    ]
    found += runs(5, "nnrs", little, 2.9, 2.9, 2.9)
    with pytest.raises(ValueError, match="has ss, where ss, nnrs were expected"):
        rebuild.gains_markdown(found, "valid", studies.REGULARISATION)


def test_settings_are_held_against_each_other_within_a_kind_of_model():
    def runs(group, method, settings, *nats):
        for seed, value in enumerate(nats):
            record = make_result(method, "toy", {"method": method, **settings}, group, seed, 2)
            yield Result(record | {"test_nats": value, "test_perplexity": 7.0})

    found = []
    for kind, rate, shift in (("gru", "5", 0.0), ("lstm", "20", 1.0)):
        settings = {"model": kind, "learning_rate": rate, "dropout": "0.1"}
        found += runs(int(rate), "mle", settings, 3.00 + shift, 3.10 + shift, 3.05 + shift)
        for k in range(1, 6):
            given, start = settings | {"k": str(k)}, 3.0 + shift - 0.01 * k
            found += runs(100 * k + int(rate), "nnrs", given, start, start + 0.1, start + 0.05)
    kinds = "model gru · learning_rate 5 · dropout 0.1", "model lstm · learning_rate 20 · dropout 0.1"
    rows = rebuild.gains_markdown(found, "test", studies.KINDS).splitlines()
    assert rows[:3] == [
        f"|  | {kinds[0]} | {kinds[1]} |",
        "| --- | --- | --- |",
        "| mle, perplexity, test | 7.00 | 7.00 |",
    ]
    assert len(rows) == 8
    pairs = [("nnrs · k 2", "mle"), ("nnrs · k 3", "nnrs · k 2")]
    lines = rebuild.contrasts_markdown(studies.contrasts_of_kinds(found, kinds[:1], pairs)).splitlines()[2:]
    # -0.02 and -0.01 by each seed: exp(-0.02) - 1 and exp(-0.01) - 1; p is 2/2³, and twice that after Holm.
    assert lines == [
        "| gru: nnrs · k 2 - mle | -1.98 % | -1.98 % to -1.98 % | 3 | 0.25 | 0.5 |",
        "| gru: nnrs · k 3 - nnrs · k 2 | -1.00 % | -1.00 % to -1.00 % | 3 | 0.25 | 0.5 |",
    ]


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_has_the_csv_that_its_records_make(study):
    written = (RESULTS / f"{study}.csv").read_text(encoding="utf-8")
    assert written == rebuild.table_csv(studies.records(study))


def test_the_pages_are_those_that_are_named_and_show_every_group_of_runs():
    pages = {path.stem: path.read_text(encoding="utf-8") for path in RESULTS.glob("*.html")}
    assert pages.keys() == rebuild.PAGES.keys()
    for study, page in pages.items():
        assert f"<h1>{rebuild.PAGES[study]}</h1>" in page
        data = re.search(r'<script id="data"[^>]*>(.*?)</script>', page, flags=re.DOTALL)
        shown = [len(group["seeds"]) for group in json.loads(data[1])["groups"]]
        results = studies.records(study)
        assert shown == list(Counter(result.group for result in results).values())
        assert sentences_of(page) == findings(results).sentences


def test_the_csv_of_table_1_begins_with_the_columns_of_the_paper():
    header = (RESULTS / "ptb-table1.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
    assert ",".join(header).startswith(
        "configuration,eps_start,eps_end,gamma_start,gamma_end,corpus,schedule,valid_ppl,test_ppl,our_valid_ppl,"
    )
    assert {"our_test_sd", "dose_neighbor", "effective_all", "seeds", "signature"} <= set(header)


def test_every_study_is_in_the_index_with_its_number_of_runs_and_all_of_it_is_small():
    index = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert sorted(rebuild.STUDIES) == STUDIES
    for study in STUDIES:
        assert re.search(rf"\| `{study}` \| {len(studies.records(study))}( of \d+)? \|", index), study
    assert sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()) < 10_000_000


@pytest.mark.parametrize("grid", sorted(path.name for path in RESULTS.glob("*.toml")))
def test_a_grid_beside_the_records_can_be_read_and_has_the_runs_that_the_index_says(
    grid, tmp_path, monkeypatch
):
    (tmp_path / "parallel").mkdir()  # its languages are read off its files
    for split in ("train", "valid", "test"):
        for language in ("de", "en"):
            (tmp_path / "parallel" / f"{split}.{language}").touch()
    monkeypatch.chdir(tmp_path)
    index = (RESULTS / "README.md").read_text(encoding="utf-8").split("\n")
    row = next(line for line in index if f"/{grid} " in line)
    runs = row.split(" | ")[1].split(" of ")[-1]  # of some a part is there
    assert len(read_plan(RESULTS / grid, "").cells) == int(runs)


def test_the_command_writes_documents_tables_pages_and_both_pictures(tmp_path, monkeypatch):
    docs = tmp_path / "docs"
    images, kept = docs / "images", DOCUMENTS[0].parent / "images"
    images.mkdir(parents=True)
    document = docs / "results.md"
    document.write_text("<!-- overview -->\nold\n<!-- end -->\n", encoding="utf-8")
    monkeypatch.setattr(rebuild, "DOCS", docs)
    monkeypatch.setattr(rebuild, "DOCUMENTS", [document])
    monkeypatch.setattr(rebuild, "OUT", tmp_path)
    monkeypatch.setattr(rebuild, "STUDIES", ("ptb-large",))
    monkeypatch.setattr(rebuild, "PAGES", {"ptb-large": "Large"})
    monkeypatch.setattr(rebuild, "SEARCHES", {})
    monkeypatch.setattr(rebuild, "GAINS", {})
    rebuild.main()
    assert (
        document.read_text(encoding="utf-8")
        == f"<!-- overview -->\n\n{overview.overview_markdown()}\n<!-- end -->\n"
    )
    assert (tmp_path / "ptb-large.csv").read_text() == (RESULTS / "ptb-large.csv").read_text()
    assert "<h1>Large</h1>" in (tmp_path / "ptb-large.html").read_text(encoding="utf-8")
    for name in ("overview.svg", "ptb-contrasts.svg"):
        titles = [re.findall(r"<text[^>]*>([^<]*)", (folder / name).read_text()) for folder in (images, kept)]
        assert titles[0] == titles[1]
