"""Groups as a page shows them: named by what tells them apart, with means, intervals and curves of their seeds."""

import json
import math

import pytest
from tests.report.factory import make_result, make_results

from nnrs.experiments.markdown import as_markdown
from nnrs.experiments.store import Result
from nnrs.metrics.score import FAMILIES
from nnrs.report import shown
from nnrs.report.columns import column_values, columns_of, paper_columns
from nnrs.report.payload import make_payload
from nnrs.report.picture import picture
from nnrs.report.shown import Mean, detailed, rounded, shown_at_first, shown_groups


def of(records):
    return shown_groups([Result(record) for record in records])


def test_runs_that_differ_in_their_seed_are_one_group_named_by_its_method():
    groups = of(make_results(groups=4, seeds=3))
    assert [(group.name, group.seeds) for group in groups] == [
        ("mle", [1, 2, 3]),
        ("ss", [1, 2, 3]),
        ("nnrs", [1, 2, 3]),
        ("ss-nnrs", [1, 2, 3]),
    ]


def test_a_number_is_named_with_what_it_counts_and_a_row_of_the_paper_without_its_method():
    numbered = [make_result("nnrs", "ptb", {"method": "nnrs", "k": k}, int(k), 1, 2) for k in ("5", "13")]
    assert [group.name for group in of(numbered)] == ["k 5", "k 13"]
    rows = [
        make_result("nnrs", "ptb", {"method": "nnrs", "row": "NNRS-1"}, 1, 1, 2),
        make_result("ss", "ptb", {"method": "ss", "row": "SS-1"}, 2, 1, 2),
    ]
    assert [group.name for group in of(rows)] == ["NNRS-1", "SS-1"]


def test_texts_and_models_are_told_wherever_they_differ():
    texts = [
        make_result("mle", "ptb", {"method": "mle"}, 8, 1, 2),
        make_result("ss", "news", {"method": "ss"}, 9, 1, 2),
    ]
    assert [group.name for group in of(texts)] == ["mle · ptb", "ss · news"]
    texts[1]["config"]["model"]["kind"] = "gru"
    assert [group.name for group in of(texts)] == ["mle · ptb · lstm", "ss · news · gru"]
    texts[1]["labels"] |= {"corpus": "the news", "model": "gru"}  # told by labels, and not twice
    assert [group.name for group in of(texts)] == ["mle · ptb · lstm", "ss · the news · gru"]


def test_groups_that_no_label_tells_apart_are_named_by_their_settings_and_then_by_their_fingerprints():
    alike = [make_result("mle", "ptb", {"method": "mle"}, group, 1, 2) for group in (10, 11, 12)]
    alike.append(make_result("ss", "ptb", {"method": "ss"}, 13, 1, 2))
    alike[1]["config"]["model"] |= {"units": 64, "dropout": 0.5}
    others = ["mle · units 200 · dropout 0.2", "mle · units 64 · dropout 0.5"]
    assert [group.name for group in of([*alike[:2], alike[3]])] == [*others, "ss"]
    first, second = f"{others[0]} · 0000000a", f"{others[0]} · 0000000c"
    assert [group.name for group in of(alike)] == [first, others[1], second, "ss"]


def test_tables_the_picture_and_the_page_call_a_setting_by_one_name():
    records = [make_result("nnrs", "ptb", {"method": "nnrs", "k": k}, int(k), 1, 2) for k in ("5", "13")]
    results = [Result(record) for record in records]
    names = ["k 5", "k 13"]
    assert [group.name for group in shown_groups(results)] == names
    assert as_markdown(results).splitlines()[0].split(" | ")[2:] == ["k 5", "k 13 |"]
    drawn = picture(results)["hconcat"][0]["layer"][0]["encoding"]["y"]["sort"]
    assert sorted(drawn) == sorted(names)


def test_several_seeds_have_students_interval_and_one_its_bootstrap():
    reach = 4.3027 / math.sqrt(3)
    several = Mean.of("excess-nats-h5|test", {1: 1.0, 2: 2.0, 3: 3.0}, (1.9, 2.1), "")
    assert (several.mean, several.low) == pytest.approx((2.0, 2.0 - reach), abs=1e-3)
    alone = Mean.of("ppl|test", {1: 1.0}, (0.9, 1.2), "ppl")
    assert (alone.low, alone.mean, alone.high) == (0.9, 1.0, 1.2)
    assert Mean.of("ppl|test", {1: 1.0}, None, "ppl").low is None


@pytest.mark.parametrize("metric", ["ppl", "ppl-decile10"])
def test_the_interval_of_a_perplexity_ends_where_no_perplexity_is(metric):
    reach = 4.3027 / math.sqrt(3)
    low, high = (Mean.of(f"{metric}|test", {1: at - 1, 2: at, 3: at + 1}, None, "") for at in (2.0, 9.0))
    assert (low.low, low.high) == (1.0, pytest.approx(2.0 + reach, abs=1e-3))
    assert (high.low, high.high) == pytest.approx((9.0 - reach, 9.0 + reach), abs=1e-3)


def test_curves_are_means_at_each_epoch_also_where_a_run_is_shorter():
    records = make_results(groups=1, seeds=2, epochs=3)
    records[1]["epochs"].pop()
    [group] = of(records)
    made = group.curves()
    first, second = (record["epochs"] for record in records)
    assert made["valid"][0] == pytest.approx(
        (first[0]["valid_perplexity"] + second[0]["valid_perplexity"]) / 2
    )
    assert made["high"][0] == max(first[0]["valid_perplexity"], second[0]["valid_perplexity"])
    assert made["valid"][2] == first[2]["valid_perplexity"]
    assert made["effective_neighbors"] == [None, None, None]  # mle has none


def test_the_exposure_curve_of_one_seed_has_its_own_interval_and_of_several_their_range():
    [alone] = of(make_results(groups=1, seeds=1))
    curve = alone.records[0]["scores"]
    [own] = [score["curve"] for score in curve if "curve" in score]
    key = "excess-nats-h30|test|sample"
    made = alone.exposure(key)
    assert (made["excess"], made["low"], made["recovery"]) == (own["excess_nats"], own["excess_low"], 5)
    [several] = of(make_results(groups=1, seeds=3))
    curves = [
        s["curve"]["excess_nats"] for record in several.records for s in record["scores"] if "curve" in s
    ]
    assert several.exposure(key)["low"][7] == min(curve[7] for curve in curves)
    assert several.exposure(key)["excess"][7] == pytest.approx(sum(curve[7] for curve in curves) / 3)


def test_few_groups_are_all_shown_and_of_many_the_best_of_each_method_on_one_text():
    few = of(make_results(groups=4, seeds=1))
    assert shown_at_first(few, detailed(few)) == [0, 1, 2, 3]
    many = of(make_results(groups=24, seeds=1, epochs=3, corpora=("ptb", "wikitext-2")))
    chosen = shown_at_first(many, detailed(many))
    assert {many[index].labels["method"] for index in chosen} == {"mle", "ss", "nnrs", "ss-nnrs"}
    assert {many[index].corpus for index in chosen} == {"ptb"}
    for index in chosen:
        rivals = [
            g.valid for g in many if g.corpus == "ptb" and g.labels["method"] == many[index].labels["method"]
        ]
        assert many[index].valid == min(rivals)


def test_of_more_methods_than_the_plots_hold_beside_others_only_the_best_are_shown():
    names = ("mle", "ss", "nnrs", "ss-nnrs", "tprs", "unigram")
    made = [
        make_result("nnrs", "ptb", {"method": name, "k": str(k)}, 6 * k + at, 1, 2)
        for k in range(3)
        for at, name in enumerate(names)
    ]
    groups = of(made)
    chosen = [groups[index] for index in shown_at_first(groups, range(len(groups)))]
    assert sorted(group.labels["method"] for group in chosen) == sorted(names)


def test_details_are_kept_of_the_best_and_of_every_method(monkeypatch):
    monkeypatch.setattr(shown, "DETAILED", 6)
    many = of(make_results(groups=40, seeds=1, epochs=3))
    kept = [many[index] for index in detailed(many)]
    assert len(kept) == 6
    assert {group.labels["method"] for group in kept} == {"mle", "ss", "nnrs", "ss-nnrs"}
    assert min(many, key=lambda group: group.valid) in kept


def test_columns_come_in_order_with_validation_before_test_and_steps_by_size():
    labels = [column.label for column in columns_of(of(make_results(groups=2, seeds=1)))]
    assert labels[:4] == ["perplexity valid", "perplexity test", "BLEU-4", "corpus BLEU-4"]
    steps = [label for label in labels if label.startswith("excess")]
    assert steps == [f"excess nats h{h}" for h in (1, 5, 10, 20, 30)]
    assert not any("decile" in label or "noise" in label for label in labels)  # those are plots


def test_every_metric_has_a_column_but_those_that_are_plotted_or_told_by_another():
    tail = "decode:sample|split:test|data:ptb|seed:1|v:0.1.0"
    elsewhere = {"wmd", "wmd-similarity"}  # told by wmd-scaled
    metrics = [*(name for name in FAMILIES if name not in elsewhere), "ex-acc-err-h5"]
    record = make_results(groups=1, seeds=1)[0]
    record["scores"] = [{"metric": name, "value": 1.0, "signature": f"{name}|{tail}"} for name in metrics]
    keys = {column.key.partition("|")[0] for column in columns_of(of([record]))}
    assert {*metrics} - keys == set()


def test_a_column_holds_the_mean_and_every_run():
    records = make_results(groups=2, seeds=3)
    groups = of(records)
    column = next(column for column in columns_of(groups) if column.key == "ppl|test")
    heads = {}
    made = column_values(column, groups, heads)
    tests = [record["test_perplexity"] for record in records]
    assert made["runs"] == pytest.approx(tests, rel=1e-5)
    assert made["mean"] == pytest.approx([sum(tests[:3]) / 3, sum(tests[3:]) / 3], rel=1e-5)
    variance = sum((value - sum(tests[:3]) / 3) ** 2 for value in tests[:3]) / 2
    assert made["sd"][0] == pytest.approx(math.sqrt(variance), rel=1e-4)
    assert heads == {"ppl|split:test|streams:1|{run}|v:0.1.0": 0}
    assert made["head"] == 0


def in_another_way(record, before="n:1000", after="n:500"):
    """The same run, its scores of text and of exposure made in another way."""
    scores = [{**s, "signature": s["signature"].replace(before, after)} for s in record["scores"]]
    return {**record, "scores": scores}


def test_scores_made_in_different_ways_have_columns_of_their_own_and_no_common_mean():
    records = make_results(groups=2, seeds=3)
    groups = of([*records[:-1], in_another_way(records[-1])])
    keys = [column.key for column in columns_of(groups) if column.key.startswith("bleu4|")]
    assert keys == ["bleu4|test|sample|n:1000", "bleu4|test|sample|n:500"]
    labels = [column.label for column in columns_of(groups) if column.key in keys]
    assert labels == ["BLEU-4 sample n:1000", "BLEU-4 sample n:500"]
    values = [{s["metric"]: s["value"] for s in record["scores"]}["bleu4"] for record in records]
    assert groups[1].scores[keys[0]].values == {1: values[3], 2: values[4]}
    assert groups[1].scores[keys[1]].values == {3: values[5]}
    assert "|n:500|" in groups[1].scores[keys[1]].head


def test_a_plot_shows_scores_of_one_way_only():
    records = make_results(groups=4, seeds=1)
    details = make_payload([Result(record) for record in [*records[:3], in_another_way(records[3])]])[
        "details"
    ]
    assert [bool(details[group]["exposure"]) for group in "0123"] == [True, True, True, False]
    changed = in_another_way(records[3], "streams:1|", "streams:2|")
    details = make_payload([Result(record) for record in [*records[:3], changed]])["details"]
    assert [details[group]["deciles"][0] is not None for group in "0123"] == [True, True, True, False]
    assert [bool(details[group]["noise"]["own"]) for group in "0123"] == [True, True, True, False]


def test_runs_of_another_version_are_a_group_of_their_own_which_says_so():
    records = make_results(groups=1, seeds=2)
    groups = of([records[0], json.loads(json.dumps(records[1]).replace("v:0.1.0", "v:0.2.0"))])
    assert [(group.name, group.seeds) for group in groups] == [("version 0.1.0", [1]), ("version 0.2.0", [2])]


def test_the_papers_value_stands_beside_the_metric_that_it_is_of():
    groups = of(make_results(groups=2, seeds=1))
    columns = columns_of(groups)
    known = {"mle": {"ppl|test": 128.78, "bleu4|test": 7.0}}
    made = paper_columns(columns, groups, lambda labels: known.get(labels["method"], {}))
    assert made == {"ppl|test": [128.78, None], "bleu4|test|sample": [7.0, None]}


def test_numbers_keep_six_digits_and_what_json_cannot_say_becomes_null():
    assert rounded({"a": [1.23456789, math.nan, 7, "x", None]}) == {"a": [1.23457, None, 7, "x", None]}
