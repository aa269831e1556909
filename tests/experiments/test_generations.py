"""Text is cut and continued once, kept in the run directory, and made anew when its model or its source changes."""

import json
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.experiments.scores import SHORT, by_name, ids_of, scores_of

import nnrs
from nnrs.errors import DataError, RunError
from nnrs.evaluation.generate import DECODINGS, generate, teacher_forced
from nnrs.experiments import generations
from nnrs.experiments.generations import cut
from nnrs.experiments.subject import Request
from nnrs.run_directory import RunDirectory


@given(
    tokens=st.integers(1, 300),
    sentences=st.integers(1, 30),
    prefix=st.integers(1, 5),
    length=st.integers(1, 9),
)
def test_windows_are_cut_from_all_over_the_text_and_never_share_a_token(tokens, sentences, prefix, length):
    request, size = Request(sentences=sentences, prefix=prefix, length=length), prefix + length
    if tokens < size:
        with pytest.raises(DataError, match=f"holds no window of {prefix} \\+ {length}"):
            cut(torch.arange(tokens), request)
        return
    prefixes, gold = cut(torch.arange(tokens), request)
    count = min(sentences, tokens // size)  # as many as asked for, or all there are
    assert (prefixes.shape, gold.shape) == ((count, prefix), (count, length))
    starts = prefixes[:, 0].tolist()
    whole = torch.cat([prefixes, gold], dim=1)
    assert whole.tolist() == [list(range(first, first + size)) for first in starts]
    gaps = {after - before for before, after in pairwise([*starts, tokens])}
    assert gaps <= {tokens // count, tokens // count + 1}  # evenly, up to the end
    assert min(gaps) >= size


def test_stored_text_is_what_the_model_makes_of_the_gold_prefixes(run):
    scores_of(run, "bleu", decodings=("sample", "teacher-forced", "beam"), seed=4)
    records = RunDirectory(run).records("generations")
    loaded = nnrs.load(run)
    prefixes, gold = cut(ids_of(run), Request(**SHORT))
    expected = {
        "sample": generate(loaded.model, prefixes, length=9, decoding=DECODINGS["sample"], seed=4),
        "teacher-forced": teacher_forced(loaded.model, prefixes, gold),
        "beam4-penalty1": generate(loaded.model, prefixes, length=9, decoding=DECODINGS["beam"]),
    }
    words = loaded.vocabulary.decode
    for label, made in expected.items():
        key = f"n:1000|len:9|decode:{label}|prefix:3|text-seed:4|split:test"
        lines = [record for record in records if record["key"] == key]
        assert [line["prefix"] for line in lines] == [words(row) for row in prefixes.tolist()]
        assert [line["gold"] for line in lines] == [words(row) for row in gold.tolist()]
        assert [line["generated"] for line in lines] == [words(row) for row in made.tolist()]
    assert len(records) == 3 * len(prefixes)


@pytest.mark.parametrize("proof", [True, False], ids=["with its proof", "without"])
def test_text_metrics_need_no_model_once_the_text_is_there(run, proof):
    metrics = (
        "bleu",
        "self-bleu",
        "wmd",
        "self-wmd",
        "perplexity",
        "deciles",
    )  # the last two: from kept losses
    here = scores_of(run, *metrics)
    for path in run.glob("best-*"):
        if path.suffix == ".safetensors" or not proof:
            path.unlink()
    assert scores_of(run, *metrics) == here
    with pytest.raises(RunError, match=r"no stored text is of n:1000.*greedy.*none can be made: "):
        scores_of(run, "bleu", decodings=("greedy",))
    with pytest.raises(RunError, match="missing, though" if proof else "its model .* is gone"):
        scores_of(run, "noise")


def test_text_metrics_read_the_stored_text_and_not_the_model(run):
    scores_of(run, "bleu")
    path = run / "generations.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({**line, "generated": line["gold"]}) + "\n" for line in lines))
    assert by_name(scores_of(run, "bleu"))["bleu4"].value == pytest.approx(100.0)


def test_text_of_an_earlier_model_is_made_anew_and_replaces_it(run):
    scores_of(run, "bleu", decodings=("sample", "greedy"))
    directory = RunDirectory(run)
    before = directory.records("generations")
    tensors, state = directory.best()
    changed = {name: tensor * 0.5 for name, tensor in tensors.items()}
    directory.write_best(changed, {**state, "step": state["step"] + 1})
    scores_of(run, "bleu")
    after = directory.records("generations")
    greedy = [record for record in before if "decode:greedy" in record["key"]]
    assert after[: len(greedy)] == greedy  # not asked for, not touched
    assert len(after) == len(before)
    assert [record["generated"] for record in after] != [record["generated"] for record in before]


def test_text_is_made_a_block_at_a_time_and_goes_to_disk_before_the_next(run, monkeypatch):
    monkeypatch.setattr(generations, "ROWS", 20)
    model, read, written = nnrs.load(run).model, [], []
    real = generations.generate

    def watched(model, prefixes, **settings):
        read.append((len(prefixes), len(written)))
        return real(model, prefixes, **settings)

    def replace(self, name, field, values, records):
        for record in records if name == "generations" else ():
            written.append(record["generated"])
        raise RunError("cannot write.")

    whole = generate(model, cut(ids_of(run), Request(**SHORT))[0], length=9, decoding=DECODINGS["sample"])
    monkeypatch.setattr(generations, "generate", watched)
    monkeypatch.setattr(RunDirectory, "replace", replace)
    scores_of(run, "bleu")
    assert len(whole) > 40
    # A block is made when all before it have been written; and no block is larger than what is continued at once.
    expected = [(min(20, len(whole) - first), first) for first in range(0, len(whole), 20)]
    assert read[: len(expected)] == expected
    assert written == [nnrs.load(run).vocabulary.decode(row) for row in whole.tolist()]  # as if made at once


def test_sentences_of_another_text_are_told_apart_and_made_anew_when_it_changes(run, trained, tmp_path):
    other = tmp_path / "other.txt"
    lines = (trained / "text.txt").read_text().splitlines(keepends=True)
    other.write_text("".join(lines[::-1]))
    own, first = scores_of(run, "bleu"), scores_of(run, "bleu", data=str(other))
    assert "|on:other|split:test|" in first[0].signature
    assert first[0].value != own[0].value
    other.write_text("".join(lines[5::-1] + lines[:5:-1]))
    assert scores_of(run, "bleu", data=str(other))[0].value != first[0].value
    assert scores_of(run, "bleu") == own
