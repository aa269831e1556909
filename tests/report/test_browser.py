"""The page in a real browser: it answers, it asks nobody, it can be read by all, and it shows a script as text."""

import re
from dataclasses import replace

import pytest
import torch
from tests.report.browser import PLOTS, Opened, slide
from tests.report.factory import EVIL, make_explorer, make_result, make_results

from nnrs.experiments.findings import findings
from nnrs.experiments.store import Result
from nnrs.neighbors.probabilities import effective_neighbors, neighbor_probabilities, pick
from nnrs.policies.functional import settle_claims
from nnrs.report.page import build_page


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
    assert opened.page.inner_text("#explore-neighbors .titles .near") == explorer["column"]
    shown = lines.locator(".share").all_inner_texts()
    assert [float(text) for text in shown] == pytest.approx(expected, abs=5.1e-5)
    names = [explorer["words"][index] for index in explorer["neighbors"][row]]
    assert lines.locator("button").all_inner_texts() == names
    count = effective_neighbors(similarities[None], 10**tau, torch.ones(1, dtype=torch.float64))
    said = opened.page.inner_text("#explore-neighbors .note")
    assert f": {len(names)} neighbors, sharing the draw like {count:.2f} equally likely ones." in said


def test_of_one_the_page_speaks_in_the_singular(chromium, results, tmp_path):
    found, explorer = findings(results), make_explorer(k=1)
    explorer["counts"][0] = 1
    page = build_page(results, title="t", found=replace(found, others=found.others[:1]), explorer=explorer)
    (tmp_path / "one.html").write_text(page)
    opened = Opened(chromium, tmp_path / "one.html")
    opened.page.fill("#word", explorer["words"][0])
    said = opened.page.inner_text("#explore-neighbors .note")
    assert "1 time in the training text: 1 neighbor, sharing the draw like 1.00" in said
    assert opened.page.inner_text("#other-contrasts summary").endswith(": 1 contrast, corrected together")
    assert opened.errors == []


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
    assert "nnrs train --data ptb --method nnrs --epochs 12 --seeds 1,2,3 --out nnrs\n" in told
    assert "nnrs evaluate RUN --metrics all --split test --decode sample --sentences 1000" in told
    page.keyboard.press("Enter")  # the focus has stayed
    assert inside.count() == 0


def test_the_rows_can_be_runs(opened, results):
    page = opened.page
    page.click("text=by run")
    assert len(opened.names()) == 12
    page.locator("#table .open", has_text=re.compile("^nnrs$")).nth(2).click()
    told = page.inner_text("#table tr.detail")
    assert "nnrs train --data ptb --method nnrs --epochs 12 --seed 3 --out nnrs_seed-3\n" in told
    page.click("text=by setting")
    assert len(opened.names()) == 4


def test_the_filter_keeps_what_it_names(opened):
    opened.page.fill("#table input[type=search]", "nnrs")
    assert sorted(opened.names()) == ["nnrs", "ss-nnrs"]
    opened.page.fill("#table input[type=search]", "")
    assert len(opened.names()) == 4


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
    assert opened.asked() == [opened.url]


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
