"""The plots and samples in a real browser: what is drawn of the chosen groups, and what stands beside it."""

import csv
import io
import math

import pytest
from tests.report.browser import PLOTS, Opened, saved
from tests.report.factory import EVIL, make_explorer, make_result, make_results

from nnrs.experiments.store import Result
from nnrs.report.page import build_page


@pytest.mark.parametrize("figure", PLOTS)
def test_each_plot_draws_marks(opened, figure):
    place = opened.drawn(figure)
    marks = place.locator("svg .role-mark.mark-line path, svg .role-mark.mark-symbol path")
    assert marks.count() > 1


def test_there_is_no_other_plot(opened):
    found = opened.page.locator("figure").evaluate_all("all => all.map((one) => one.id)")
    assert sorted(found) == sorted(f"figure-{name}" for name in PLOTS)


def test_validation_is_solid_and_test_dashed_for_each_group(opened):
    place = opened.drawn("learning")
    lines = place.locator("svg .role-mark.mark-line path").evaluate_all(
        "all => all.map((one) => one.getAttribute('stroke-dasharray'))"
    )
    rules = place.locator("svg .role-mark.mark-rule line").evaluate_all(
        "all => all.map((one) => one.getAttribute('stroke-dasharray'))"
    )
    assert lines == [None] * 4
    assert rules == ["6,4"] * 4


def numbers_along(opened, figure):
    """What stands along the lower axis of a plot."""
    axis = opened.drawn(figure).locator("svg [aria-label^='X-axis']")
    return axis.locator(".role-axis-label text").all_text_contents()


@pytest.mark.parametrize(("count", "ticks"), [(2, "0 1"), (3, "0 1 2"), (12, "0 2 4 6 8 10")])
def test_epochs_and_steps_are_whole_numbers_that_stand_there_once(chromium, tmp_path, count, ticks):
    records = make_results(groups=4, seeds=1, epochs=count)
    for score in (score for record in records for score in record["scores"] if "curve" in score):
        score["curve"] = {name: row[:count] for name, row in score["curve"].items()}
    path = tmp_path / "page.html"
    path.write_text(build_page([Result(record) for record in records], title="t"))
    opened = Opened(chromium, path)
    for figure in ("learning", "learning-differences", "temperature"):
        assert numbers_along(opened, figure) == ticks.split(), figure
    steps = [int(text) for text in numbers_along(opened, "exposure")]
    assert len(steps) > 1
    assert steps == sorted(set(steps))
    assert opened.errors == []
    opened.page.close()


def test_the_means_of_quality_and_diversity_stand_out_from_the_runs(opened):
    points = opened.drawn("tradeoff").locator("svg .role-mark.mark-symbol path")
    filled = points.evaluate_all("all => all.map((one) => one.getAttribute('fill-opacity'))")
    assert (filled.count("0.95"), filled.count("0.55")) == (4, 12)


def test_the_rows_behind_a_plot_are_the_means_of_the_runs(opened, results):
    opened.drawn("learning")
    rows = list(
        csv.DictReader(io.StringIO(saved(opened.page, "#figure-learning .tools button:nth-child(2)")))
    )
    mine = [row for row in rows if row["group"] == "nnrs"]
    runs = [result.epochs for result in results if result.labels["method"] == "nnrs"]
    for epoch, row in enumerate(mine):
        values = [run[epoch]["valid_perplexity"] for run in runs]
        assert float(row["valid"]) == pytest.approx(sum(values) / 3, rel=1e-5)
        assert float(row["low"]) == pytest.approx(min(values), rel=1e-5)
        assert float(row["high"]) == pytest.approx(max(values), rel=1e-5)
    assert len(mine) == 12


def test_every_tenth_of_the_text_is_a_point_with_the_mean_of_the_runs(opened, results):
    opened.drawn("deciles")
    made = saved(opened.page, "#figure-deciles .tools button:nth-child(2)")
    rows = [row for row in csv.DictReader(io.StringIO(made)) if row["group"] == "nnrs"]
    assert [int(row["decile"]) for row in rows] == list(range(1, 11))
    runs = [result.scores for result in results if result.labels["method"] == "nnrs"]
    for row in rows:
        metric = f"ppl-decile{row['decile']}"
        values = [score["value"] for scores in runs for score in scores if score["metric"] == metric]
        assert len(values) == 3
        assert float(row["perplexity"]) == pytest.approx(sum(values) / 3, rel=1e-5)
    assert numbers_along(opened, "deciles") == [str(tenth) for tenth in range(1, 11)]


def test_a_plot_can_be_had_as_svg(opened):
    opened.drawn("exposure")
    made = saved(opened.page, "#figure-exposure .tools button:nth-child(1)")
    assert made.startswith("<svg")
    assert "ss-nnrs" in made  # its legend is with it


def test_a_group_taken_out_of_the_plots_leaves_them(opened):
    page = opened.page
    legend = "#figure-learning svg .role-legend-label text"
    opened.drawn("learning")
    page.click("#chooser >> text=nnrs >> nth=0")
    page.wait_for_function("selector => document.querySelectorAll(selector).length === 3", arg=legend)
    assert page.locator(legend).all_text_contents() == ["mle", "ss", "ss-nnrs"]
    page.click("#chooser >> text=nnrs >> nth=0")
    page.wait_for_function("selector => document.querySelectorAll(selector).length === 4", arg=legend)


def test_samples_stand_side_by_side(opened, results):
    cards = opened.page.locator("#samples .card").all_inner_texts()
    first = {result.labels["method"]: result.record["samples"][0] for result in reversed(results)}
    assert len(cards) == 5  # the gold text and four methods
    for method, card in zip(first, reversed(cards), strict=False):
        assert card.split("\n")[0] == method
        assert " ".join(first[method]["generated"]) in card


@pytest.fixture
def two_texts(chromium, tmp_path):
    """mle and nnrs on two texts, all four in the plots; the second text has beginnings of its own."""
    made = [
        make_result(method, corpus, {"method": method, "corpus": corpus}, 10 * place + number, 1, 3)
        for place, corpus in enumerate(("ptb", "wikitext-2"))
        for number, method in enumerate(("nnrs", "mle"))
    ]
    for record in made[2:]:
        for number, sample in enumerate(record["samples"]):
            sample["prefix"] = ["elsewhere", str(number)]
        for line in record["epochs"]:
            line["valid_perplexity"] *= 10
    path = tmp_path / "page.html"
    path.write_text(build_page([Result(record) for record in made], title="t"))
    opened = Opened(chromium, path)
    for name in ("nnrs · wikitext-2", "mle · wikitext-2"):
        opened.page.locator("#chooser button", has_text=name).click()
    assert opened.page.locator("#chooser button[aria-pressed=true]").count() == 4
    yield opened, made
    assert opened.errors == []
    opened.page.close()


def test_samples_stand_under_the_beginnings_of_their_own_text(two_texts):
    opened, made = two_texts
    choice = opened.page.locator("#samples select")
    assert choice.locator("option").count() == 6  # three of each text
    for first, number, corpus in ((made[0], 0, "ptb"), (made[2], 4, "wikitext-2")):
        choice.select_option(str(number))
        gold, *cards = opened.page.locator("#samples .card").all_inner_texts()
        assert " ".join(first["samples"][number % 3]["prefix"]) in gold
        assert [card.split("\n")[0] for card in cards] == [f"nnrs · {corpus}", f"mle · {corpus}"]
        assert " ".join(first["samples"][number % 3]["generated"]) in cards[0]


@pytest.mark.parametrize(
    ("figure", "value"), [("learning-differences", "valid"), ("decile-differences", "perplexity")]
)
def test_differences_are_taken_to_teacher_forcing_on_the_same_text(two_texts, figure, value):
    opened, _ = two_texts
    opened.drawn(figure)
    rows = list(
        csv.DictReader(io.StringIO(saved(opened.page, f"#figure-{figure} .tools button:nth-child(2)")))
    )
    step = "epoch" if figure.startswith("learning") else "decile"
    values = {(row["group"], row[step]): float(row[value]) for row in rows}
    for row in rows:
        text = row["group"].split(" · ")[1]
        assert row["baseline"] == f"mle · {text}"
        ratio = values[row["group"], row[step]] / values[f"mle · {text}", row[step]]
        assert float(row["difference"]) == pytest.approx(math.log(ratio), abs=1e-9)


def page_of_rates(chromium, path, rates):
    """A page of methods, each trained at a learning rate of its own."""
    made = [make_result(name, "ptb", {"method": name}, number, 1, 3) for number, name in enumerate(rates)]
    for record, rate in zip(made, rates.values(), strict=True):
        record["config"]["optimizer"]["learning_rate"] = rate
    path.write_text(build_page([Result(record) for record in made], title="t"))
    return Opened(chromium, path)


@pytest.mark.parametrize("figure", ["learning-differences", "decile-differences"])
def test_a_group_has_no_difference_where_no_teacher_forcing_was_trained_as_it_was(chromium, tmp_path, figure):
    rates = {"mle": 20.0, "ss": 0.005, "nnrs": 0.005, "ss-nnrs": 20.0}
    opened = page_of_rates(chromium, tmp_path / "page.html", rates)
    place = opened.drawn(figure)
    assert place.locator("svg .role-legend-label text").all_text_contents() == ["mle", "ss-nnrs"]
    assert place.locator(".without").is_hidden()
    made = saved(opened.page, f"#figure-{figure} .tools button:nth-child(2)")
    rows = list(csv.DictReader(io.StringIO(made)))
    assert {(row["group"], row["baseline"]) for row in rows} == {
        ("mle", "mle"),
        ("ss", ""),
        ("nnrs", ""),
        ("ss-nnrs", "mle"),
    }
    assert all(bool(row["difference"]) == bool(row["baseline"]) for row in rows)
    assert opened.errors == []
    opened.page.close()


@pytest.mark.parametrize("figure", ["learning-differences", "decile-differences"])
def test_where_no_group_has_its_baseline_a_sentence_says_so_until_one_has(chromium, tmp_path, figure):
    rates = {"mle": 20.0, "ss": 0.005, "nnrs": 20.0}
    opened = page_of_rates(chromium, tmp_path / "page.html", rates)
    place, chosen = opened.drawn(figure), opened.page.locator("#chooser button", has_text="nnrs")
    chosen.click()
    place.scroll_into_view_if_needed()
    place.locator(".without").wait_for(state="visible")
    assert (
        place.locator(".without").inner_text().startswith("Nothing to compare with: no chosen group has its")
    )
    assert place.locator(".plot").is_hidden()
    assert place.locator(".tools").is_hidden()
    chosen.click()
    place.scroll_into_view_if_needed()
    place.locator(".without").wait_for(state="hidden")
    assert place.locator(".plot svg").is_visible()
    assert opened.errors == []
    opened.page.close()


def test_a_page_without_teacher_forcing_says_that_there_is_nothing_to_compare_with(chromium, tmp_path):
    opened = page_of_rates(chromium, tmp_path / "page.html", {"ss": 20.0, "nnrs": 20.0})
    place = opened.page.locator("#figure-learning-differences")
    place.scroll_into_view_if_needed()
    place.locator(".without").wait_for(state="visible")
    assert opened.errors == []
    opened.page.close()


def test_the_trajectory_shows_gold_neighbor_and_prediction_and_joins_what_was_taken(opened, results):
    opened.drawn("trajectory")
    rows = list(
        csv.DictReader(io.StringIO(saved(opened.page, "#figure-trajectory .tools button:nth-child(2)")))
    )
    told = next(r.record["trajectory"] for r in results if r.labels["method"] == "ss-nnrs")
    for step, source in enumerate(told["sources"]):
        lanes = {row["lane"]: row for row in rows if row["step"] == str(step)}
        assert list(lanes) == ["gold", "neighbor", "prediction"]
        assert [lane for lane, row in lanes.items() if row["taken"] == "true"] == [source]
        assert lanes["gold"]["word"] == told["gold"][step]
        for lane in ("neighbor", "prediction"):
            assert lanes[lane]["word"] == told["inputs" if source == lane else f"{lane}s"][step]


def test_on_paper_stand_plots_that_no_one_has_scrolled_to(chromium, html):
    opened = Opened(chromium, html)
    marks = """() => Object.fromEntries([...document.querySelectorAll("figure")].map((one) => [one.id,
        one.querySelectorAll("svg .role-mark.mark-line path, svg .role-mark.mark-symbol path").length]))"""
    assert min(opened.page.evaluate(marks).values()) == 0  # as yet
    opened.page.evaluate(f"addEventListener('afterprint', () => {{ window.printed = ({marks})(); }})")
    before = opened.page.pdf()
    printed = opened.page.evaluate("window.printed")
    assert sorted(printed) == sorted(f"figure-{name}" for name in PLOTS)
    assert min(printed.values()) > 1
    for figure in PLOTS:
        opened.drawn(figure)
    assert len(before) == pytest.approx(len(opened.page.pdf()), rel=0.01)  # nothing came with the scrolling
    assert opened.errors == []
    opened.page.close()


def translation(method, group, **trajectory):
    """A finished run that translates, as a grid would have stored it."""
    record = make_result(method, "pairs", {"method": method}, group, 1, 3)
    record["config"]["data"] |= {"task": "translate", "from_language": "de", "to_language": "en"}
    for number, sample in enumerate(record["samples"]):
        sample |= {"prefix": ["ein", "Satz", str(number)], "gold": ["a", "sentence", str(number)]}
        sample["generated"] = ["one", method, str(number)]
    record["trajectory"] = {**record["trajectory"], **trajectory} if trajectory else None
    return record


def test_a_translation_shows_its_source_the_gold_translation_and_ours(chromium, tmp_path):
    records = [translation(method, group) for group, method in enumerate(("mle", "ss"))]
    records.append(make_result("mle", "ptb", {"method": "text"}, 7, 1, 3))
    path = tmp_path / "page.html"
    path.write_text(build_page([Result(record) for record in records], title="t"))
    opened = Opened(chromium, path)
    page = opened.page
    page.locator("#chooser button", has_text="text").click()
    page.select_option("#samples select", label="ein Satz 1 …")
    cards = [card.split("\n\n") for card in page.locator("#samples .card").all_inner_texts()]
    assert cards == [
        ["Source", "ein Satz 1"],
        ["Gold translation", "a sentence 1"],
        ["Our translation: mle · pairs", "one mle 1"],
        ["Our translation: ss · pairs", "one ss 1"],
    ]
    told = page.inner_text("#samples")
    assert "Translations of the same sentence" in told
    assert "ontinuation" not in told
    assert "eginning" not in told
    page.locator("#samples select").select_option(index=3)  # beside them, a text that goes on
    assert "Continuations of the same words" in page.inner_text("#samples")
    assert "The beginning, and how the text really goes on" in page.inner_text("#samples")
    assert opened.errors == []
    page.close()


def test_a_translations_trajectory_stands_beside_its_source_and_a_run_without_one_is_left_out(
    chromium, tmp_path
):
    known = translation("nnrs", 1, translates=["ein", EVIL])
    for records, shown in (([known, translation("ss", 2)], True), ([translation("ss", 2)], False)):
        path = tmp_path / f"{shown}.html"
        page_of = build_page([Result(record) for record in records], title="t", explorer=make_explorer())
        path.write_text(page_of)
        opened = Opened(chromium, path)
        assert opened.page.locator("#trajectory").is_visible() == shown
        if shown:
            opened.drawn("trajectory")
            assert opened.page.locator("#trajectory option").all_inner_texts() == ["nnrs"]
            assert opened.page.inner_text("#trajectory .translates") == f"Source: ein {EVIL}"
        assert opened.page.locator("#explore-curriculum").is_hidden()  # whose predictions had no source
        assert opened.errors == []
        opened.page.close()


def opened_after(chromium, html, script):
    """The page, opened after a script of ours has run in it."""
    page = chromium.new_page()
    page.add_init_script(script)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(html.as_uri(), wait_until="load")
    return page, errors


def test_what_draws_the_plots_is_there_when_the_page_has_loaded(chromium, html):
    heard = "addEventListener('load', () => { window.drawsAtLoad = typeof window.vegaEmbed; })"
    page, errors = opened_after(chromium, html, heard)
    assert page.evaluate("window.drawsAtLoad") == "function"
    assert page.locator("iframe").count() == 0
    assert errors == []
    page.close()


def test_a_browser_that_cannot_unpack_the_plots_says_so_in_their_place(chromium, html):
    page, errors = opened_after(chromium, html, "delete window.DecompressionStream")
    page.locator("#figure-learning").scroll_into_view_if_needed()
    page.get_by_text(
        "This browser cannot unpack the plots: open the page in one of 2023 or later."
    ).first.wait_for()
    page.click("#figure-learning .tools button:nth-child(1)")
    assert "perplexity" in page.inner_text("#table")
    assert errors == []
    page.close()


def test_a_plot_can_be_downloaded_before_it_was_seen(chromium, html):
    page, errors = opened_after(
        chromium, html, "window.IntersectionObserver = class { observe() {} unobserve() {} };"
    )
    assert page.locator(".plot svg").count() == 0
    assert "<svg" in saved(page, "#figure-learning .tools button:nth-child(1)")
    assert errors == []
    page.close()
