"""The page in a real browser: it draws, it answers, it asks nobody, and it shows a script as text."""

import csv
import io
import math
import re

import pytest
import torch
from tests.report.browser import Opened
from tests.report.factory import EVIL, make_explorer, make_result, make_results

from nnrs.experiments.store import Result
from nnrs.neighbors.probabilities import effective_neighbors, neighbor_probabilities, pick
from nnrs.policies.functional import settle_claims
from nnrs.report.page import build_page

PLOTS = [
    *("learning", "learning-differences", "predictions", "neighbors", "temperature", "effective-neighbors"),
    *(
        "exposure",
        "tradeoff",
        "deciles",
        "decile-differences",
        "noise-neighbor",
        "noise-unigram",
        "noise-own",
    ),
    "trajectory",
]


def slide(page, slider, value):
    """Move a slider as a mouse would."""
    page.locator(slider).evaluate(
        "(element, value) => { element.value = value; element.dispatchEvent(new Event('input')); }",
        str(value),
    )


def saved(page, button):
    """The text of what a button downloads."""
    with page.expect_download() as download:
        page.click(button)
    return download.value.path().read_text()


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


def test_a_plot_can_be_had_as_svg(opened):
    opened.drawn("exposure")
    made = saved(opened.page, "#figure-exposure .tools button:nth-child(1)")
    assert made.startswith("<svg")
    assert "ss-nnrs" in made  # its legend is with it


@pytest.mark.parametrize("temperature", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("word", ["people", EVIL, "word7"])
def test_the_neighbor_explorer_gives_the_librarys_probabilities(opened, word, temperature):
    explorer = make_explorer()
    row = explorer["words"].index(word)
    opened.page.fill("#word", word)
    slide(opened.page, "#tau", f"{torch.tensor(temperature).log10().item():.3f}")
    tau = float(opened.page.input_value("#tau"))
    similarities = torch.tensor(explorer["similarities"][row], dtype=torch.float64)
    expected = neighbor_probabilities(similarities, 10**tau).tolist()
    lines = opened.page.locator("#explore-neighbors .bars li:not(.titles)")
    shown = lines.locator(".share").all_inner_texts()
    assert [float(text) for text in shown] == pytest.approx(expected, abs=5.1e-5)
    names = [explorer["words"][index] for index in explorer["neighbors"][row]]
    assert lines.locator("button").all_inner_texts() == names
    count = effective_neighbors(similarities[None], 10**tau, torch.ones(1, dtype=torch.float64))
    assert f"like {count:.2f} equally likely" in opened.page.inner_text("#explore-neighbors .note")


def test_a_word_without_neighbors_is_said_to_have_none(opened):
    opened.page.fill("#word", "peo")
    assert "has no neighbors here" in opened.page.inner_text("#explore-neighbors .note")
    assert "people" in opened.page.inner_text("#explore-neighbors .note")
    assert opened.page.locator("#explore-neighbors .bars li").count() == 0


def test_a_neighbor_can_be_followed(opened):
    explorer = make_explorer()
    opened.page.fill("#word", "people")
    opened.page.locator("#explore-neighbors .bars button").first.click()
    follower = explorer["words"][explorer["neighbors"][explorer["words"].index("people")][0]]
    assert opened.page.input_value("#word") == follower


def chosen_by_library(explorer, sentence, rates):
    """The words and sources that the library's own functions give for these draws."""
    rows = [0 if row is None else row for row in sentence["rows"]]
    has = torch.tensor([row is not None for row in sentence["rows"]])
    draws = {
        name: torch.tensor(sentence[name], dtype=torch.float64)
        for name in ("prediction_draws", "neighbor_draws", "coins", "picks")
    }
    takes_prediction, takes_neighbor = settle_claims(
        draws["prediction_draws"] < rates["prediction_rate"],
        (draws["neighbor_draws"] < rates["neighbor_rate"]) & has,
        draws["coins"] < 0.5,
    )
    similarities = torch.tensor([explorer["similarities"][row] for row in rows], dtype=torch.float64)
    slots = pick(neighbor_probabilities(similarities, rates["temperature"]), draws["picks"]).tolist()
    for place, word in enumerate(sentence["words"]):
        if takes_neighbor[place]:
            yield "neighbor", explorer["words"][explorer["neighbors"][rows[place]][slots[place]]]
        elif takes_prediction[place]:
            yield "prediction", sentence["predictions"][place]
        else:
            yield "gold", word


@pytest.mark.parametrize("method", ["ss", "nnrs", "ss-nnrs"])
def test_the_curriculum_explorer_replaces_what_the_library_would(opened, results, method):
    explorer, page = make_explorer(), opened.page
    epochs = next(result.epochs for result in results if result.labels["method"] == method)
    controls = page.locator("#explore-curriculum select")
    controls.nth(1).select_option(label=method)
    seen = set()
    for number, sentence in enumerate(explorer["sentences"]):
        controls.nth(0).select_option(str(number))
        for epoch, rates in enumerate(epochs):
            slide(page, "#epoch", epoch)
            words = page.locator("#explore-curriculum .word")
            expected = list(chosen_by_library(explorer, sentence, rates))
            assert words.evaluate_all("all => all.map((one) => one.dataset.source)") == [
                source for source, _ in expected
            ]
            assert words.locator("span").all_inner_texts() == [word for _, word in expected]
            seen |= {source for source, _ in expected}
    assert seen >= {"gold", "neighbor"} if method == "nnrs" else seen >= {"gold", "prediction"}


def test_the_curriculum_explorer_offers_only_settings_whose_words_it_knows(chromium, tmp_path):
    settings = {"ss": "ptb", "nnrs": "ptb", "tprs": "ptb", "ss-nnrs": "wikitext-2"}
    made = [
        make_result("ss-nnrs", corpus, {"method": method, "corpus": corpus}, index, 1, 3)
        for index, (method, corpus) in enumerate(settings.items())
    ]
    for record in made:
        record["config"]["policy"]["method"] = record["labels"]["method"]
    for name, value in (("k", 3), ("vectors", "glove"), ("max_vocabulary", 50)):
        record = make_result("ss-nnrs", "ptb", {"method": "ss-nnrs", "other": name}, len(made), 1, 3)
        place = (
            record["names"] if name == "vectors" else record["config"]["policy" if name == "k" else "data"]
        )
        place[name] = value
        made.append(record)
    path = tmp_path / "page.html"
    path.write_text(build_page([Result(record) for record in made], title="t", explorer=make_explorer()))
    opened = Opened(chromium, path)
    offered = opened.page.locator("#explore-curriculum select").nth(1).locator("option").all_inner_texts()
    assert [name.split()[0] for name in offered] == ["ss", "nnrs"]
    assert "a finished run of ss-nnrs on ptb" in opened.page.locator("#explore-curriculum .note").inner_text()
    assert opened.errors == []


def test_a_click_on_a_heading_sorts_and_another_turns_it_around(opened):
    page = opened.page
    head = page.locator("#table thead th", has_text="perplexity test")

    def values():
        return [float(text) for text in page.locator("#table tbody tr td:nth-child(4) b").all_inner_texts()]

    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert values() == sorted(values())
    head.locator("button").press("Enter")  # the keyboard does as well
    assert head.get_attribute("aria-sort") == "descending"
    assert values() == sorted(values(), reverse=True)
    page.locator("#table thead th", has_text="setting").locator("button").click()
    assert opened.names() == ["mle", "nnrs", "ss", "ss-nnrs"]


def test_a_row_opens_by_keyboard_to_its_seeds_signature_and_command(opened, results):
    page = opened.page
    row = page.locator("#table .open", has_text=re.compile("^nnrs$"))
    row.focus()
    page.keyboard.press("Enter")
    inside = page.locator("#table tr.detail")
    told = inside.inner_text()
    first = next(result.record for result in results if result.labels["method"] == "nnrs")
    assert f"seed 1: {first['valid_perplexity']:.3f}" in told
    assert first["signature"].replace("|seed:1|", "|seed:1,2,3|") in told
    assert "nnrs train --data ptb --method nnrs --epochs 12 --seeds 1,2,3" in told
    assert "nnrs evaluate RUN --metrics all --split test --decode sample --sentences 1000" in told
    page.keyboard.press("Enter")  # the focus has stayed
    assert inside.count() == 0


def test_the_rows_can_be_runs(opened, results):
    page = opened.page
    page.click("text=by run")
    assert len(opened.names()) == 12
    page.click("text=by setting")
    assert len(opened.names()) == 4


def test_the_filter_keeps_what_it_names(opened):
    opened.page.fill("#table input[type=search]", "nnrs")
    assert sorted(opened.names()) == ["nnrs", "ss-nnrs"]
    opened.page.fill("#table input[type=search]", "")
    assert len(opened.names()) == 4


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


def test_contrasts_are_in_the_summary(opened):
    assert opened.page.locator("#summary .lead li").count() > 2
    assert opened.page.locator("#contrasts tbody tr").count() == 4


def test_a_word_that_is_a_script_is_shown_as_text_and_never_run(opened):
    page = opened.page
    for figure in PLOTS:
        opened.drawn(figure)
    assert page.locator("main script, main b:has-text('bold')").count() == 0
    assert page.inner_text("h1") == "A <b>bold</b> title"
    assert EVIL in page.inner_text("#samples") or EVIL in page.inner_text("#explore-curriculum")
    assert "<script>alert(…" in page.locator("#figure-trajectory svg").text_content()  # shortened
    assert opened.dialogs == []


def test_it_speaks_of_no_error_and_asks_no_other_host(opened):
    for figure in PLOTS:
        opened.drawn(figure)
    assert opened.errors == []
    assert [url for url in opened.requests if not url.startswith(("data:", "blob:"))] == [opened.url]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_screen(chromium, html, scheme):
    phone = Opened(chromium, html, width=400, scheme=scheme)
    for figure in PLOTS:
        phone.drawn(figure)
    phone.page.locator("#table .open").first.click()
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 400
    wide = phone.page.locator("main *").evaluate_all(
        """all => all.filter((one) => !one.closest('.scroll, .chooser, svg'))
               .filter((one) => one.getBoundingClientRect().right > 401).map((one) => one.outerHTML.slice(0, 80))"""
    )
    assert wide == []
    assert phone.errors == []
    phone.page.close()


def luminance(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_themes(chromium, html, scheme):
    opened = Opened(chromium, html, scheme=scheme)
    style = "name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()"
    for behind in ("--paper", "--card", "--panel"):
        back = luminance(opened.page.evaluate(style, behind))
        for name in ("--ink", "--muted", "--accent", "--gold", "--neighbor", "--prediction"):
            front = luminance(opened.page.evaluate(style, name))
            contrast = (max(front, back) + 0.05) / (min(front, back) + 0.05)
            assert contrast >= 4.5, f"{name} on {behind}: {contrast:.2f}"  # WCAG AA
    opened.page.close()


def test_the_tab_key_goes_from_the_skip_link_to_every_control(chromium, html):
    opened = Opened(chromium, html)
    reached = []
    for _ in range(130):
        opened.page.keyboard.press("Tab")
        reached.append(
            opened.page.evaluate(
                "document.activeElement.id || document.activeElement.textContent.slice(0, 40)"
            )
        )
    assert reached[0] == "Skip to the summary"
    assert {"word", "tau", "epoch", "Play", "SVG", "CSV", "perplexity test", "by run"} <= set(reached)
    opened.page.focus("#tau")
    before = opened.page.inner_text("#tau-shown")
    opened.page.keyboard.press("ArrowRight")
    assert opened.page.inner_text("#tau-shown") > before
    opened.page.close()


def test_many_groups_are_paged_and_can_be_added_to_the_plots(chromium, tmp_path):
    records = make_results(groups=60, seeds=1, epochs=4, corpora=("ptb", "wikitext-2"))
    (tmp_path / "many.html").write_text(build_page([Result(record) for record in records], title="Many"))
    opened = Opened(chromium, tmp_path / "many.html")
    page = opened.page
    assert len(opened.names()) == 25
    first = opened.names()
    page.click("#table .pager >> text=Next")
    assert len(opened.names()) == 25
    assert not set(first) & set(opened.names())
    assert "26–50 of 60" in page.inner_text("#table .pager")
    shown = page.locator("#chooser button").count()
    page.select_option("#chooser select", index=3)
    assert page.locator("#chooser button").count() == shown + 1
    assert page.locator("#explore-neighbors").is_hidden()  # there is nothing to explore
    assert opened.errors == []
    page.close()


def test_doses_stand_beside_every_row_of_every_table(opened, results):
    page = opened.page
    sets = [
        name for name in page.locator("#table .tabs button").all_inner_texts() if not name.startswith("by ")
    ]
    assert sets == ["perplexity", "text", "own history"]
    for name in sets:
        page.click(f"#table .tabs >> text={name}")
        heads = page.locator("#table thead button").all_inner_texts()
        assert heads[-3:] == ["ε dose", "γ dose", "replaced"]
    page.click("text=by run")
    assert page.locator("#table thead button").all_inner_texts()[-3:] == ["ε dose", "γ dose", "replaced"]
    page.click("text=by setting")
    page.click("#table .tabs >> text=perplexity")


def test_a_dose_is_the_mean_over_the_seeds(chromium, tmp_path):
    made = [make_result("nnrs", "ptb", {"method": "nnrs"}, 0, seed, 3) for seed in (1, 2)]
    for record, share in zip(made, (0.1, 0.3), strict=True):
        record["effective"]["all"] = share
    path = tmp_path / "page.html"
    path.write_text(build_page([Result(record) for record in made], title="t"))
    opened = Opened(chromium, path)
    assert opened.page.locator("#table tbody td").last.inner_text() == "0.200"
    opened.page.click("text=by run")
    shown = opened.page.locator("#table tbody tr td:last-child").all_inner_texts()
    assert shown == ["0.100", "0.300"]
    opened.page.close()


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
    record["trajectory"] |= trajectory
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
        ["Our translation: mle", "one mle 1"],
        ["Our translation: ss", "one ss 1"],
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


def test_a_translations_trajectory_stands_beside_its_source_and_one_without_is_left_out(chromium, tmp_path):
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
