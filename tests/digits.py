"""A little language to translate: digits, and their names in reverse."""

import random
from pathlib import Path

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SIZES = {"train": 600, "valid": 40, "test": 40}


def translated(digits: list[str]) -> list[str]:
    """What `3 1 4` means: `four one three`."""
    return [NAMES[int(digit)] for digit in reversed(digits)]


def write_digits(folder: Path, longest: int = 4) -> Path:
    """train, valid and test in `num` and `en`, as files of parallel text."""
    draws = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in SIZES.items():
        lines = [[str(draws.randrange(10)) for _ in range(draws.randint(1, longest))] for _ in range(size)]
        for language, said in (("num", lines), ("en", [translated(line) for line in lines])):
            text = "".join(" ".join(words) + "\n" for words in said)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return folder
