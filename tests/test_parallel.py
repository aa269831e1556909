import pytest

from nnrs.errors import ConfigError, DataError
from nnrs.parallel import choose_languages, languages_in, open_parallel


def write(folder, *languages, lines=2):
    for language in languages:
        for split in ("train", "valid", "test"):
            text = "".join(f"{language} {split} {number}\n" for number in range(lines))
            (folder / f"{split}.{language}").write_text(text)
    return str(folder)


def test_lines_of_both_languages_come_in_pairs(tmp_path):
    source, target = open_parallel(write(tmp_path / ".", "de", "en"), "de", "en")
    assert list(source.lines("valid")) == [["de", "valid", "0"], ["de", "valid", "1"]]
    assert list(target.lines("valid")) == [["en", "valid", "0"], ["en", "valid", "1"]]
    assert source.name == target.name == tmp_path.name.lower()


@pytest.mark.parametrize(
    ("there", "asked", "expected"),
    [
        (("de", "en"), (None, None), ("de", "en")),
        (("cs", "de", "en"), (None, None), ("de", "en")),
        (("de", "en"), ("en", None), ("en", "de")),
        (("de", "en"), (None, "de"), ("en", "de")),
        (("cs", "de", "en"), ("cs", "de"), ("cs", "de")),
    ],
)
def test_languages_are_those_asked_for_and_else_german_to_english(tmp_path, there, asked, expected):
    assert choose_languages(write(tmp_path, *there), *asked) == expected


@pytest.mark.parametrize(
    ("there", "asked", "message"),
    [
        (("cs", "fr"), (None, None), "cs, fr: say which with --from and --to"),
        (("cs", "de", "en"), ("cs", None), "cs, de, en: say which with --from and --to"),
        (("de", "en"), ("fr", "en"), "no text in 'fr', but in de, en"),
        (("de", "en"), ("en", "en"), "both 'en'"),
    ],
)
def test_languages_that_cannot_be_chosen_are_named(tmp_path, there, asked, message):
    with pytest.raises((ConfigError, DataError), match=message):
        choose_languages(write(tmp_path, *there), *asked)


def test_a_folder_without_two_whole_languages_says_what_is_missing(tmp_path):
    write(tmp_path, "de", "en")
    (tmp_path / "valid.en").unlink()
    with pytest.raises(DataError, match=r"missing: valid\.en\.$"):
        languages_in(str(tmp_path))
    with pytest.raises(DataError, match=r"such as train\.de"):
        languages_in(str(write_nothing(tmp_path / "empty")))
    with pytest.raises(DataError, match="Name one with --data"):
        languages_in(str(tmp_path / "nowhere"))


def write_nothing(folder):
    folder.mkdir()
    return folder


def test_a_line_without_its_translation_is_refused(tmp_path):
    folder = write(tmp_path, "de", "en")
    with (tmp_path / "test.de").open("a") as file:
        file.write("one more\n")
    with pytest.raises(DataError, match=r"test\.de has 3 lines and test\.en has 2"):
        open_parallel(folder, "de", "en")


def test_a_file_without_words_is_refused(tmp_path):
    folder = write(tmp_path, "de", "en")
    (tmp_path / "test.de").write_text("\n\n")
    with pytest.raises(DataError, match=r"test\.de: no words"):
        open_parallel(folder, "de", "en")
