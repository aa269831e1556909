import codecs
import gzip
import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.surroundings import unchecked

from nnrs.embeddings import read_vectors
from nnrs.embeddings import reader as reader_module
from nnrs.errors import ConfigError, DataError
from nnrs.vocabulary import Vocabulary

ROWS = {"the": [0.5, -1.0, 2.0], "The": [4.0, 4.0, 4.0], "cat": [1.0, 0.0, -0.25], "ünit": [0.1, 0.2, 0.3]}


def binary(rows, *, between=b"", header=None):
    """A word2vec binary file, as the C tool (a line end after each row) or GoogleNews (none) writes it."""
    width = len(next(iter(rows.values())))
    body = b"".join(
        word.encode() + b" " + np.array(row, dtype="<f4").tobytes() + between for word, row in rows.items()
    )
    return (header or f"{len(rows)} {width}".encode()) + b"\n" + body


def text(rows, *, header=True, ending="\n"):
    lines = [" ".join([word, *map(repr, row)]) for word, row in rows.items()]
    if header:
        lines.insert(0, f"{len(rows)} {len(next(iter(rows.values())))}")
    return "".join(line + ending for line in lines).encode()


def saved_by_torch(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


FORMATS = {
    "word2vec binary": binary(ROWS),
    "word2vec binary with line ends": binary(ROWS, between=b"\n"),
    "word2vec text": text(ROWS),
    "fastText": text(ROWS, ending=" \n"),
    "text with CRLF": text(ROWS, ending="\r\n"),
    "GloVe": text(ROWS, header=False),
    "no last line end": text(ROWS).removesuffix(b"\n"),
    "text with a byte order mark": codecs.BOM_UTF8 + text(ROWS),
    "GloVe with a byte order mark": codecs.BOM_UTF8 + text(ROWS, header=False),
}


def read(tmp_path, content, words):
    path = tmp_path / "vectors.dat"
    path.write_bytes(content)
    return read_vectors(path, words)


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("content", FORMATS.values(), ids=FORMATS)
def test_every_format_gives_the_same_vectors_whatever_the_file_is_called(tmp_path, content, zipped):
    words = ["ünit", "dog", "cat", "the", "THE", "The"]
    found = read(tmp_path, gzip.compress(content) if zipped else content, words)
    expected = torch.zeros(6, 3)
    for row, word in [(0, "ünit"), (2, "cat"), (3, "the"), (4, "the"), (5, "The")]:  # THE falls back to the
        expected[row] = torch.tensor(ROWS[word])
    assert torch.equal(found.vectors, expected)
    assert found.covered.tolist() == [True, False, True, True, True, True]
    assert found.source == "vectors.dat"


@pytest.mark.parametrize("write", [binary, text], ids=["binary", "text"])
@pytest.mark.parametrize("order", [("The", "the"), ("the", "The")])
def test_the_exact_spelling_wins_over_the_lower_cased_one_in_either_order(tmp_path, write, order):
    content = write({word: ROWS[word] for word in order})
    assert read(tmp_path, content, ["The"]).vectors.tolist() == [ROWS["The"]]


def test_a_word_never_takes_the_vector_of_another_case_than_its_own_and_lower(tmp_path):
    found = read(tmp_path, text({"The": [1.0], "cat": [2.0]}), ["the", "THE", "cat"])
    assert found.vectors.tolist() == [[0.0], [0.0], [2.0]]


def test_the_first_of_two_rows_for_a_word_counts(tmp_path):
    assert read(tmp_path, b"a 1.0\na 2.0\n", ["a"]).vectors.tolist() == [[1.0]]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e39])  # the last is too large for float32
def test_a_row_that_is_not_finite_counts_as_absent(tmp_path, bad):
    found = read(tmp_path, text({"the": [1.0, bad], "cat": [1.0, 2.0]}), ["the", "cat"])
    assert found.vectors.tolist() == [[0.0, 0.0], [1.0, 2.0]]
    assert found.rejected == 1


def test_words_with_spaces_as_some_of_gloves_are_read_over(tmp_path):
    found = read(tmp_path, b"the 1 2\n. . . 3 4\nat name@domain.com 5 6\ncat 7 8\n", ["the", ".", "cat"])
    assert found.vectors.tolist() == [[1, 2], [0, 0], [7, 8]]


@settings(deadline=None, max_examples=60)
@given(
    rows=st.dictionaries(
        st.text(
            st.characters(codec="utf-8", exclude_characters=" \n\r\t", exclude_categories=["C", "Z"]),
            min_size=1,
        ),
        st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=5, max_size=5),
        min_size=1,
        max_size=8,
    ),
    between=st.sampled_from([b"", b"\n"]),
    block=st.integers(100, 400),
)
def test_a_binary_file_comes_back_whatever_bytes_its_floats_hold(tmp_path_factory, rows, between, block):
    # A float's bytes may look like spaces, line ends or digits, and a block may end anywhere in a row.
    rows["sentinel"] = [1.0, 2.0, 3.0, 4.0, 5.0]  # 1.0 holds zero bytes: surely no text
    path = tmp_path_factory.mktemp("vectors") / "v"
    path.write_bytes(binary(rows, between=between))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_module, "BLOCK", block)
        found = read_vectors(path, list(rows))
    assert found.vectors.tolist() == [[np.float32(number) for number in row] for row in rows.values()]


def test_a_binary_file_whose_first_number_looks_like_a_line_end_is_still_binary(tmp_path):
    looks = np.frombuffer(b"\n 1A", dtype="<f4")[0].item()
    rows = {"the": [looks, 1.0], "cat": [2.0, looks]}
    assert read(tmp_path, binary(rows), ["the", "cat"]).vectors.tolist() == list(rows.values())


def test_blocks_smaller_than_the_file_lose_nothing(tmp_path, monkeypatch):
    rows = {
        f"w{i}": np.random.default_rng(i).standard_normal(7).astype(np.float32).tolist() for i in range(500)
    }
    monkeypatch.setattr(reader_module, "BLOCK", 64)
    found = read(tmp_path, binary(rows), list(rows))
    assert found.vectors.tolist() == list(rows.values())


BAD = {
    "empty": (b"", "is empty"),
    "byte order mark alone": (codecs.BOM_UTF8, "is empty"),
    "prose": (b"Once upon a time\nthere was\n", "is not a vector file"),
    "zip": (b"PK\x03\x04 1 2\nand 3 4\n", "is a zip archive. Unpack it, and give the file"),
    "file of PyTorch": (
        saved_by_torch({"the": torch.ones(3)}),
        "is a file of PyTorch. Save its vectors as text: a word and its numbers a line.",
    ),
    "model of fastText": ((793_712_314).to_bytes(4, "little") + b" 1 2\n", "is a model of fastText"),
    "pickle": (b"\x80\x04\x95\x10\x00\x00", "is not a vector file"),
    "truncated binary": (binary(ROWS)[:-5], r"ends in row 4 of the 4 rows of 3 numbers"),
    "binary cut between rows": (
        binary({"a": [1.0]}, header=b"2 1"),
        r"ends in row 2 of the 2 rows of 1 number ",
    ),
    "binary wider than promised": (binary(ROWS, header=b"4 2"), "goes on after the 4 rows of 2 numbers"),
    "binary narrower than promised": (binary(ROWS, header=b"4 4"), "of the 4 rows of 4 numbers"),
    "truncated text": (text(ROWS).replace(b"4 3\n", b"9 3\n"), "ends after 4 of the 9 rows"),
    "text longer than promised": (text(ROWS).replace(b"4 3\n", b"3 3\n"), "goes on after the 3 rows"),
    "text of another width": (
        text(ROWS).replace(b"4 3\n", b"4 2\n"),
        "line 2: expected a word and 2 numbers, found 3",
    ),
    "short row": (b"the 1 2\ncat 3\n", "line 2: expected a word and 2 numbers, found 1"),
    "long row": (b"the 1 2\ncat 3 4 5\n", "line 2: expected a word and 2 numbers, found 3"),
    "not a number": (b"the 1 2\ncat 3 x\n", "line 2: expected a word and 2 numbers"),
    "truncated gzip": (gzip.compress(binary(ROWS))[:-9], "truncated or damaged gzip"),
    "damaged gzip": (b"\x1f\x8b" + b"\x00" * 40, "truncated or damaged gzip"),
    "no numbers": (
        b"the nan nan\ncat 1 inf\n",
        "all words that it covers are zeros, or have a number that is",
    ),
    "zeros": (b"the 0 0\ncat 0 0\n", "all words that it covers are zeros"),
    "no word covered": (
        text({"dog": [1.0]}),
        "cover 0 of 2 words. Is the vocabulary lower-cased like the vectors?",
    ),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_in_one_line_that_names_it(tmp_path, content, message):
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, content, ["the", "cat"])
    assert "vectors.dat" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.bin: No such file"):
        read_vectors(tmp_path / "nowhere.bin", ["the"])


NO_LIST = {
    "dict": ({"cat": 1, "the": 0}, r"got dict\. Of a dict of ids, use sorted\(vocab, key=vocab\.get\)\."),
    "set": ({"the", "cat"}, r"got set\."),
    "keys": ({"the": 0}.keys(), r"got dict_keys\."),
    "text": ("the", r"got str\."),
    "vocabulary": (Vocabulary(("<eos>", "<unk>"), (1, 0)), r"got Vocabulary\. Use its \.words\."),
    "ids": (["the", 2], r"got 2 as words\[1\]\."),
}


@pytest.mark.parametrize(("words", "got"), NO_LIST.values(), ids=NO_LIST)
def test_words_that_are_not_in_the_order_of_ids_are_refused(tmp_path, words, got):
    with (
        unchecked(),
        pytest.raises(ConfigError, match=rf"^words must be a list, words\[i\] that of id i, {got}$"),
    ):
        read(tmp_path, FORMATS["GloVe"], words)


@pytest.mark.parametrize("kind", [tuple, np.array, iter])
def test_words_may_come_in_any_kind_of_list(tmp_path, kind):
    with unchecked():
        found = read(tmp_path, FORMATS["GloVe"], kind(["cat", "the"]))
    assert found.vectors.tolist() == [ROWS["cat"], ROWS["the"]]


def test_the_name_in_signatures_has_no_format_endings(tmp_path):
    path = tmp_path / "googlenews-negative300.subset.bin.gz"
    path.write_bytes(gzip.compress(binary(ROWS)))
    assert read_vectors(path, ["the"]).source == "googlenews-negative300.subset"


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "covered"),
    [("googlenews-negative300.subset.bin.gz", 7748), ("glove.6B.100d.subset.bin.gz", 9625)],
)
def test_ptb_coverage_is_what_the_data_readme_counts(shared_data, file, covered):
    lines = (shared_data / "ptb" / "ptb.train.txt").read_text().splitlines()
    counts = {}
    for word in (word for line in lines for word in line.split()):
        counts[word] = counts.get(word, 0) + 1
    embeddings = read_vectors(shared_data / "embeddings" / file, list(counts))
    coverage = embeddings.coverage(list(counts), list(counts.values()))
    assert (coverage.types_covered, coverage.types, coverage.tokens) == (covered, 9999, 887521)
    share = {7748: 76.6, 9625: 85.2}[covered]
    assert round(100 * coverage.tokens_covered / coverage.tokens, 1) == share
    assert coverage.missing[0] == "<unk>"
