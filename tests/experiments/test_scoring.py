"""A run directory becomes scores: each the number it says, kept once for each signature."""

import json
import math
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.experiments.scores import CPU, SHORT, by_name, ids_of, scores_of

import nnrs
from nnrs.errors import ConfigError, DataError, RunError
from nnrs.evaluation import exposure
from nnrs.evaluation.evaluate import text_nats, text_perplexity
from nnrs.evaluation.generate import DECODINGS
from nnrs.experiments.config import RunConfig
from nnrs.experiments.generations import cut
from nnrs.experiments.run import start
from nnrs.experiments.scoring import METRICS, evaluate_run
from nnrs.experiments.subject import Request
from nnrs.metrics.bleu import self_bleu
from nnrs.metrics.frequency import frequency_deciles
from nnrs.run_directory import RunDirectory


def test_perplexity_is_that_of_the_summary_within_an_interval_that_shrinks_with_the_text(run):
    valid, test = evaluate_run(run, CPU, Request(splits=("valid", "test")))
    summary = json.loads((run / "summary.json").read_text())
    assert (valid.value, test.value) == (summary["valid_perplexity"], summary["test_perplexity"])
    assert f"ppl|{test.signature}" == summary["signature"]
    assert test.interval[0] < test.value < test.interval[1]
    [train] = evaluate_run(run, CPU, Request(splits=("train",)))  # 18 times as much text
    width = [math.log(score.interval[1] / score.interval[0]) for score in (test, train)]
    assert width[1] < width[0] / 2


def test_the_losses_that_a_run_left_are_those_of_its_model_and_are_not_computed_again(run):
    left = scores_of(run, "perplexity", "deciles")
    loaded = nnrs.load(run)
    nats, _ = text_nats(loaded.model, ids_of(run), eos_id=loaded.vocabulary.eos_id)
    kept = load_file(run / "losses.safetensors")
    assert {split: (len(row), row.dtype) for split, row in kept.items()} == {
        split: (len(ids_of(run, split)), torch.float32) for split in ("valid", "test")
    }
    torch.testing.assert_close(kept["test"].double(), nats, rtol=0, atol=0)
    (run / "losses.safetensors").unlink()
    assert scores_of(run, "perplexity", "deciles") == left
    RunDirectory(run).write_losses({"test": torch.zeros(len(nats))})
    assert scores_of(run, "perplexity")[0].value == 1.0
    assert scores_of(run, "perplexity", data="sotu")[0].value > 1.0  # another text than theirs
    assert scores_of(run, "perplexity", splits=("valid",))[0].value > 1.0


def test_equal_losses_are_equal_files(run):
    losses = {"valid": torch.ones(4), "test": torch.zeros(3)}
    seen = set()
    for _ in range(8):
        RunDirectory(run).write_losses(losses)
        seen.add((run / "losses.safetensors").read_bytes())
    assert len(seen) == 1


@pytest.mark.parametrize("harm", ["torn", "changed", "no such file at all"])
def test_damaged_losses_are_refused_by_name(run, harm):
    path = run / "losses.safetensors"
    data = path.read_bytes()
    flipped = data[:-1] + bytes([data[-1] ^ 1])
    path.write_bytes({"torn": data[:-9], "changed": flipped, "no such file at all": b"losses"}[harm])
    with pytest.raises(RunError, match=r"losses\.safetensors is damaged\. Delete it") as caught:
        scores_of(run, "perplexity", splits=("test", "valid"))
    assert "\n" not in str(caught.value)


def test_the_tenths_of_the_text_add_up_to_its_perplexity(run):
    whole, *tenths = scores_of(run, "perplexity", "deciles")
    counts = torch.tensor(nnrs.load(run).vocabulary.counts, dtype=torch.float64)
    tokens = torch.bincount(frequency_deciles(counts)[ids_of(run).long()], minlength=10).tolist()
    places = [int(score.metric.removeprefix("ppl-decile")) - 1 for score in tenths]
    assert places == [place for place in range(10) if tokens[place]]  # a tenth without a token is left out
    nats = [tokens[place] * math.log(score.value) for place, score in zip(places, tenths, strict=True)]
    assert sum(nats) == pytest.approx(len(ids_of(run)) * math.log(whole.value))
    assert all(
        score.interval is None or score.interval[0] <= score.value <= score.interval[1] for score in tenths
    )


def test_tenths_that_a_word_fills_or_a_split_lacks_are_told(tmp_path):
    text, other, run, heard = tmp_path / "text.txt", tmp_path / "other.txt", tmp_path / "run", []
    text.write_text("<unk> <unk> <unk> a b c\n" * 200)
    settings = {
        "data": {"source": str(text)},
        "policy": {"method": "mle"},
        "model": {"preset": "tiny", "units": 8},
        "training": {"epochs": 1, "batch_size": 8, "bptt": 10},
    }
    start(RunConfig.from_dict(settings), run, CPU).finish()
    # <unk> is 3/7 of the text, <eos>, a, b and c 1/7 each: their middles are at 0.21, 0.50, 0.64, 0.79 and 0.93.
    made = by_name(scores_of(run, "deciles", note=heard.append))
    assert list(made) == [f"ppl-decile{tenth}" for tenth in (3, 6, 7, 8, 10)]
    left = ", ".join(f"ppl-decile{tenth}" for tenth in (1, 2, 4, 5, 9))
    of_word = (
        f"{run}: {left} (test) left out, for no word belongs there "
        "(a frequent one, such as <unk>, may fill more than a tenth)"
    )
    assert heard == [of_word]
    other.write_text("a b c\n" * 200)
    heard.clear()
    scores_of(run, "deciles", data=str(other), note=heard.append)
    assert heard == [of_word, f"{run}: ppl-decile3 (test) left out, for the text measured has no such word"]


def test_noise_starts_from_the_clean_text_and_harms_more_the_more_there_is(run):
    made = by_name(scores_of(run, "noise"))
    kinds = {
        f"ppl-{kind}-noise{rate}" for kind in ("neighbor", "unigram", "own") for rate in (10, 20, 30, 40, 50)
    }
    assert set(made) == {"ppl-noise0"} | kinds
    loaded, ids = nnrs.load(run), ids_of(run)
    clean = text_perplexity(loaded.model, ids, eos_id=loaded.vocabulary.eos_id, streams=20).compute()
    assert made["ppl-noise0"].value == pytest.approx(clean, rel=1e-6)
    for kind in ("unigram", "own"):
        assert clean < made[f"ppl-{kind}-noise10"].value < made[f"ppl-{kind}-noise50"].value
    assert "noise-table:nnrs|noise-tau:0.5" in made["ppl-neighbor-noise10"].signature


def test_neighbor_noise_needs_a_table_or_vectors_to_make_one_of(plain_run, trained):
    heard = []
    without = scores_of(plain_run, "noise", splits=("valid", "test"), note=heard.append)
    assert heard == [f"{plain_run} has no neighbor table: neighbor noise left out (--vectors)"]  # once
    assert not any("neighbor" in score.metric for score in without)
    made = by_name(scores_of(plain_run, "noise", vectors=str(trained / "words.vec")))
    assert "noise-table:words-k5|noise-tau:0.5" in made["ppl-neighbor-noise10"].signature
    assert made["ppl-neighbor-noise50"].value != made["ppl-noise0"].value


def test_rows_of_the_word_before_make_no_neighbor_noise(trained, tmp_path):
    settings = {
        "data": {"source": str(trained / "text.txt")},
        "policy": {"method": "tprs", "transition_row": "previous"},
        "model": {"preset": "tiny", "units": 8},
        "training": {"epochs": 1, "batch_size": 8, "bptt": 10},
    }
    path, heard = tmp_path / "previous", []
    start(RunConfig.from_dict(settings), path, CPU).finish()
    made = by_name(scores_of(path, "noise", note=heard.append))
    assert heard == [
        f"{path} has a table of the words after the one before: neighbor noise left out (--vectors)"
    ]
    assert not any("neighbor" in name for name in made)
    near = by_name(scores_of(path, "noise", vectors=str(trained / "words.vec")))
    assert "noise-table:words-k5" in near["ppl-neighbor-noise10"].signature


def test_scores_of_an_earlier_model_are_kept_but_no_longer_the_runs(run):
    directory = RunDirectory(run)
    earlier = scores_of(run, "perplexity", "bleu")
    assert [record["value"] for record in directory.scores()] == [score.value for score in earlier]
    tensors, state = directory.best()
    changed = {name: tensor * 0.5 for name, tensor in tensors.items()}
    directory.write_best(changed, {**state, "step": state["step"] + 1})
    assert directory.scores() == []
    [now] = scores_of(run, "perplexity")
    assert [record["value"] for record in directory.scores()] == [now.value]
    assert now.value != earlier[0].value
    assert len(directory.records("scores")) == len(
        earlier
    )  # ppl was replaced, bleu is still the earlier one's


def test_the_number_of_sentences_is_the_number_there_are(run):
    tokens = len(ids_of(run))
    few = by_name(scores_of(run, "bleu", "self-bleu", sentences=7))
    many = by_name(scores_of(run, "bleu", "self-bleu"))
    assert few["bleu4"].signature.startswith(
        "n:7|len:9|decode:sample|prefix:3|smooth:1|text-seed:0|split:test|"
    )
    assert few["self-bleu4"].signature.startswith("n:7|len:9|decode:sample|prefix:3|smooth:1|within:batch7|")
    assert many["bleu4"].signature.startswith(f"n:{tokens // 12}|")
    assert many["self-bleu4"].signature.startswith(f"n:{tokens // 12 // 20 * 20}|")  # whole minibatches


def test_self_bleu_compares_within_minibatches_of_twenty(run):
    score = by_name(scores_of(run, "self-bleu"))["self-bleu4"]
    made = [record["generated"] for record in RunDirectory(run).records("generations")]
    batches = [made[first : first + 20] for first in range(0, len(made) - 19, 20)]
    assert len(made) % 20  # the remainder is left out
    assert score.value == pytest.approx(100 * np.mean([self_bleu(batch).mean() for batch in batches]))
    assert score.interval[0] < score.value < score.interval[1]


def test_wmd_is_reported_on_three_scales_and_sees_no_markers(run, trained):
    made = by_name(scores_of(run, "wmd"))
    distance = made["wmd"]
    assert made["wmd-similarity"].value == pytest.approx(1 - distance.value)
    assert made["wmd-scaled"].value == pytest.approx(1 - distance.value / 2)
    assert made["wmd-scaled"].interval == pytest.approx([1 - end / 2 for end in distance.interval[::-1]])
    assert "|wmd-vectors:corpus|" in distance.signature
    path = run / "generations.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for index, line in enumerate(lines):  # gold but for its markers, and nothing but markers in the first
        words = [word for word in line["gold"] if word != "<eos>"]
        line["generated"] = [*words, "<eos>", "<unk>", "<eos>"] if index else ["<eos>", "<unk>"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    again = by_name(scores_of(run, "wmd", vectors=str(trained / "words.vec")))["wmd"]
    assert again.value == pytest.approx(0.0, abs=1e-12)
    assert again.signature.startswith(f"n:{len(lines) - 1}|")
    assert "|wmd-vectors:words|" in again.signature


def test_a_model_that_says_nothing_has_its_other_scores_all_the_same(run):
    scores_of(run, "bleu")
    path = run / "generations.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({**line, "generated": ["<eos>"] * 9}) + "\n" for line in lines))
    heard = []
    made = [score.metric for score in scores_of(run, "wmd", "self-wmd", "self-bleu", note=heard.append)]
    assert made == ["self-bleu4"]
    assert [remark.split(": ")[1] for remark in heard] == [
        f"{metric} (test, sample) left out, for no two sentences can be compared"
        for metric in ("wmd", "self-wmd")
    ]
    with pytest.raises(DataError, match="none of the metrics can be computed: wmd"):
        scores_of(run, "wmd")


def test_exposure_scores_are_points_of_the_curve_that_is_kept_whole(run):
    made = by_name(scores_of(run, "exposure", seed=3, length=12))
    loaded = nnrs.load(run)
    prefixes, gold = cut(ids_of(run), Request(prefix=3, length=12))
    seen = exposure.evaluate(loaded.model, prefixes, gold, recovery=6, seed=3)
    excess = (seen.own_nats - seen.gold_nats).mean(0).tolist()
    # 12 steps: 7 after nothing but the model's own tokens, then 5 after 1, 2, ... 5 gold ones.
    wanted = {"excess-nats-h1": 0, "excess-nats-h5": 4, "excess-nats-h7": 6}
    wanted |= {f"recovery-nats-{step}": 6 + step for step in range(1, 6)}
    distances = {f"wmd-h{h}" for h in (1, 5, 10, 12)}
    assert set(made) == set(wanted) | distances | {"own-accuracy", "rep-4", "distinct-2"}
    for name, column in wanted.items():
        assert made[name].value == pytest.approx(excess[column], abs=1e-12)
        assert made[name].interval[0] <= made[name].value <= made[name].interval[1]
    assert made["excess-nats-h1"].value == pytest.approx(0.0, abs=1e-5)  # the history is still gold
    assert made["own-accuracy"].value == pytest.approx(float(seen.own_hits[:, :7].double().mean()))
    assert made["excess-nats-h7"].curve == seen.curve()
    assert [name for name, score in made.items() if score.curve] == ["excess-nats-h7", "wmd-h12"]
    stored = json.loads((run / "scores.jsonl").read_text().splitlines()[2])
    assert (stored["metric"], len(stored["curve"]["own_nats"])) == ("excess-nats-h7", 12)


def test_the_distance_to_the_gold_text_is_told_step_by_step(run, plain_run):
    made, whole = by_name(scores_of(run, "exposure")), by_name(scores_of(run, "wmd"))["wmd"]
    last = made["wmd-h9"]
    assert last.signature == whole.signature
    assert last.value == pytest.approx(whole.value, rel=1e-14)  # the same terms, added up in another order
    assert last.interval == pytest.approx(whole.interval)
    assert [len(row) for row in last.curve.values()] == [9] * 4
    assert made["wmd-h5"].value == last.curve["wmd"][4] != last.value
    heard = []
    without = by_name(scores_of(plain_run, "exposure", note=heard.append))
    assert f"{plain_run}: wmd by step left out, for the run has no word vectors (--vectors)" in heard
    assert not any(name.startswith("wmd") for name in without)


def test_errors_accumulate_against_a_named_oracle(run, plain_run):
    heard = []
    without = scores_of(run, "exposure", note=heard.append, splits=("valid", "test"))
    assert not any(score.metric.startswith("ex-acc-err") for score in without)
    assert heard == [
        f"{run}: accumulated errors left out, for they need an oracle: a run of a better model on the same text "
        "(--oracle RUN)"
    ]  # once
    made = by_name(scores_of(run, "exposure", oracle=str(plain_run), decodings=("greedy",), seed=2))
    prefixes, _ = cut(ids_of(run), Request(**SHORT))
    ours, oracle = nnrs.load(run).model, nnrs.load(plain_run).model
    seen = exposure.accumulated_error(ours, oracle, prefixes, length=9, decoding=DECODINGS["greedy"], seed=2)
    found = {name: score for name, score in made.items() if name.startswith("ex-acc-err")}
    assert set(found) == {f"ex-acc-err-h{h}" for h in (1, 5, 9)}
    for h in (1, 5, 9):
        assert found[f"ex-acc-err-h{h}"].value == float(seen.excess_percent()[h - 1])
        assert found[f"ex-acc-err-h{h}"].interval == tuple(float(end[h - 1]) for end in seen.interval())
    curve = found["ex-acc-err-h9"].curve
    assert curve["own_regret"] == seen.own.mean(0).tolist()
    assert curve["oracle_regret"] == seen.oracle.mean(0).tolist()
    model = RunDirectory(plain_run).best_fingerprint()
    assert f"|decode:greedy|prefix:3|oracle:mle@{model[:8]}|" in found["ex-acc-err-h9"].signature


def test_an_oracle_is_another_run_with_the_same_words(run, trained, tmp_path):
    heard = []
    scores_of(run, "exposure", oracle=str(run), note=heard.append)
    assert heard == [f"{run}: accumulated errors left out, for it is the oracle itself"]
    settings = {
        "data": {"source": str(trained / "text.txt"), "max_vocabulary": 20},
        "policy": {"method": "mle"},
        "model": {"preset": "tiny", "units": 8},
        "training": {"epochs": 1, "batch_size": 8, "bptt": 10},
    }
    start(RunConfig.from_dict(settings), tmp_path / "few", CPU).finish()
    with pytest.raises(RunError, match=r"the oracle .*few has another vocabulary than .*nnrs"):
        scores_of(run, "exposure", oracle=str(tmp_path / "few"))
    with pytest.raises(RunError, match="absent is not a run directory"):
        scores_of(run, "exposure", oracle=str(tmp_path / "absent"))


def test_all_leaves_out_what_a_text_is_too_short_for(run):
    heard = []
    made = by_name(scores_of(run, "all", length=5000, note=heard.append))
    assert made.keys() >= {"ppl", "ppl-decile10"}
    assert not made.keys() & {"bleu4", "self-bleu4", "own-accuracy"}
    assert (
        sum("left out, for a text of" in remark for remark in heard) == 5
    )  # bleu, wmd, both of itself, exposure


def test_exposure_refuses_what_has_no_history_of_its_own(run):
    with pytest.raises(ConfigError, match="add sample, greedy or top-p to --decode"):
        scores_of(run, "exposure", decodings=("beam", "teacher-forced"))
    with pytest.raises(
        ConfigError, match=r"exposure cannot be measured: it needs a --length .* of at least 7, got 6"
    ):
        scores_of(run, "exposure", length=6)
    heard = []
    scores_of(run, "all", length=6, note=heard.append)
    assert (
        f"{run}: exposure left out, for it needs a --length (in a grid file: length) of at least 7, got 6"
        in heard
    )


def test_scores_are_kept_once_for_each_signature(run):
    first = scores_of(run, "perplexity", "bleu")
    lines = (run / "scores.jsonl").read_text().splitlines()
    model = RunDirectory(run).best_fingerprint()
    assert [json.loads(line) for line in lines] == [{**score.as_dict(), "model": model} for score in first]
    scores_of(run, "bleu")
    scores_of(run, "bleu", sentences=7)
    kept = RunDirectory(run).records("scores")
    assert len(kept) == 5  # two of 7 sentences more
    assert len({record["signature"] for record in kept}) == 5


def test_where_nothing_can_be_written_the_scores_are_given_all_the_same(run, monkeypatch):
    expected, heard = scores_of(run, "bleu"), []
    (run / "generations.jsonl").unlink()

    def refuse(self, name, field, values, records):
        raise RunError(f"cannot write {name}.")

    monkeypatch.setattr(RunDirectory, "replace", refuse)
    assert scores_of(run, "bleu", note=heard.append) == expected
    assert heard == [f"{name} are not kept: cannot write {name}." for name in ("generations", "scores")]


def test_all_is_all_that_a_run_has_the_means_for(run, plain_run, trained):
    heard = []
    made = {score.metric for score in scores_of(run, "all", note=heard.append, oracle=str(plain_run))}
    assert heard == []
    assert {"ppl", "ppl-decile1", "ppl-noise0", "bleu4", "self-bleu4", "wmd", "self-wmd", "rep-4"} <= made
    less = {score.metric for score in scores_of(plain_run, "all", note=heard.append, decodings=("beam",))}
    assert len(heard) == 4
    assert not any(name.startswith(("wmd", "self-wmd", "rep", "excess")) for name in less)
    with pytest.raises(
        ConfigError, match=r"trained without word vectors, which wmd needs\. Name some with --vectors"
    ):
        scores_of(plain_run, "wmd")
    assert by_name(scores_of(plain_run, "wmd", vectors=str(trained / "words.vec")))["wmd"].value > 0


def test_vectors_that_have_changed_are_refused_unless_they_are_named(trained, tmp_path):
    vectors = tmp_path / "words.vec"
    shutil.copy(trained / "words.vec", vectors)
    settings = {
        "data": {"source": str(trained / "text.txt")},
        "vectors": {"source": str(vectors)},
        "policy": {"method": "nnrs"},
        "model": {"preset": "tiny", "units": 8},
        "training": {"epochs": 1, "batch_size": 8, "bptt": 10},
    }
    start(RunConfig.from_dict(settings), tmp_path / "run", CPU).finish()
    scores_of(tmp_path / "run", "self-wmd")
    vectors.write_text(vectors.read_text().replace("w3 ", "w3 1"))
    with pytest.raises(RunError, match=r"words\.vec has changed since"):
        scores_of(tmp_path / "run", "self-wmd")
    scores_of(tmp_path / "run", "self-wmd", vectors=str(vectors))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"metrics": ("blue",)}, "unknown metric 'blue'. Did you mean 'bleu'?"),
        ({"splits": ("tset",)}, "unknown split 'tset'. Did you mean 'test'?"),
        ({"decodings": ("greedily",)}, "unknown decoding 'greedily'. Did you mean 'greedy'?"),
        (
            {"decodings": ("teacherforced",)},
            "unknown decoding 'teacherforced'. Did you mean 'teacher-forced'?",
        ),
        ({"sentences": 0}, "sentences must be at least 1, got 0."),
    ],
)
def test_what_is_unknown_is_refused_by_name(asked, message, trained):
    with pytest.raises(ConfigError) as caught:
        evaluate_run(trained / "mle", CPU, Request(**asked))
    assert str(caught.value).startswith(message)


def test_every_metric_has_a_name_in_the_help():
    from nnrs.cli.evaluate import evaluate

    [option] = evaluate.__annotations__["metrics"].__metadata__
    assert [name for name in METRICS if f"{name}" not in option.help] == []
