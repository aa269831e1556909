"""Findings in words, from results whose differences are known."""

import json
import math
from dataclasses import replace

import pytest

from nnrs.experiments.config import DataConfig, RunConfig
from nnrs.experiments.findings import NOTHING, NOTHING_YET, findings, shown_difference, shown_interval
from nnrs.experiments.groups import grouped
from nnrs.experiments.settings import settings_of_groups
from nnrs.experiments.store import Result
from nnrs.models.base import ModelConfig
from nnrs.policies.methods import METHODS, PolicyConfig
from nnrs.schedules import Schedule

# What a seed brings to every method alike, and what is left of it in each.
SHARED = [0.00, 0.05, -0.04, 0.02, 0.07, -0.06, 0.01, 0.03]
NOISE = [0.001, -0.002, 0.0015, 0.0005, -0.001, 0.002, -0.0005, 0.0]


def policy(method: str, rate: Schedule | None = None) -> PolicyConfig:
    names = {"prediction_rate", "neighbor_rate"} - {*METHODS[method].unused_settings()}
    return PolicyConfig(method=method, **dict.fromkeys(names, rate or Schedule()))


def result(method: str, seed: int, nats: float, **more: object) -> Result:
    """A result as the store gives it, reduced to what findings read."""
    config = RunConfig(policy=more.pop("policy", policy(method)), seed=seed, **more.pop("config", {}))
    names = {"corpus": more.pop("corpus", "ptb"), "vectors": None}
    scores = [
        {"metric": key.split("|")[0], "value": value, "signature": _signature(key)}
        for key, value in more.pop("scores", {}).items()
    ]
    return Result(
        {
            "labels": {"method": method, **more.pop("labels", {})},
            "seed": seed,
            "config": config.as_dict(),
            "names": names,
            "signature": f"ppl|split:test|streams:1|data:ptb|seed:{seed}|v:{more.pop('version', '1.0')}",
            "group": f"{config.fingerprint()}{names}",
            "valid_nats": more.get("valid", nats + 0.05),
            "test_nats": nats,
            "valid_perplexity": math.exp(more.get("valid", nats + 0.05)),
            "test_perplexity": math.exp(nats),
            "scores": scores,
            "epochs": [{"valid_perplexity": value} for value in more.get("curve", [200.0, 100.0])],
            "best_epoch": more.get("best_epoch", 1),
        }
    )


def _signature(key: str) -> str:
    """`bleu4|test|sample`, and behind it whatever else it says."""
    metric, split, *decode = key.split("|")
    parts = [word if ":" in word else f"decode:{word}" for word in decode]
    return "|".join([metric, *parts, f"split:{split}", "data:ptb", "seed:1", "v:1.0"])


def series(method: str, effect: float, seeds: int, **more: object) -> list[Result]:
    """Runs of one method that lie `effect` above what their seeds bring."""
    turn = len(method)  # so that methods do not share their noise
    return [
        result(method, seed + 1, 4.3 + SHARED[seed] + effect + NOISE[(seed + turn) % 8], **more)
        for seed in range(seeds)
    ]


def test_a_sentence_has_the_means_of_the_table_and_the_percentage_of_the_pairs():
    # Over seeds 1 and 2 the means of 8 and 32 against 8 and 8 are 20 and 8. The pairs are 1 and 4 times as high,
    # in the mean of their logs twice. Seed 3, which mle lacks, counts in the table alone.
    theirs = [result("mle", seed, math.log(8.0)) for seed in (1, 2)]
    ours = [result("nnrs", seed, math.log(value)) for seed, value in ((1, 8.0), (2, 32.0))]
    said = "test perplexity 20.00 against 8.00, seed by seed 100.00 % higher"
    assert said in findings([*theirs, *ours]).sentences[-1]
    assert [str(group.perplexity("test")) for group in grouped([*ours, *theirs])] == [
        "20.00 ± 16.97",
        "8.00 ± 0.00",
    ]
    over = said.replace("8.00,", "8.00 over the seeds of both,")
    assert over in findings([*theirs, *ours, result("nnrs", 3, math.log(50.0))]).sentences[-1]
    assert over in findings([*theirs, *ours, result("mle", 3, math.log(50.0))]).sentences[-1]


def test_eight_seeds_show_an_effect_and_say_how_large_it_is():
    found = findings([*series("mle", 0.0, 8), *series("nnrs", -0.02, 8)])
    [item] = found.contrasts
    assert item.verdict == "better"
    assert item.holm_p == 2 / 256
    assert item.percent == pytest.approx(100 * (math.exp(-0.02) - 1), abs=0.05)
    [sentence] = found.sentences
    assert sentence.startswith("nnrs is better than mle: test perplexity ")
    assert "% lower (95 % interval" in sentence
    assert sentence.endswith("8 seeds, p = 0.00781 after Holm over 1 contrast).")


def test_five_seeds_can_only_make_it_probable_and_the_findings_say_so():
    found = findings([*series("mle", 0.0, 5), *series("nnrs", -0.02, 5), *series("ss", -0.01, 5)])
    assert [item.verdict for item in found.contrasts] == ["probably better", "probably better"]
    assert found.sentences[1].startswith("nnrs is probably better than mle")
    assert found.sentences[0] == (
        "With 5 seeds the exact test cannot give a p below 0.0625, so none of 2 contrasts can pass; "
        "from 7 seeds on one can."
    )
    alone = findings([*series("mle", 0.0, 5), *series("nnrs", -0.02, 5)])
    assert alone.sentences[0].endswith("0.0625, so the contrast cannot pass; from 6 seeds on it can.")


def test_a_difference_of_nothing_has_no_minus():
    runs = [result(method, 1, value) for method, value in (("mle", 4.3), ("nnrs", 4.3 - 1e-9))]
    [item] = findings(runs).contrasts
    assert item.mean < 0.0
    assert shown_difference(item) == "+0.00 %"


def test_an_interval_that_reaches_below_nothing_by_less_than_its_digits_has_a_minus():
    # The differences 0.00002, 0.00001 and 0.00003: 0.00002 ± 4.303 · 0.00001/√3, so -0.0000048 to 0.0000448.
    runs = [result("mle", seed, 4.3) for seed in (1, 2, 3)]
    runs += [result("nnrs", seed, 4.3 + more) for seed, more in ((1, 2e-5), (2, 1e-5), (3, 3e-5))]
    [item] = findings(runs).contrasts
    assert (shown_difference(item), shown_interval(item)) == ("+0.00 %", "-0.00 % to +0.00 %")
    for end in (-0.0, -1e-12):  # nothing, and what rounding leaves of it
        assert shown_interval(replace(item, differences=(end,) * 3)) == "+0.00 % to +0.00 %"


def test_two_seeds_cannot_tell_methods_apart_whatever_their_interval():
    found = findings([*series("mle", 0.0, 2), *series("nnrs", -0.3, 2)])
    assert found.contrasts[0].verdict == "too few seeds"
    assert any(
        said.startswith("Two seeds cannot tell nnrs from mle: test perplexity ") for said in found.sentences
    )


def test_no_difference_is_an_answer():
    found = findings([*series("mle", 0.0, 8), *series("nnrs", 0.0, 8)])
    assert found.contrasts[0].verdict == "no difference found"
    assert found.sentences[0].startswith("No difference was found between nnrs and mle: test perplexity ")
    assert " lower" in found.sentences[0]
    assert " higher" in found.sentences[0]  # the interval has both


def test_where_runs_are_missing_no_advice_is_given_that_those_would_make_needless():
    told = ["1 of 4 runs of the plan 't' is missing: nnrs_seed-2."]
    found = findings([*series("mle", 0.0, 2), *series("nnrs", 0.2, 1)], told)
    assert found.sentences[:2] == [*told, "One seed decides nothing: seeds of one method differ, too."]
    assert findings(series("mle", 0.0, 2), told).sentences == [*told, NOTHING_YET]


def test_of_one_seed_it_is_said_that_it_cannot_tell():
    found = findings([result("mle", 1, math.log(50.0)), result("nnrs", 1, math.log(60.0))])
    assert found.sentences == [
        "One seed decides nothing: seeds of one method differ, too. "
        "Train several, as `nnrs compare --seeds 1-8` does.",
        "One seed cannot tell nnrs from mle: test perplexity 60.00 against 50.00, 20.00 % higher.",
    ]


def test_training_that_came_apart_is_told_with_its_seeds_even_where_nothing_is_compared():
    held, apart = [200.0, 100.0, 200.0], [200.0, 100.0, 201.0]
    runs = [
        *(result("mle", seed, 4.0, curve=apart if seed > 1 else held) for seed in (1, 2, 3)),
        *(result("nnrs", seed, 4.1, curve=apart if seed == 3 else held) for seed in (1, 2, 3)),
        *(result("ss", seed, 4.1, curve=held) for seed in (1, 2, 3)),
    ]
    [told] = [sentence for sentence in findings(runs).sentences if "came apart" in sentence]
    assert told.startswith("mle (seeds 2, 3), nnrs (seed 3) came apart in training: after the best epoch,")
    assert not any("came apart" in sentence for sentence in findings([*runs[:1], *runs[6:]]).sentences)
    early = result("mle", 1, 4.0, curve=[200.0, 300.0, 100.0], best_epoch=2)  # it came back
    late = result("mle", 1, 4.0, curve=[200.0, 100.0, 300.0, 150.0])  # and again, after the best
    assert findings([early]).sentences == [NOTHING]
    assert findings([late]).sentences[0].startswith("mle (seed 1) came apart")
    texts = [result("mle", 1, 4.0, curve=apart, corpus=corpus) for corpus in ("ptb", "news")]
    told = [sentence.split(" came apart")[0] for sentence in findings(texts).sentences[:2]]
    assert told == ["On ptb: mle (seed 1)", "On news: mle (seed 1)"]
    first = result("mle", 1, 4.0, curve=[100.0, 200.0], best_epoch=0)  # nothing was gained that could be lost
    assert findings([first]).sentences == [NOTHING]
    warning, nothing = findings(runs[:2]).sentences
    assert warning.startswith("mle (seed 2) came apart in training: ")
    assert nothing == NOTHING


def test_a_method_that_harms_is_called_worse():
    found = findings([*series("mle", 0.0, 8), *series("tprs", 0.1, 8)])
    assert found.sentences[0].startswith("tprs is worse than mle")
    assert "% higher" in found.sentences[0]


def test_one_seed_decides_nothing_and_that_is_said_before_anything_else():
    one = series("nnrs", -0.3, 1, policy=policy("nnrs"), labels={"schedule": "exponential"})
    other = policy("nnrs", Schedule("linear", 0.0, 0.2))
    ways = [*one, *series("nnrs", -0.2, 1, policy=other, labels={"schedule": "linear"})]
    found = findings([*series("mle", 0.0, 1), *ways])
    assert found.contrasts[0].verdict == "too few seeds"
    assert found.contrasts[0].interval is None
    assert found.sentences[0].startswith("One seed decides nothing")
    assert found.sentences[1].startswith("nnrs was trained in 2 ways")
    assert "interval" not in found.sentences[2]


def test_pairs_are_those_named_in_advance_and_what_is_left_is_compared_with_mle():
    methods = ["mle", "ss", "nnrs", "ss-nnrs", "shuffled", "unigram", "tprs", "gsns"]
    found = findings([run for method in methods for run in series(method, 0.0, 3)])
    assert [(item.ours, item.theirs) for item in found.contrasts] == [
        ("nnrs", "mle"),
        ("ss", "mle"),
        ("ss-nnrs", "ss"),
        ("nnrs", "unigram"),
        ("nnrs", "shuffled"),
        ("nnrs", "tprs"),
        ("ss-nnrs", "mle"),
        ("gsns", "mle"),
    ]
    assert {item.family for item in found.contrasts} == {8}
    alone = findings([*series("ss-nnrs", 0.0, 3), *series("mle", 0.0, 3)])
    assert [(item.ours, item.theirs) for item in alone.contrasts] == [("ss-nnrs", "mle")]


def test_the_papers_rows_keep_to_the_contrasts_that_were_named_for_them():
    methods = {"mle": "No Sampling", "ss": "SS-1", "ss-nnrs": "SS-NNRS-1"}
    runs = [run for method, row in methods.items() for run in series(method, 0.0, 3, labels={"row": row})]
    assert [(item.ours, item.theirs) for item in findings(runs).contrasts] == [
        ("ss", "mle"),
        ("ss-nnrs", "ss"),
    ]


def test_of_several_settings_the_one_named_in_advance_is_compared_else_the_best_on_validation():
    named, static = policy("nnrs"), policy("nnrs", Schedule("static", 0.0, 0.2))
    linear = policy("nnrs", Schedule("linear", 0.0, 0.2))
    mle = series("mle", 0.0, 8)
    of = {
        "exponential": series("nnrs", -0.01, 8, policy=named, labels={"schedule": "exponential"}),
        "static": series("nnrs", -0.05, 8, policy=static, labels={"schedule": "static"}),
        "linear": series("nnrs", -0.03, 8, policy=linear, labels={"schedule": "linear"}),
    }
    chosen = findings([*mle, *of["static"], *of["exponential"]])
    assert chosen.contrasts[0].ours == "nnrs exponential"
    assert (
        chosen.sentences[0]
        == "nnrs was trained in 2 ways; compared is nnrs exponential, the setting named in advance."
    )
    chosen = findings([*mle, *of["linear"], *of["static"]])
    assert chosen.contrasts[0].ours == "nnrs static"
    assert (
        chosen.sentences[0] == "nnrs was trained in 2 ways; compared is nnrs static, the best on validation."
    )


def test_the_choice_never_looks_at_the_test_split():
    static = policy("nnrs", Schedule("static", 0.0, 0.2))
    linear = policy("nnrs", Schedule("linear", 0.0, 0.2))
    good_test = [
        result("nnrs", seed, 4.0, valid=4.5, policy=static, labels={"schedule": "static"}) for seed in (1, 2)
    ]
    good_valid = [
        result("nnrs", seed, 4.4, valid=4.2, policy=linear, labels={"schedule": "linear"}) for seed in (1, 2)
    ]
    found = findings([*series("mle", 0.0, 2), *good_test, *good_valid])
    assert found.contrasts[0].ours == "nnrs linear"


def test_two_texts_of_one_name_are_never_compared():
    runs = [*series("mle", 0.0, 3), *series("nnrs", 0.02, 3)]
    assert [(item.ours, item.theirs) for item in findings(runs).contrasts] == [("nnrs", "mle")]
    for run in runs[3:]:
        run.record["text"] = "0a1b2c3d"
    assert findings(runs).contrasts == []


def test_texts_and_models_are_compared_apart_and_corrected_together():
    gru = {"config": {"model": ModelConfig.preset("gru", "small")}}
    runs = [
        *series("mle", 0.0, 3),
        *series("nnrs", -0.02, 3),
        *series("mle", 0.0, 3, corpus="wikitext-2"),
        *series("nnrs", 0.02, 3, corpus="wikitext-2"),
        *series("mle", 0.0, 3, **gru),
        *series("nnrs", 0.0, 3, **gru),
    ]
    found = findings(runs)
    assert {item.ours for item in found.contrasts} == {"nnrs"}
    assert [item.setting for item in found.contrasts] == ["ptb, lstm", "wikitext-2, lstm", "ptb, gru"]
    assert found.sentences[2].startswith("On wikitext-2, lstm: nnrs is ")
    assert {item.family for item in found.contrasts} == {3}
    assert found.contrasts[0].mean < -0.01
    assert found.contrasts[1].mean > 0.01


def test_a_method_beside_itself_is_nothing_to_compare():
    static = policy("nnrs", Schedule("static", 0.0, 0.2))
    runs = [*series("nnrs", 0.0, 3), *series("nnrs", 0.1, 3, policy=static)]
    assert findings(runs).sentences == findings([]).sentences == [NOTHING]


def test_vocabularies_that_differ_are_never_compared():
    small = {"config": {"data": DataConfig(max_vocabulary=100)}}
    assert findings([*series("mle", 0.0, 3), *series("nnrs", 0.0, 3, **small)]).sentences == [NOTHING]


def test_scores_that_were_made_in_different_ways_are_never_compared():
    def runs(method: str, ways: tuple[str, ...]) -> list[Result]:
        return [
            result(method, seed, 4.3, scores={f"bleu4|test|sample|{way}": 10.0 + seed for way in ways})
            for seed in (1, 2, 3)
        ]

    assert findings([*runs("mle", ("n:1000",)), *runs("nnrs", ("n:500",))]).others == []
    both = findings([*runs("mle", ("n:500", "n:1000")), *runs("nnrs", ("n:500",))])
    assert [item.metric for item in both.others] == ["bleu4|test|sample|n:500"]
    assert "bleu4 test sample n:500" in both.sentences[-1]


def test_versions_are_compared_each_with_itself():
    old = [*series("mle", 0.0, 3, version="1.0"), *series("nnrs", -0.02, 3, version="1.0")]
    new = [*series("mle", 0.5, 3, version="2.0"), *series("nnrs", 0.3, 3, version="2.0")]
    assert [len(group.results) for group in grouped([*old, *new])] == [3] * 4
    found = findings([*old, *new])
    assert [item.setting for item in found.contrasts] == ["nnrs.version 1.0", "nnrs.version 2.0"]
    assert [item.mean for item in found.contrasts] == pytest.approx([-0.02, -0.2], abs=0.003)


def test_seeds_that_one_of_them_lacks_are_left_out():
    found = findings([*series("mle", 0.0, 8), *series("nnrs", -0.02, 6)])
    assert found.contrasts[0].seeds == (1, 2, 3, 4, 5, 6)


def test_a_result_that_came_twice_counts_once():
    runs = [*series("mle", 0.0, 3), *series("nnrs", -0.02, 3)]
    assert [len(group.results) for group in grouped([*runs, *runs])] == [3, 3]


def test_other_metrics_are_a_family_of_their_own_in_which_higher_may_be_better():
    def with_scores(method: str, shift: float) -> list[Result]:
        return [
            result(
                method,
                seed,
                4.3 + SHARED[seed - 1],
                scores={
                    "bleu4|test|sample": 10.0 + SHARED[seed - 1] + shift + NOISE[seed - 1] * (shift + 1),
                    "bleu4|valid|sample": 50.0,  # not the test split
                    "self-bleu4|test|sample": 8.0 + NOISE[seed - 1],
                    "excess-nats-h1|test|sample": 99.0 * shift,
                    "excess-nats-h10|test|sample": 0.5 + shift / 10 + NOISE[seed - 1] * (shift + 1),
                    "recovery-nats-1|test|sample": 1.0,  # no headline
                },
            )
            for seed in range(1, 9)
        ]

    found = findings([*with_scores("mle", 0.0), *with_scores("nnrs", 1.0)])
    by_metric = {item.metric: item for item in found.others}
    assert list(by_metric) == [
        "bleu4|test|sample",
        "self-bleu4|test|sample",
        "excess-nats-h10|test|sample",
    ]
    assert {item.family for item in found.others} == {3}
    assert {item.family for item in found.contrasts} == {1}
    assert by_metric["bleu4|test|sample"].verdict == "better"
    assert by_metric["excess-nats-h10|test|sample"].verdict == "worse"
    assert by_metric["self-bleu4|test|sample"].verdict == "no difference found"
    assert by_metric["bleu4|test|sample"].mean == pytest.approx(1.0, abs=0.01)
    assert found.sentences[-3:-1] == [
        "On other metrics (bleu4 test sample, self-bleu4 test sample, excess-nats-h10 test sample) "
        "2 of 3 contrasts passed the corrected test.",
        found.sentences[-2],
    ]
    assert found.sentences[-2].startswith("nnrs is better than mle in bleu4, 1.00 higher (95 % interval ")
    assert found.sentences[-1].startswith("nnrs is worse than mle in excess-nats-h10, 0.10")


def test_intervals_that_exclude_nothing_are_counted_against_chance_and_not_announced():
    def run(method: str, shift: float, seed: int) -> Result:
        value = 10.0 + shift + NOISE[seed - 1] * (1 + shift)
        return result(method, seed, 4.3, scores={"bleu4|test|sample": value})

    found = findings(
        [run(method, shift, seed) for method, shift in (("mle", 0.0), ("ss", 1.0)) for seed in (1, 2, 3)]
    )
    assert found.others[0].verdict == "probably better"
    assert found.sentences[-1] == (
        "On other metrics (bleu4 test sample) 0 of 1 contrast passed the corrected test (with 3 seeds none can); "
        "1 of their intervals excludes 0, where chance alone would have 0.1 do so."
    )


def test_the_bleu_of_translations_is_compared():
    runs = [
        result(
            method, seed, 2.0 + SHARED[seed - 1], scores={"bleu|test|greedy": 30.0 + shift + NOISE[seed - 1]}
        )
        for method, shift in (("mle", 0.0), ("ss", 1.0))
        for seed in range(1, 7)
    ]
    [contrast] = findings(runs).others
    assert (contrast.metric, contrast.verdict) == ("bleu|test|greedy", "better")
    assert contrast.mean == pytest.approx(1.0)


def test_words_are_never_causal_or_triumphant():
    runs = [run for method in ("mle", "ss", "nnrs") for run in series(method, -0.02 * len(method), 8)]
    said = " ".join(findings(runs).sentences).lower()
    for word in ("because", "due to", "cause", "outperform", "superior", "significant", "prove", "winner"):
        assert word not in said


def test_findings_are_json_with_the_numbers_behind_the_words():
    found = findings([*series("mle", 0.0, 8), *series("nnrs", -0.02, 8)])
    record = json.loads(json.dumps(found.as_dict()))
    assert record["contrasts"][0]["holm_p"] == 2 / 256
    assert (
        record["contrasts"][0]["interval"][0]
        < record["contrasts"][0]["mean"]
        < record["contrasts"][0]["interval"][1]
    )


@pytest.mark.parametrize("turn", [1, -1])
def test_runs_with_and_without_dropped_weights_are_two_settings_with_a_name_each(turn):
    made = []
    for rate in (0.0, 0.4)[::turn]:
        model = ModelConfig.preset("lstm", "small", weight_dropout=rate)
        made += [result(method, 1, 4.0, config={"model": model}) for method in ("mle", "ss")]
    names = [setting.name for setting in settings_of_groups(grouped(made))]
    assert names == [f"model.weight_dropout {rate}" for rate in (0.0, 0.4)[::turn]]
