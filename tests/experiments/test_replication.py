"""Table 1 in small: real runs of some of its rows, what the table says of them, and of runs beside the paper's."""

import csv
import math
import random
from pathlib import Path
from statistics import fmean

import pytest
import torch

from nnrs.experiments.paper import SCHEDULES, plan, printed, published
from nnrs.experiments.paper_figures import curves, write_figures
from nnrs.experiments.prepare import Shelf
from nnrs.experiments.replication import entries, table1, table1_lines
from nnrs.experiments.store import Result, collect
from nnrs.experiments.table import lines_csv
from nnrs.experiments.text_tables import text_lines, text_table
from nnrs.experiments.work import Place, work_on
from nnrs.grid_directory import GridDirectory
from nnrs.schedules import Schedule, progress

LINES, WORDS, EPOCHS, BATCH = 1000, 8, 4, 32
CHOSEN = {
    ("No Sampling", ""),
    ("TPRS-3", "linear"),
    *(("NNRS-1", schedule) for schedule in SCHEDULES),
    ("NNRS-3", "static"),
    ("SS-2", "exponential"),
    ("SS-4", "static"),
    ("SS-NNRS-4", "linear"),
    ("SS-NNRS-7", "static"),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """Rows of Table 1 on sentences of 8 words, each with a vector: 8 of 9 tokens are replaceable, <eos> is not."""
    folder = tmp_path_factory.mktemp("text")
    draws = random.Random(0)
    for split, lines in (("train", LINES), ("valid", 60), ("test", 60)):
        sentences = [" ".join(f"w{draws.randrange(40):02d}" for _ in range(WORDS)) for _ in range(lines)]
        (folder / f"{split}.txt").write_text("\n".join(sentences) + "\n")
    options = {"preset": "tiny", "units": 16, "epochs": EPOCHS, "batch_size": BATCH, "learning_rate": 5.0}
    whole = plan("table1", {"small": str(folder)}, options, [1], command="")
    return carried_out(
        whole, tmp_path_factory.mktemp("grid"), lambda cell: (cell["row"], cell.get("schedule", "")) in CHOSEN
    )


def carried_out(whole, out: Path, wanted) -> list[Result]:
    cells = tuple(cell for cell in whole.cells if wanted(cell.labels))
    made = type(whole)(
        kind=whole.kind, title=whole.title, command="", cells=cells, request=type(whole.request)()
    )
    grid = GridDirectory(out)
    with grid.opened():
        grid.write_plan(made.as_dict())
    place = Place(grid=grid, device=torch.device("cpu"), threads=1, shelf=Shelf())
    news = [item for cell in made.cells for item in work_on([cell], made.request, place)]
    assert [item.error for item in news if item.how not in ("measuring", "done")] == []
    return collect(out)


def expected_rates(line: dict[str, object]) -> dict[str, float]:
    """What Eq. 6 makes of a row: a neighbor with γ(1 − ε/2), a prediction with ε(1 − γ/2), where γ can act at all."""
    share = WORDS / (WORDS + 1)
    start = "eps_start", "eps_end", "gamma_start", "gamma_end"
    ends = [float(line[name]) for name in start]
    at = [progress(epoch, EPOCHS) for epoch in range(EPOCHS)]
    shape = str(line["schedule"])
    epsilon = [Schedule(shape, *ends[:2])(z) for z in at]
    gamma = [Schedule(shape, *ends[2:])(z) for z in at]
    both = [e * g for e, g in zip(epsilon, gamma, strict=True)]
    scored = int(str(line["best_epoch"])) + 1
    return {
        "dose_prediction": fmean(epsilon),
        "dose_neighbor": fmean(gamma),
        "effective_prediction": fmean(epsilon[:scored]) - share * fmean(both[:scored]) / 2,
        "effective_neighbor": share * (fmean(gamma[:scored]) - fmean(both[:scored]) / 2),
    }


def test_effective_rates_in_the_table_are_dose_times_replaceable_share(results):
    """Five standard errors of as many draws are allowed; and the first input of a row has no prediction to take."""
    draws = LINES * (WORDS + 1) * EPOCHS
    lines = table1_lines(results)
    assert len(lines) == len(CHOSEN) + 3  # teacher forcing stands under four schedules
    for line in lines:
        for name, rate in expected_rates(line).items():
            noise = 5 * math.sqrt(rate * (1 - rate) / draws) + rate * BATCH * EPOCHS / draws
            allowed = 1e-9 if name.startswith("dose") else noise
            assert line[name] == pytest.approx(rate, abs=allowed), f"{line['configuration']} {name}"
        together = line["effective_prediction"] + line["effective_neighbor"]
        assert line["effective_all"] == pytest.approx(together, abs=1e-9)


def test_of_one_source_the_effective_rate_is_the_dose_times_the_share(results):
    """The same without a formula to get wrong: NNRS-1 asks for 0.2, static, of 8 replaceable tokens in 9."""
    [line] = [
        line
        for line in table1_lines(results)
        if (line["configuration"], line["schedule"]) == ("NNRS-1", "static")
    ]
    assert line["dose_neighbor"] == pytest.approx(0.2)
    assert line["effective_neighbor"] == pytest.approx(0.2 * 8 / 9, abs=0.008)
    assert line["effective_prediction"] == 0.0


def test_rows_differ_where_their_settings_do(results):
    perplexities = {(result.name): result.record["test_perplexity"] for result in results}
    assert len(set(perplexities.values())) == len(CHOSEN)


def test_the_csv_begins_with_the_columns_of_the_papers_own_and_goes_on_with_ours(results):
    lines = table1_lines(results)
    text = lines_csv(lines)
    made = list(csv.DictReader(text.splitlines()))
    theirs = list(printed("table1_perplexity")[0])
    assert list(made[0])[: len(theirs)] == theirs
    assert made[0]["test_ppl"] == ""  # the paper knows no such text
    assert float(made[0]["our_test_ppl"]) == pytest.approx(results[0].record["test_perplexity"])
    assert made[0]["our_test_sd"] == ""  # of one seed
    assert made[0]["seeds"] == "1"
    assert made[0]["signature"] == results[0].record["signature"]


def as_if(result: Result, *, seed: int = 1, **values: float) -> Result:
    """The result as if it were of PTB, with these perplexities."""
    labels = {**result.labels, "corpus": "ptb"}
    return Result({**result.record, "labels": labels, "seed": seed, **values})


def test_ours_stand_beside_the_papers_with_mean_spread_and_difference(results):
    mle, nnrs = results[0], next(one for one in results if one.name.startswith("NNRS-1_static"))
    given = [
        as_if(mle, seed=1, valid_perplexity=80.0, test_perplexity=76.0),
        as_if(mle, seed=2, valid_perplexity=82.0, test_perplexity=78.0),
        as_if(nnrs, seed=1, valid_perplexity=79.0, test_perplexity=75.0),
    ]
    lines = {(line["configuration"], line["schedule"]): line for line in table1_lines(given)}
    line = lines["No Sampling", "exponential"]
    assert (line["valid_ppl"], line["test_ppl"]) == (76.25, 71.81)
    assert (line["our_valid_ppl"], line["our_test_ppl"]) == (81.0, 77.0)
    assert line["our_test_sd"] == pytest.approx(math.sqrt(2))
    assert line["difference"] == pytest.approx(77.0 - 71.81)
    assert line["seeds"] == "1 2"
    assert "|seed:1,2|" in line["signature"]
    theirs = published({"row": "NNRS-1", "schedule": "static", "corpus": "ptb"})
    assert lines["NNRS-1", "static"]["difference"] == pytest.approx(75.0 - theirs["ppl|test"])
    [shown] = table1(given)
    cells = dict(zip(shown.columns, shown.rows[0], strict=True))
    assert cells["linear"] == cells["static"] == "81.00 / 77.00 ± 1.41\n76.25 / 71.81 +5.19"
    cells = dict(zip(shown.columns, shown.rows[1], strict=True))
    assert (cells["configuration"], cells["ε"], cells["γ"]) == ("NNRS-1", "0", "0→0.2")
    assert cells["linear"] == "-"  # no such run yet
    assert cells["static"].splitlines()[0] == "79.00 / 75.00**"
    assert cells["static"].splitlines()[2].startswith("γ 0.20 > 0.1")


def test_the_best_of_a_group_is_chosen_on_validation_whatever_the_test_says(results):
    def of(name: str, valid: float, test: float) -> Result:
        found = next(one for one in results if one.name.startswith(name))
        return as_if(found, valid_perplexity=valid, test_perplexity=test)

    made = [
        of("No-Sampling", 70.0, 90.0),
        of("NNRS-1_static", 80.0, 60.0),
        of("NNRS-3_static", 79.0, 99.0),
        of("NNRS-1_linear", 90.0, 50.0),
    ]
    marks = {(entry.row.name, entry.schedule): entry.mark for entry in entries(made)}
    assert marks["NNRS-3", "static"] == "*"
    assert marks["NNRS-1", "static"] == ""
    assert marks["NNRS-1", "linear"] == ""  # alone: the best of one says nothing
    assert marks["No Sampling", "static"] == "**"


def test_the_figure_has_a_solid_curve_and_a_dashed_line_for_every_run(results):
    figure = curves(entries(results))
    values = figure["data"]["values"]
    nnrs = [value for value in values if (value["row"], value["schedule"]) == ("NNRS-1", "static")]
    run = next(result for result in results if result.name.startswith("NNRS-1_static"))
    assert [value["perplexity"] for value in nnrs if value["split"] == "valid"] == [
        epoch["valid_perplexity"] for epoch in run.epochs
    ]
    assert [value["perplexity"] for value in nnrs if value["split"] == "test"] == [
        run.record["test_perplexity"]
    ]
    solid, dashed = figure["spec"]["layer"]
    assert "strokeDash" not in solid["mark"]
    assert dashed["mark"]["strokeDash"]
    panels = {(value["family"], value["schedule"]) for value in values if value["row"] == "No Sampling"}
    assert len(panels) == 16


def test_the_figure_is_drawn_with_as_many_dashed_lines_as_there_are_test_scores(results, tmp_path):
    [path] = write_figures(results, tmp_path)
    assert path == tmp_path / "figures" / "small.svg"
    values = curves(entries(results))["data"]["values"]
    drawn = path.read_text()
    assert drawn.startswith("<svg")
    assert drawn.count("stroke-dasharray") == sum(value["split"] == "test" for value in values)


def with_scores(row: str, model: str, test: float, sentences: int = 5) -> Result:
    """What Tables 2 and 3 read of a result."""
    scores = [
        {
            "metric": metric,
            "value": test + shift,
            "signature": f"{metric}|n:{sentences}|decode:{decode}|split:{split}|data:ptb|seed:1",
        }
        for metric in ("bleu4", "self-bleu4", "self-wmd", "wmd-scaled")
        for decode, decode_shift in (("sample", 0.0), ("teacher-forced", 100.0))
        for split, split_shift in (("valid", 1.0), ("test", 0.0))
        for shift in (decode_shift + split_shift,)
    ]
    dose, effective = {"prediction": 0.0, "neighbor": 0.2}, {"prediction": 0.0, "neighbor": 0.15, "all": 0.15}
    return Result(
        {
            "labels": {"method": "nnrs", "row": row, "model": model, "corpus": "ptb"},
            "seed": 1,
            "group": f"{row}{model}",
            "names": {"corpus": "ptb"},
            "signature": "ppl|split:test|data:ptb|seed:1",
            "scores": scores,
            "dose": dose,
            "effective": effective,
        }
    )


def test_tables_2_and_3_keep_the_two_ways_of_predicting_apart():
    given = [with_scores("NNRS", "lstm", 7.0), with_scores("NNRS", "gru", 8.0)]
    sample, forced = text_table("table2", given)
    assert sample.title.startswith("ptb, sample")
    assert forced.title.startswith("ptb, teacher-forced")
    assert sample.columns == ("metric", "model", "MLE", "TPRS", "NNRS", "SS", "SS-NNRS")
    assert len(sample.rows) == 6  # two metrics of three models
    assert sample.rows[0][:2] == ("self-bleu4 (lower is better)", "lstm")
    assert sample.rows[0][4] == "8.00 / 7.00\n7.38 / 7.83 -0.83\nγ 0.20 > 0.15"
    assert forced.rows[0][4] == "108.00 / 107.00\n7.38 / 7.83 +99.17\nγ 0.20 > 0.15"
    assert (
        sample.rows[3][4] == "8.0000 / 7.0000\n0.35 / 0.30\nγ 0.20 > 0.15"
    )  # nobody knows the paper's scale
    assert sample.rows[0][2] == "-"
    lines = text_lines("table2", given)
    first = lines[0]
    assert list(first)[:6] == list(printed("table2_diversity")[0])
    assert (first["our_valid"], first["our_test"], first["test"]) == (8.0, 7.0, 7.83)
    assert first["difference"] == pytest.approx(7.0 - 7.83)
    [distance] = [line for line in lines if line["metric"] == "self_wmd" and line["model"] == "lstm"][:1]
    assert distance["test"] == 0.3
    assert distance["difference"] is None
    assert first["signature"] == "self-bleu4|n:5|decode:sample|split:test|data:ptb|seed:1"


def test_the_best_of_a_line_is_chosen_on_validation_and_where_higher_is_better_it_is_the_highest():
    def of(row: str, valid: float, test: float) -> Result:
        made = with_scores(row, "lstm", test)
        for score in made.scores:
            score["value"] = valid if "split:valid" in score["signature"] else test
        return made

    given = [of("NNRS", 5.0, 9.0), of("SS", 6.0, 8.0), of("MLE", 7.0, 7.0)]
    best = {(line["our_metric"], line["method"]) for line in text_lines("table2", given) if line["best"]}
    assert best == {("self-bleu4", "NNRS"), ("self-wmd", "MLE")}
    shown, _ = text_table("table3", given)
    cells = dict(zip(shown.columns, shown.rows[0], strict=True))
    assert cells["MLE"].splitlines()[0] == "7.00 / 7.00*"  # bleu4
    assert cells["NNRS"].splitlines()[0] == "5.00 / 9.00"


def test_scores_of_other_sentences_stand_in_a_table_of_their_own():
    given = [with_scores("NNRS", "lstm", 7.0), with_scores("SS", "lstm", 6.0, sentences=9)]
    tables = text_table("table3", given)
    bleus = {shown.title.split(".")[0]: shown.rows[0] for shown in tables}
    assert bleus["ptb, sample, n:5"][4].startswith("8.00 / 7.00")
    assert bleus["ptb, sample, n:5"][5].startswith("- / -")
    assert bleus["ptb, sample, n:9"][5].startswith("7.00 / 6.00")
    assert not any(line["best"] for line in text_lines("table3", given) if line["our_metric"] == "bleu4")


def test_a_grid_over_models_is_no_table_of_the_paper():
    given = with_scores("NNRS", "lstm", 7.0)
    assert text_lines("table2", [given])
    of_table1 = with_scores("NNRS-1", "lstm", 7.0)
    del of_table1.labels["model"]
    assert text_lines("table2", [of_table1]) == []
    del given.labels["row"]
    assert text_lines("table2", [given]) == []
    assert text_table("table3", [given]) == []
