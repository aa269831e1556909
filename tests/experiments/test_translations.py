"""A run that translates: it learns, under every method, resumes bit for bit, and is scored by what it makes."""

import json
import shutil
import sys
from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu import corpus_bleu
from tests.digits import translated, write_digits

import nnrs
from nnrs.batches import IGNORED
from nnrs.errors import ConfigError, RunError
from nnrs.evaluation.generate import DECODINGS, decoding_of
from nnrs.evaluation.translate import target_nats, translate
from nnrs.experiments.config import RunConfig
from nnrs.experiments.options import command_of, configure
from nnrs.experiments.run import resume, start
from nnrs.experiments.scoring import evaluate_run
from nnrs.experiments.subject import Request
from nnrs.experiments.text import ParallelText, Text
from nnrs.experiments.together import can_batch
from nnrs.experiments.trajectory import trajectory_of
from nnrs.experiments.translations import bleu_with_interval, sacrebleu_metric, translate_words
from nnrs.metrics.significance import resampled_means
from nnrs.policies.methods import METHODS
from nnrs.run_directory import RunDirectory

CPU = torch.device("cpu")
WORDS = ["3", "1", "4"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("parallel") / "digits")


def config(digits, method="mle", **sections):
    given = {
        "data": {"task": "translate", "source": str(digits), "from_language": "num", "to_language": "en"},
        "policy": {"method": method, **sections.pop("policy", {})},
        "model": {"preset": "tiny", "units": 16, "dropout": 0.1, **sections.pop("model", {})},
        "optimizer": {"learning_rate": 0.01},
        "training": {"epochs": 2, "batch_size": 50, **sections.pop("training", {})},
    }
    return RunConfig.from_dict({**given, **sections})


@pytest.fixture(scope="module")
def learned(digits, tmp_path_factory):
    """A run that has learned the language. Copy it before changing it."""
    out = tmp_path_factory.mktemp("learned") / "run"
    size = {"units": 64, "layers": 1, "dropout": 0.0}
    run = start(config(digits, model=size, training={"epochs": 12, "batch_size": 20}), out, CPU)
    run.finish()
    return out


def test_it_learns_to_translate_words_in_another_order(learned):
    request = Request(metrics=("bleu", "perplexity"), decodings=("greedy", "beam5"))
    greedy, beam, perplexity = evaluate_run(learned, CPU, request)
    assert greedy.value > 95.0
    assert beam.value > 95.0
    assert perplexity.value < 1.1
    assert perplexity.interval[0] < perplexity.value < perplexity.interval[1]
    assert perplexity.value == pytest.approx(RunDirectory(learned).summary()["test_perplexity"], rel=1e-9)
    parts = greedy.parts
    named = {"task": "translate", "from": "num", "to": "en", "decode": "greedy", "tok": "none", "n": "40"}
    assert named.items() <= parts.items()
    assert parts["sacrebleu"].startswith("2.")
    assert beam.parts["decode"] == "beam5-penalty1"


def test_without_sacrebleu_all_leaves_bleu_out_and_says_so(learned, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    run, notes = shutil.copytree(learned, tmp_path / "run"), []
    request = Request(metrics=("all",), decodings=("greedy",))
    assert [score.metric for score in evaluate_run(run, CPU, request, notes.append)] == ["ppl"]
    reason = "the package sacrebleu is not installed (pip install 'nnrs[metrics]')"
    assert notes == [f"{run}: bleu left out, for {reason}"]


def test_bleu_is_sacrebleus_of_what_was_made_and_of_the_text_as_it_stands(learned, digits):
    [score] = evaluate_run(learned, CPU, Request(metrics=("bleu",), decodings=("sample",), seed=3))
    lines = RunDirectory(learned).records(
        "generations", key="task:translate|decode:sample|text-seed:3|split:test"
    )
    gold = (digits / "test.en").read_text().splitlines()
    assert [" ".join(line["gold"]) for line in lines] == gold
    assert [" ".join(line["prefix"]) for line in lines] == (digits / "test.num").read_text().splitlines()
    made = [" ".join(line["generated"]) for line in lines]
    assert made != gold  # so that there is something to score
    assert score.value == pytest.approx(corpus_bleu(made, [gold], tokenize="none", force=True).score)
    assert score.interval[0] <= score.value <= score.interval[1]
    assert "text-seed:3" in score.signature


def noisy_copies(count, kept, seed=0):
    """Sentences of 5 to 25 words out of 300, and copies in which each word was kept with this probability."""
    random = Random(seed)
    words = [f"w{number}" for number in range(300)]
    gold = [random.choices(words, k=random.randint(5, 25)) for _ in range(count)]
    made = [[word if random.random() < kept else random.choice(words) for word in line] for line in gold]
    return made, gold


@pytest.mark.parametrize(
    ("kept", "least", "most"),
    [(0.58, 25.0, 35.0), (0.05, 0.1, 1.0)],
    ids=["fair", "poor"],  # without a match of the higher orders, smoothing decides
)
def test_the_interval_of_bleu_is_that_of_sacrebleus_scores_of_the_same_draws(kept, least, most):
    made, gold = noisy_copies(30, kept)
    value, interval = bleu_with_interval(sacrebleu_metric(), made, gold)
    times = (resampled_means(torch.eye(30).double()) * 30).round().long().tolist()  # each sentence is drawn
    assert all(sum(row) == 30 for row in times)
    again = []
    for row in times:
        drawn = [index for index, often in enumerate(row) for _ in range(often)]
        lines, references = ([" ".join(side[index]) for index in drawn] for side in (made, gold))
        again.append(corpus_bleu(lines, [references], tokenize="none", force=True).score)
    ends = torch.tensor(again).double().quantile(torch.tensor([0.025, 0.975]).double())
    assert interval == pytest.approx(tuple(ends.tolist()), rel=1e-6)
    assert least < value < most
    assert interval[0] < value < interval[1]


@given(made=st.lists(st.sampled_from("abc"), max_size=9), gold=st.lists(st.sampled_from("abc"), max_size=9))
def test_of_the_same_sentence_again_and_again_the_interval_of_bleu_is_its_value(made, gold):
    value, interval = bleu_with_interval(sacrebleu_metric(), [made] * 3, [gold] * 3)
    assert interval == pytest.approx((value, value))


@pytest.mark.parametrize("seed", range(8))
def test_the_interval_of_bleu_holds_its_value_where_every_order_has_matches(seed):
    made, gold = noisy_copies(60, 0.3 + 0.08 * seed, seed)
    value, interval = bleu_with_interval(sacrebleu_metric(), made, gold)
    assert interval[0] < value < interval[1]


def test_a_translation_ends_where_its_sentence_ends_and_its_row_is_its_own(learned, digits):
    loaded, text = nnrs.load(learned), Text.read(nnrs.load(learned).config.data)
    assert isinstance(text, ParallelText)
    eos_id, sources = loaded.vocabulary.eos_id, text.sources["test"]
    for name in ("greedy", "beam5"):
        rows = translate(loaded.model, sources, eos_id=eos_id, decoding=decoding_of(name))
        alone = [
            translate(loaded.model, _only(sources, row), eos_id=eos_id, decoding=decoding_of(name))[0]
            for row in range(5)
        ]
        assert rows[:5] == alone
        assert all(eos_id not in row for row in rows)
        said = [loaded.vocabulary.decode(row) for row in rows]
        expected = [translated(line) for line in text.source.lines("test")]
        assert sum(map(list.__eq__, said, expected)) >= 38  # of 40


def test_a_translation_that_never_ends_is_as_long_as_its_own_source_allows(learned):
    loaded, text = nnrs.load(learned), Text.read(nnrs.load(learned).config.data)
    eos_id, sources = loaded.vocabulary.eos_id, text.sources["test"]
    with torch.no_grad():
        loaded.model.output_bias[eos_id] = -1e9
    rows = translate(loaded.model, sources, eos_id=eos_id, decoding=decoding_of("greedy"))
    assert [len(row) for row in rows] == [2 * len(line) + 10 for line in text.source.lines("test")]


def _only(sentences, row):
    first, length = int(sentences.starts[row]), int(sentences.lengths[row])
    return replace(
        sentences, ids=sentences.ids[first : first + length], lengths=sentences.lengths[row : row + 1]
    )


def test_greedy_is_the_likeliest_word_at_every_step(learned):
    loaded = nnrs.load(learned)
    vocabulary, sources = loaded.vocabulary, loaded.source_vocabulary
    ids = torch.tensor([[*sources.encode(WORDS), sources.eos_id]])
    state, word, said = loaded.model.read(ids), vocabulary.eos_id, []
    while len(said) < 10:
        logits, state = loaded.model(torch.tensor([[word]]), state)
        word = int(logits[0, -1].argmax())
        if word == vocabulary.eos_id:
            break
        said.append(vocabulary.words[word])
    assert said == translated(WORDS)
    assert translate_words(loaded, WORDS, 2, DECODINGS["greedy"], seed=1) == [said, said]


def test_the_perplexity_is_that_of_each_sentence_scored_by_itself(learned):
    loaded, text = nnrs.load(learned), Text.read(nnrs.load(learned).config.data)
    nats, metric = target_nats(loaded.model, text.pairs("test", 7))
    alone = []
    for row in range(len(nats)):
        source, target = (_only(side["test"], row) for side in (text.sources, text.targets))
        inputs = torch.tensor([[loaded.vocabulary.eos_id, *target.ids[:-1].tolist()]])
        logits, _ = loaded.model(inputs, loaded.model.read(source.ids[None].long()))
        alone.append(-logits[0].log_softmax(-1).gather(1, target.ids[:, None].long()).sum())
    torch.testing.assert_close(nats, torch.stack(alone).double(), atol=1e-4, rtol=1e-4)
    assert int(metric.tokens) == len(text.ids["test"])  # every word and every <eos>, nothing else


def test_the_losses_that_a_translator_left_are_used(learned, tmp_path):
    run = RunDirectory(shutil.copytree(learned, tmp_path / "run"))
    text = Text.read(nnrs.load(learned).config.data)
    nats, metric = target_nats(nnrs.load(learned).model, text.pairs("test", 7))
    torch.testing.assert_close(run.losses("test"), nats, atol=1e-5, rtol=1e-5)  # in batches of another size
    [left] = evaluate_run(run.path, CPU)
    assert left.value == pytest.approx(metric.compute())
    run.write_losses({"test": torch.zeros_like(nats)})
    assert evaluate_run(run.path, CPU)[0].value == 1.0


RATES = {"shape": "static", "end": 0.5}


WAYS = [(method, {}) for method in METHODS] + [
    (method, way) for method in ("ss", "ss-nnrs") for way in ({"unroll": "exact"}, {"passes": 2})
]


@pytest.mark.parametrize(("method", "settings"), WAYS, ids=str)
def test_every_method_trains_and_replaces_decoder_inputs_alone(
    digits, tmp_path, method, settings, monkeypatch
):
    rates = {"prediction_rate": RATES} if METHODS[method].predictions else {}
    rates |= {"neighbor_rate": RATES} if METHODS[method].proposal else {}
    run = start(config(digits, method, policy={**rates, **settings}), tmp_path / "run", CPU)
    seen = []
    read = run.parts.model.read
    monkeypatch.setattr(
        run.parts.model, "read", lambda source, masks=None: seen.append(source) or read(source, masks)
    )
    assert run.finish()["test_perplexity"] < 10.0
    text, batches = run.parts.text, len(run.parts.windows)
    trained = [source for source in seen if len(source) == 50][: 2 * batches]  # validation reads 40 at once
    assert len(trained) == 2 * batches
    for epoch in (trained[:batches], trained[batches:]):
        lines = [tuple(row[row != IGNORED].tolist()) for source in epoch for row in source]
        sides = text.sources["train"]
        assert sorted(lines) == sorted(
            tuple(line.tolist()) for line in sides.ids.split(sides.lengths.tolist())
        )
    last = run.directory.records("metrics")[-1]
    assert (last["effective_prediction_rate"] > 0.1) == METHODS[method].predictions
    assert (last["effective_neighbor_rate"] > 0.1) == (METHODS[method].proposal is not None)


def test_at_rate_0_scheduled_sampling_is_bitwise_teacher_forcing(digits, tmp_path):
    weights = []
    for method, policy in (("mle", {}), ("ss", {"prediction_rate": {"end": 0.0}})):
        run = start(config(digits, method, policy=policy), tmp_path / method, CPU)
        run.finish()
        weights.append(run.parts.model.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("method", ["mle", "ss-nnrs", "gsns"])
def test_a_run_stopped_within_an_epoch_continues_as_an_unbroken_one(digits, tmp_path, method):
    unbroken = start(config(digits, method), tmp_path / "unbroken", CPU)
    whole = unbroken.finish()
    stops = iter(
        [False] * 17 + [True] * 9
    )  # asked before the first of 12 batches, and after all but the last
    assert start(config(digits, method), tmp_path / "stopped", CPU).finish((), lambda: next(stops)) is None
    run = resume(tmp_path / "stopped", CPU)
    assert (run.trainer.live.position.epoch, run.trainer.live.position.window) == (1, 6)
    rest = run.finish()
    assert rest["test_perplexity"] == whole["test_perplexity"]
    assert run.directory.records("metrics") == unbroken.directory.records("metrics")
    for name, value in unbroken.parts.model.state_dict().items():
        assert torch.equal(value, run.parts.model.state_dict()[name])


def test_a_run_directory_lost_its_source_vocabulary_to_a_kill_and_gets_it_back(digits, tmp_path):
    start(config(digits), tmp_path / "run", CPU)
    path = tmp_path / "run" / "source_vocabulary.json"
    before = path.read_text()
    path.unlink()
    resume(tmp_path / "run", CPU)
    assert path.read_text() == before


@pytest.mark.parametrize("name", ["train.num", "test.en"])
def test_a_run_does_not_continue_where_either_language_has_changed(digits, tmp_path, name):
    folder = tmp_path / "digits"
    shutil.copytree(digits, folder)
    start(config(folder), tmp_path / "run", CPU)
    lines = (folder / name).read_text().splitlines(keepends=True)
    (folder / name).write_text("".join([*lines[1:], lines[0]]))
    with pytest.raises(RunError, match="has changed"):
        resume(tmp_path / "run", CPU)


def test_the_configuration_says_task_and_languages_and_a_language_model_says_nothing_of_them(
    digits, tmp_path
):
    given = {"task": "translate", "data": str(digits), "to_language": "num", "preset": "tiny", "seed": 3}
    run = start(configure(given), tmp_path / "run", CPU)
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["data"]
    assert (stored["task"], stored["from_language"], stored["to_language"]) == ("translate", "en", "num")
    words = command_of(run.parts.config)
    expected = "--task translate --data digits --from en --to num --preset tiny --seed 3"
    assert all(word in words for word in expected.split()), words
    assert RunConfig.from_dict(run.parts.config.as_dict()) == run.parts.config
    assert RunConfig().as_dict()["data"] == {"source": "sotu", "min_count": 1, "max_vocabulary": None}


def test_a_translation_has_settings_of_its_own_which_what_is_asked_for_overrides():
    usual = configure({"task": "translate"})
    assert (usual.model.units, usual.optimizer.name, usual.optimizer.learning_rate) == (640, "adamw", 1e-3)
    assert (usual.training.batch_size, usual.data.min_count, usual.optimizer.clip) == (128, 2, 1.0)
    asked = configure({"task": "translate", "batch_size": 7, "min_count": 1, "preset": "tiny", "clip": 0.5})
    assert (asked.training.batch_size, asked.data.min_count, asked.model.units) == (7, 1, 64)
    assert (asked.optimizer.name, asked.optimizer.clip) == ("adamw", 0.5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task": "translat"}, "Did you mean 'translate'"),
        ({"from_language": "de"}, "--from and --to go with --task translate"),
        ({"task": "translate", "model": "transformer"}, "unknown translator 'transformer'"),
        ({"task": "translate", "bptt": 10}, "leave --bptt out"),
    ],
)
def test_what_does_not_apply_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        configure(given)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"metrics": ("exposure",)}, "perplexity, bleu, but no exposure"),
        ({"metrics": ("self-bleu",)}, "perplexity, bleu, but no self-bleu"),
        ({"metrics": ("bleus",)}, "Did you mean 'bleu'"),
        ({"length": 10}, "length does not go with it"),
        ({"prefix": 3}, "prefix does not go with it"),
        ({"oracle": "run"}, "oracle does not go with it"),
        ({"decodings": ("teacher-forced",)}, "Use greedy or beam5"),
    ],
)
def test_what_only_a_language_model_can_be_asked_is_refused(learned, asked, message):
    with pytest.raises(ConfigError, match=message):
        evaluate_run(learned, CPU, Request(**asked))


def test_all_metrics_are_those_of_a_translation(learned):
    scores = evaluate_run(learned, CPU, Request(metrics=("all",), decodings=("greedy",), splits=("valid",)))
    assert [score.metric for score in scores] == ["ppl", "bleu"]


def test_it_trains_in_the_plain_loop_and_shows_what_its_decoder_read(digits, tmp_path):
    always = {"neighbor_rate": {"shape": "static", "end": 1.0}}
    run = start(config(digits, "nnrs", policy=always), tmp_path / "run", CPU)
    assert not can_batch(run.parts.config, torch.device("cuda"))
    shown = trajectory_of(run)
    assert shown["gold"][0] == "<eos>"
    assert "neighbor" in shown["sources"]
