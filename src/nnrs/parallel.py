"""Parallel text: a folder with train, valid and test in several languages, line i of each saying the same."""

from functools import partial
from pathlib import Path

from nnrs.corpus import SPLITS, Corpus, read_tokens
from nnrs.errors import ConfigError, DataError
from nnrs.wording import counted

USUAL = ("de", "en")  # from and to, where both are there and nothing else is asked for


def choose_languages(data: str, source: str | None, target: str | None) -> tuple[str, str]:
    """From which language to which: as asked; of two the one that is left; where nothing is asked, USUAL."""
    found = languages_in(data)
    for language in (source, target):
        if language is not None and language not in found:
            raise DataError(f"{data} has no text in '{language}', but in {', '.join(found)}.")
    if source is None and target is None and {*USUAL} <= {*found}:
        return USUAL
    if len(found) == 2 and (source or target):
        source = source or _other(found, target)
        target = target or _other(found, source)
    if source is None or target is None:
        raise ConfigError(f"{data} has text in {', '.join(found)}: say which with --from and --to.")
    if source == target:
        raise ConfigError(f"--from and --to are both '{source}': name two of {', '.join(found)}.")
    return source, target


def languages_in(data: str) -> list[str]:
    """The languages that a folder has all three splits in: train.de, valid.de and test.de are `de`."""
    try:
        names = {path.name for path in Path(data).iterdir()}
    except OSError as error:
        raise DataError(
            f"{data}: no folder of parallel text ({error.strerror}). Name one with --data."
        ) from None
    begun = sorted({name.partition(".")[2] for name in names if name.partition(".")[0] in SPLITS})
    missing = {language: [s for s in SPLITS if f"{s}.{language}" not in names] for language in begun}
    found = [language for language in begun if not missing[language]]
    if len(found) < 2:
        lacking = [f"{split}.{language}" for language, splits in missing.items() for split in splits]
        known = f"missing: {', '.join(lacking)}" if lacking else "such as train.de and train.en"
        raise DataError(f"{data}: parallel text is train, valid and test in two languages; {known}.")
    return found


def open_parallel(data: str, source: str, target: str) -> tuple[Corpus, Corpus]:
    """The text in two languages, line by line; refused where a line of one has none beside it in the other."""
    folder = Path(data)
    for split in SPLITS:
        _check_lines(folder / f"{split}.{source}", folder / f"{split}.{target}")
    name = folder.resolve().name.lower()
    readers = [
        {split: partial(read_tokens, folder / f"{split}.{language}") for split in SPLITS}
        for language in (source, target)
    ]
    return Corpus(name, readers[0]), Corpus(name, readers[1])


def _other(found: list[str], language: str | None) -> str:
    return next(name for name in found if name != language)


def _check_lines(source: Path, target: Path) -> None:
    counts = []
    for path in (source, target):
        counts.append(sum(1 for _ in read_tokens(path)))
        if not any(read_tokens(path)):
            raise DataError(f"{path}: no words. Is the file empty?")
    if counts[0] != counts[1]:
        raise DataError(
            f"{source} has {counted(counts[0], 'line')} and {target.name} has {counts[1]:,}: "
            "each needs its translation."
        )
