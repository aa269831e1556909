"""What scores are called: alike where they were made alike, apart where they were not."""

import pytest

from nnrs.experiments.groups import grouped
from nnrs.experiments.score_keys import ScoreKeys
from nnrs.experiments.store import Result

RUN = "data:ptb|policy:nnrs|seed:{seed}|v:{version}"
TEXT = "n:1000|len:35|decode:sample|prefix:10|smooth:1|text-seed:0"


def run(seed, *heads, version="1.0", scored="1.0", corpus="ptb", **more):
    """A run whose scores have these beginnings; each score's value is its place."""
    ends = (RUN.format(seed=seed, version=one) for one in (version, scored))
    own, of_scores = ends
    scores = [
        {"metric": head.partition("|")[0], "value": float(place), "signature": f"{head}|{of_scores}"}
        for place, head in enumerate(heads)
    ]
    record = {"labels": {"method": "nnrs"}, "seed": seed, "group": "a", "names": {"corpus": corpus}}
    return Result(record | {"signature": f"ppl|split:test|streams:1|{own}", "scores": scores} | more)


def keys_of(*runs):
    keys = ScoreKeys(runs)
    return [[key for key, _ in keys.named(run)] for run in runs]


def test_scores_that_were_made_alike_have_the_plain_key():
    head = f"bleu4|{TEXT}|split:test"
    assert keys_of(run(1, head), run(2, head)) == [["bleu4|test|sample"]] * 2


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("n:1000", "n:500", ("n:1000", "n:500")),
        ("len:35", "len:20", ("len:35", "len:20")),
        ("prefix:10", "prefix:3", ("prefix:10", "prefix:3")),
        ("text-seed:0", "text-seed:7", ("text-seed:0", "text-seed:7")),
        ("smooth:1", "smooth:1|recovery:9", ("", "recovery:9")),
        ("smooth:1", "smooth:1|oracle:big", ("", "oracle:big")),
        ("smooth:1", "smooth:1|on:other", ("", "on:other")),
    ],
)
def test_scores_that_were_made_in_another_way_say_in_which(before, after, told):
    first = f"bleu4|{TEXT}|split:test"
    expected = [["|".join(["bleu4|test|sample", *([part] if part else [])])] for part in told]
    assert keys_of(run(1, first), run(2, first.replace(before, after))) == expected
    [both] = keys_of(run(1, first, first.replace(before, after)))
    assert both == [key for [key] in expected]


def test_a_perplexity_on_another_text_is_not_taken_for_the_runs_own():
    [[own, other]] = keys_of(run(1, "ppl|split:test|streams:1", "ppl|on:news|split:test|streams:1"))
    assert (own, other) == ("ppl|test", "ppl|test|on:news")
    [[alone]] = keys_of(run(1, "ppl|on:news|split:test|streams:1"))
    assert alone == "ppl|test|on:news"


def test_the_version_tells_scores_apart_where_it_is_not_the_runs_own():
    head = f"bleu4|{TEXT}|split:test"
    assert keys_of(run(1, head, version="1.0"), run(1, head, version="2.0", scored="2.0")) == [
        ["bleu4|test|sample"],
        ["bleu4|test|sample"],
    ]
    assert keys_of(run(1, head), run(2, head, scored="2.0")) == [
        ["bleu4|test|sample"],
        ["bleu4|test|sample|v:2.0"],
    ]


def test_how_many_sentences_could_be_compared_is_an_outcome_but_how_many_were_asked_for_is_not():
    first, second = (f"wmd|n:{n}|len:35|decode:sample|split:test" for n in (997, 995))
    assert keys_of(run(1, first), run(2, second)) == [["wmd|test|sample"]] * 2
    asked = [{"sentences": 1000}, {"sentences": 5000}]
    assert keys_of(run(1, first, request=asked[0]), run(2, second, request=asked[1])) == [
        ["wmd|test|sample|sentences:1000"],
        ["wmd|test|sample|sentences:5000"],
    ]
    assert keys_of(run(1, first, second)) == [["wmd|test|sample|n:997", "wmd|test|sample|n:995"]]


def test_texts_of_other_lengths_have_other_numbers_of_sentences_and_are_never_compared_anyway():
    long, short = f"bleu4|{TEXT}|split:test", f"bleu4|{TEXT.replace('1000', '812')}|split:test"
    assert keys_of(run(1, long), run(1, short, corpus="small")) == [["bleu4|test|sample"]] * 2


def test_noise_is_of_one_kind_where_the_tables_are_neighbors_of_bigrams_or_of_named_vectors():
    own = "ppl-neighbor-noise10|split:test|streams:20|noise-table:{}|noise-tau:{}|noise-seed:0"
    first, second = own.format("nnrs", "0.5"), own.format("tprs", "1")
    both = own.format("ss-nnrs", "0.5")
    assert keys_of(run(1, first), run(2, both)) == [["ppl-neighbor-noise10|test"]] * 2
    assert keys_of(run(1, first), run(2, second)) == [
        ["ppl-neighbor-noise10|test|noise-table:nnrs|noise-tau:0.5"],
        ["ppl-neighbor-noise10|test|noise-table:tprs|noise-tau:1"],
    ]
    [[_, named]] = keys_of(run(1, first, own.format("glove-k8", "0.5")))
    assert named == "ppl-neighbor-noise10|test|noise-table:glove-k8"


def test_a_mean_over_seeds_is_of_scores_that_were_made_alike():
    head = f"bleu4|{TEXT}|split:test"
    other = head.replace("n:1000", "n:500")
    [group] = grouped([run(1, head), run(2, head), run(3, other, head)])
    assert group.scores == {
        "bleu4|test|sample|n:1000": {1: 0.0, 2: 0.0, 3: 1.0},
        "bleu4|test|sample|n:500": {3: 0.0},
    }
