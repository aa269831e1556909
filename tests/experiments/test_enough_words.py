"""Runs that ask for more neighbors than words have are refused before anything is trained, at little cost."""

from itertools import count

import pytest
import torch
import typer

from nnrs.cli.grid import carry_out
from nnrs.corpus import SPLITS, Corpus
from nnrs.errors import ConfigError, NnrsError
from nnrs.experiments import enough_words
from nnrs.experiments.enough_words import check_neighbors, check_protected
from nnrs.experiments.outlook import look_ahead
from nnrs.experiments.plan import Plan, expand
from nnrs.experiments.prepare import Shelf, prepare
from nnrs.experiments.subject import Request

SETTINGS = {"units": 6, "layers": 1, "batch_size": 2, "bptt": 8, "epochs": 1}


def write_words(path, number, times=30):
    """A text in which so many words stand so many times, each time behind another; nine tenths are trained on."""
    words = [f"w{index:03d}" for index in range(number)]
    lines = [
        " ".join(words[(index * step) % number] for index in range(number)) for step in range(1, times + 1)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def cells_on(text, **settings):
    return expand({"data": str(text), "method": "nnrs", **SETTINGS, **settings})


def refusal(cells, check=check_neighbors):
    try:
        check(cells, Shelf())
    except NnrsError as error:
        return str(error)
    return None


@pytest.mark.parametrize("listed", [None, "json"], ids=["run", "dry run"])
def test_too_few_words_are_told_before_anything_is_trained_or_written(tmp_path, listed):
    (tmp_path / "text.txt").write_text("a b\n" * 200)
    cells = tuple(cells_on(tmp_path / "text.txt", method=["mle", "nnrs"]))
    plan = Plan(kind="grid", title="t", command="c", cells=cells, request=Request())
    # a, b, <eos> and <unk> make log2 4 = 2
    said = r"nnrs_seed-1: k=2, the usual for 4 words, asks .* only 2 words are replaceable\. Use at most k=1, or more"
    with pytest.raises(ConfigError, match=said):
        carry_out(plan, tmp_path / "out", jobs=1, device="cpu", ray=None, listed=listed)
    assert not (tmp_path / "out").exists()
    one = Plan(kind="grid", title="t", command="c", cells=cells[:1], request=Request())
    with pytest.raises(typer.Exit):
        carry_out(one, tmp_path / "out", jobs=1, device="cpu", ray=None, listed="json")


@pytest.mark.parametrize("method", ["nnrs", "tprs", "ss-nnrs", "gsns", "shuffled"])
def test_of_every_method_that_has_a_k(tmp_path, method):
    (tmp_path / "text.txt").write_text("a b\n" * 200)
    assert "only 2 words are replaceable" in refusal(cells_on(tmp_path / "text.txt", method=method))
    for k in (0, 1):
        assert refusal(cells_on(tmp_path / "text.txt", method=method, k=k)) is None


@pytest.mark.parametrize(
    "settings",
    [{"method": name} for name in ("mle", "ss", "unigram", "word-dropout")]
    + [{"method": "tprs", "transition_whole": True}],
    ids=lambda settings: settings["method"],
)
def test_of_no_method_that_has_none(tmp_path, settings):
    (tmp_path / "text.txt").write_text("a b\n" * 200)
    assert refusal(cells_on(tmp_path / "text.txt", **settings)) is None


# Words of the text, settings, and whether words have neighbors enough.
CASES = {
    "few words": (2, {}, False),
    "words enough": (9, {}, True),
    "many words": (90, {}, True),
    "as many as k": (9, {"k": 9}, False),
    "one more than k": (9, {"k": 8}, True),
    "as many as a large k": (90, {"k": 90}, False),
    "one more than a large k": (90, {"k": 89}, True),
    "a small vocabulary": (90, {"k": 20, "max_vocabulary": 22}, False),  # <eos> and <unk> are two of them
    "a vocabulary of one more": (90, {"k": 20, "max_vocabulary": 23}, True),
    "protected words": (9, {"k": 7, "protect": ["w001", "w002"]}, False),
    "protected words, one less": (9, {"k": 6, "protect": ["w001", "w002"]}, True),
    "rare words": (90, {"times": 4}, False),
    "vectors of few words": (9, {"k": 5, "covered": 5}, False),
    "vectors of one more": (9, {"k": 5, "covered": 6}, True),
    "many protected words": (90, {"k": 84, "protect": [f"w{n:03d}" for n in range(6)]}, False),
    "many protected words, one less": (90, {"k": 83, "protect": [f"w{n:03d}" for n in range(6)]}, True),
    "words rarer than asked for": (90, {"times": 9, "min_count": 20}, False),
    "few frequent words": (9, {"rare": 2000}, False),  # log2 of two thousand is 11
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_refused_is_what_could_not_be_made(case, tmp_path):
    number, settings, enough = CASES[case]
    settings = dict(settings)
    text = write_words(tmp_path / "text.txt", number, settings.pop("times", 30))
    rare = "".join(f"r{index:04d}\n" for index in range(settings.pop("rare", 0)))
    text.write_text(rare + text.read_text())
    if covered := settings.pop("covered", 0):
        rows = (f"w{index:03d} {index % 3} {index % 2} 1" for index in range(covered))
        (tmp_path / "vectors.txt").write_text("\n".join(rows) + "\n")
        settings["vectors"] = str(tmp_path / "vectors.txt")
    [cell] = cells_on(text, **settings)
    if enough:
        prepare(cell.config, torch.device("cpu"), Shelf())
        assert refusal([cell]) is None
        return
    with pytest.raises(NnrsError) as caught:
        prepare(cell.config, torch.device("cpu"), Shelf())
    assert refusal([cell]) == f"{cell.name}: {caught.value}"


@pytest.mark.parametrize(("source", "target", "enough"), [(2, 30, True), (30, 2, False)])
def test_of_a_translation_it_is_the_words_translated_into_that_count(tmp_path, source, target, enough):
    for split in SPLITS:
        write_words(tmp_path / f"{split}.de", source)
        write_words(tmp_path / f"{split}.en", target)
    settings = {**SETTINGS, "task": "translate", "batch_size": 8, "k": 4}
    del settings["bptt"]
    [cell] = expand({"data": str(tmp_path), "method": "nnrs", **settings})
    if enough:
        prepare(cell.config, torch.device("cpu"), Shelf())
    assert (refusal([cell]) is None) == enough


def test_a_text_of_many_words_is_read_no_further_than_to_words_enough(tmp_path, monkeypatch):
    text, lines = write_words(tmp_path / "text.txt", 90), count()

    def read():
        for _ in range(30):
            next(lines)
            yield [f"w{index:03d}" for index in range(90)]

    endless = Corpus("endless", dict.fromkeys(SPLITS, read))
    monkeypatch.setattr(enough_words, "open_corpus", lambda source: endless)
    monkeypatch.setattr(enough_words.Text, "read", None)
    check_neighbors(cells_on(text, method=["nnrs", "ss-nnrs"], seeds="1-9"), Shelf())
    assert (
        next(lines) == 5
    )  # the fifth line has 90 words for the fifth time; and it is read once for all runs


@pytest.mark.parametrize("settings", [{"protect": ["nowhere"]}, {"k": 200}], ids=["protected", "neighbors"])
def test_words_that_a_text_lacks_are_told_of_runs_that_other_machines_train(tmp_path, settings):
    text = write_words(tmp_path / "text.txt", 90)
    plan = Plan(
        kind="grid", title="t", command="c", cells=tuple(cells_on(text, **settings)), request=Request()
    )
    with pytest.raises(ConfigError, match=r"cannot protect|asks for more neighbors"):
        look_ahead(plan, tmp_path / "out", [], "auto", elsewhere=True)


@pytest.mark.parametrize("listed", [None, "json"], ids=["run", "dry run"])
def test_protected_words_that_a_text_lacks_are_told_before_anything_is_trained_or_written(tmp_path, listed):
    text = write_words(tmp_path / "text.txt", 90)
    cells = tuple(cells_on(text, runs=[{"method": "mle"}, {"protect": ["w003", "nowhere", "nor"]}]))
    plan = Plan(kind="grid", title="t", command="c", cells=cells, request=Request())
    said = r"^nnrs_w003\+nowhere\+nor_seed-1: cannot protect 'nowhere', 'nor': not in the vocabulary"
    with pytest.raises(ConfigError, match=said):
        carry_out(plan, tmp_path / "out", jobs=1, device="cpu", ray=None, listed=listed)
    assert not (tmp_path / "out").exists()


# What plans on a text without the word, and on one of one word, are told to change.
REMEDIES = [
    ({"protect": ["nowhere"]}, 90, "that --min-count and --max-vocabulary keep."),
    ({"k": 2}, 1, "a lower --min-count or vectors of more words"),
]


@pytest.mark.parametrize(("settings", "number", "told"), REMEDIES, ids=["protected", "neighbors"])
@pytest.mark.parametrize("kind", ["grid", "compare"])
def test_what_is_refused_names_keys_where_a_file_made_the_plan_and_options_elsewhere(
    tmp_path, kind, settings, number, told
):
    cells = tuple(cells_on(write_words(tmp_path / "text.txt", number), **settings))
    plan = Plan(kind=kind, title="t", command="c", cells=cells, request=Request())
    with pytest.raises(ConfigError) as caught:
        look_ahead(plan, tmp_path / "out", [], "cpu")
    keys = told.replace("--min-count", "min_count").replace("--max-vocabulary", "max_vocabulary")
    assert (keys if kind == "grid" else told) in str(caught.value)


def test_a_word_that_cannot_be_protected_is_told_of_a_run_that_replaces_words(tmp_path):
    text = write_words(tmp_path / "text.txt", 90)
    cells = cells_on(text, method=["mle", "ss", "nnrs", "unigram"], protect=["nowhere"])
    assert refusal(cells, check_protected).startswith("nnrs_seed-1: cannot protect 'nowhere'")
    assert refusal(cells[:2], check_protected).startswith("mle_seed-1: cannot protect 'nowhere'")


# Settings, and whether what they protect is among the ninety words of a text of 20 lines, 18 of them for training.
PROTECTED = {
    "a word of the text": ({"protect": ["w001"]}, True),
    "a special one": ({"protect": ["w001", "<eos>"]}, True),
    "one it lacks": ({"protect": ["w001", "w090"]}, False),
    "often enough": ({"protect": ["w001"], "min_count": 18}, True),
    "too rare": ({"protect": ["w001"], "min_count": 19}, False),
    "a small vocabulary": ({"protect": ["w001"], "max_vocabulary": 91}, True),
    "too small a one": ({"protect": ["w089"], "max_vocabulary": 91}, False),
}


@pytest.mark.parametrize("case", PROTECTED)
def test_what_is_refused_to_be_protected_is_what_could_not_be(case, tmp_path):
    settings, known = PROTECTED[case]
    (tmp_path / "text.txt").write_text((" ".join(f"w{index:03d}" for index in range(90)) + "\n") * 20)
    [cell] = cells_on(tmp_path / "text.txt", **settings)
    said = None
    try:
        prepare(cell.config, torch.device("cpu"), Shelf())
    except NnrsError as error:
        said = f"{cell.name}: {error}"
    assert (said is None) == known
    assert refusal([cell], check_protected) == said


def test_a_text_is_read_no_further_than_to_its_protected_words_and_once_for_all_runs(tmp_path, monkeypatch):
    text, lines = write_words(tmp_path / "text.txt", 90), count()

    def read():
        for number in range(90):
            next(lines)
            yield [f"w{number:03d}"] * 2

    endless = Corpus("endless", dict.fromkeys(SPLITS, read))
    monkeypatch.setattr(enough_words, "open_corpus", lambda source: endless)
    monkeypatch.setattr(enough_words.Text, "read", None)
    settings = {"protect": ["w006", "w003"], "min_count": 2, "seeds": "1-9"}
    check_protected(cells_on(text, method=["nnrs", "ss-nnrs"], **settings), Shelf())
    assert next(lines) == 7  # w006 stands in the seventh line
    check_protected(cells_on(text, method="nnrs"), Shelf())
    assert next(lines) == 8  # nothing more was read where nothing is protected
